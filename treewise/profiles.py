"""Cost profiles of this machine: where they are kept, and which one a command uses."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.cost import CostProfile, check_device

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.engine.profile import ProfileSettings

Tell = Callable[[str], None]


def quick_settings() -> ProfileSettings:
    """Few counts and repeats: some seconds on a laptop, coarse figures."""
    from treewise.engine.profile import ProfileSettings

    return ProfileSettings(
        verify_rows=(1, 2, 4, 8, 16, 32, 64), draft_tokens=(1, 4, 16), capacities=(192,), repeats=5, round_tokens=12
    )


def profile_steps(settings: ProfileSettings) -> int:
    """How many times `measure_profile` tells of a measured part."""
    return len(settings.capacities) * (settings.repeats + 1) + 1


def stored_path(pair: Pair) -> Path:
    """Where the profile of `pair` on its device is kept: one file for each content, dtype and device."""
    from treewise.engine.collect import known_device
    from treewise.engine.hub import cache_home

    description = pair.description
    parts = (
        description.target_sha256,
        description.draft_sha256 or "none",
        str(pair.target.dtype),
        known_device(pair.target.device),
    )
    digest = hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9.+-]+", "-", pair.name).strip("-.")[-60:]
    return cache_home() / "profiles" / f"{name}-{digest}.json"


def mismatch(profile: CostProfile, pair: Pair) -> str | None:
    """Why `profile` may not hold for `pair` here, naming both sides; None where it does."""
    from treewise.engine.collect import known_device

    return check_device(profile, known_device(pair.target.device), pair.name)


def find_cost(
    pair: Pair, cost: str | Path = "", warn: Tell = warnings.warn, note: Tell = lambda line: None
) -> CostProfile:
    """The profile that `cost` names, else the stored one of this machine, else a quick measurement, which is stored.

    `warn` is told where the profile is for another device or pair, `note` where something was measured. Raises
    `CostProfileError` and `SchemaVersionError` as `CostProfile.load` does.
    """
    path = stored_path(pair)
    if cost or path.is_file():
        profile = CostProfile.load(cost or path)
        if line := mismatch(profile, pair):
            warn(line)
        return profile
    from treewise.engine.profile import measure_profile

    note(f"no cost profile of {pair.name} on this machine: measuring a quick one (`treewise profile` is thorough)")
    profile = measure_profile(pair, quick_settings())
    store(profile, path)
    note(f"stored in {path}")
    return profile


def store(profile: CostProfile, path: Path) -> None:
    """Write `profile` whole or not at all, folders included."""
    from treewise.engine.hub import write_atomically

    write_atomically(path, (json.dumps(profile.to_json(), indent=1) + "\n").encode("utf-8"))
