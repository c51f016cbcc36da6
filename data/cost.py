"""Cost profiles: measured milliseconds of verification, draft growth and policy calls."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import CostProfileError, SchemaVersionError, require

SCHEMA_VERSION = 1
MAX_COUNT = 1 << 40  # rows, or tokens of cache
MAX_MS = 1e15  # of one part, so that sums and products of parts stay finite
Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CostGrid:
    """Milliseconds by count (rows or tokens) and cache capacity; linear between measured points.

    Beyond the last count the last slope goes on; before the first count, and beyond the first and last capacity, the
    nearest value holds.
    """

    counts: tuple[int, ...]  # ascending, e.g. verify rows
    capacities: tuple[int, ...]  # ascending, tokens of cache
    ms: tuple[tuple[float, ...], ...]  # [capacities][counts]

    def __post_init__(self) -> None:
        require(len(self.counts) >= 1, "counts", "at least one count", self.counts)
        require(
            all(b > a for a, b in zip(self.counts, self.counts[1:], strict=False)), "counts", "ascending", self.counts
        )
        require(self.counts[0] >= 0, "counts", ">= 0", self.counts)
        require(len(self.capacities) >= 1, "capacities", "at least one capacity", self.capacities)
        ascending = all(b > a for a, b in zip(self.capacities, self.capacities[1:], strict=False))
        require(ascending, "capacities", "ascending", self.capacities)
        shape_fits = len(self.ms) == len(self.capacities) and all(len(row) == len(self.counts) for row in self.ms)
        require(shape_fits, "ms", f"{len(self.capacities)} x {len(self.counts)} numbers", self.ms)
        finite = all(0.0 <= value <= MAX_MS for row in self.ms for value in row)
        require(finite, "ms", "finite and not negative", self.ms)
        for name in ("counts", "capacities"):
            require(getattr(self, name)[-1] <= MAX_COUNT, name, f"at most {MAX_COUNT}", getattr(self, name)[-1])

    def at(self, counts: ArrayLike, capacity: int = 0) -> Float64Array:
        """Milliseconds for `counts` [n] at a cache of `capacity` tokens; 0 for a count of 0. Returns [n] float64."""
        asked = np.asarray(counts, dtype=np.float64)
        known = np.asarray(self.counts, dtype=np.float64)
        curve = self.curve(capacity)
        value = np.interp(asked, known, curve)
        if len(known) > 1:
            slope = (curve[-1] - curve[-2]) / (known[-1] - known[-2])
            value = np.where(asked > known[-1], curve[-1] + (asked - known[-1]) * max(slope, 0.0), value)
        return np.where(asked <= 0, 0.0, value)

    def curve(self, capacity: int = 0) -> Float64Array:
        """Milliseconds at the measured counts, interpolated to `capacity` tokens of cache. Returns [counts]."""
        known = self.capacities
        place = float(min(max(capacity, known[0]), known[-1]))
        above = bisect_left(known, place)
        upper = np.asarray(self.ms[above], dtype=np.float64)
        if known[above] == place:
            return upper
        weight = (place - known[above - 1]) / (known[above] - known[above - 1])
        return (1.0 - weight) * np.asarray(self.ms[above - 1], dtype=np.float64) + weight * upper


@dataclass(frozen=True, slots=True)
class CostProfile:
    """What one deployment costs, in milliseconds.

    A modelled round costs `round_ms + verify(1 + verified nodes) + sum of draft growths + policy_ms x policy calls +
    level_ms x levels after the opening one`; a round of plain decoding costs `round_ms + verify(1)`.
    """

    name: str
    verify: CostGrid  # rows of one verify pass, root included
    draft: CostGrid  # tokens of one draft growth, catch-up included
    policy_ms: float = 0.0  # one call of the policy's `expand` or `select`
    round_ms: float = 0.0  # per round, whatever the tree: sampling, commit, cache compaction
    level_ms: float = 0.0  # per level after the opening one: asking the free source, laying the candidates out
    device: str = "unknown"
    dtype: str = "unknown"
    attention: str = "unknown"
    pair: str = "unknown"
    verified: bool = True  # False: figures that nobody here measured
    origin: str = ""  # where the milliseconds come from, in words
    versions: dict[str, str] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)  # relative interquartile range by measured part

    def __post_init__(self) -> None:
        for name in ("name", "device", "dtype", "attention", "pair", "origin"):
            require(isinstance(getattr(self, name), str), name, "a string", getattr(self, name))
        require(isinstance(self.verified, bool), "verified", "true or false", self.verified)
        for name, kind in (("versions", str), ("spread", int | float)):
            value = getattr(self, name)
            sound = isinstance(value, dict) and all(isinstance(part, kind) for part in value.values())
            require(sound, name, "a mapping of strings" if kind is str else "a mapping of numbers", value)
        for name in ("policy_ms", "round_ms", "level_ms"):
            value = getattr(self, name)
            require(isinstance(value, int | float) and 0.0 <= value <= MAX_MS, name, "finite and >= 0", value)

    def verify_ms(self, rows: ArrayLike, capacity: int = 0) -> Float64Array:
        """Milliseconds of verify passes of `rows` [n] rows (root included)."""
        return self.verify.at(rows, capacity)

    def draft_ms(self, tokens: ArrayLike, capacity: int = 0) -> Float64Array:
        """Milliseconds of draft growths of `tokens` [n] tokens, catch-up included."""
        return self.draft.at(tokens, capacity)

    def plain_ms(self, capacity: int = 0) -> float:
        """Milliseconds of one round of plain decoding."""
        return self.round_ms + float(self.verify_ms(1, capacity))

    @property
    def sha256(self) -> str:
        """Hash of everything in the profile, in hex."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CostProfile:
        """The profile that `to_json` wrote.

        Raises `SchemaVersionError` on another version, `CostProfileError` on missing or unknown names.
        """
        found = value.get("schema_version")
        if found != SCHEMA_VERSION:
            raise SchemaVersionError("cost profile", found, SCHEMA_VERSION, "measure it again with `treewise profile`")
        names = set(cls.__dataclass_fields__)
        given = set(value) - {"schema_version"}
        if given != names:
            raise CostProfileError(
                f"cost profile must hold the names {sorted(names)}, "
                f"got {sorted(names - given)} missing and {sorted(given - names)} unknown"
            )
        settings = {name: value[name] for name in names}
        try:
            for grid in ("verify", "draft"):
                part = settings[grid]
                settings[grid] = CostGrid(
                    tuple(int(c) for c in part["counts"]),
                    tuple(int(c) for c in part["capacities"]),
                    tuple(tuple(float(v) for v in row) for row in part["ms"]),
                )
            return cls(**settings)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CostProfileError(f"cost profile must hold two grids of numbers and its prices: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, source: str | Path) -> CostProfile:
        """A profile by built-in name or from a JSON file. Raises `CostProfileError` where there is neither."""
        if str(source) in BUILTIN:
            return BUILTIN[str(source)]
        path = Path(source)
        if path.suffix == ".json" and not path.exists():
            raise CostProfileError(
                f"cost must be a file that exists, got {str(path)!r}: make it with `treewise profile -o`"
            )
        if not path.is_file():
            raise CostProfileError(
                f"cost must be a profile file or one of {', '.join(sorted(BUILTIN))}, got {str(source)!r}"
            )
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or a number of too many digits
            raise CostProfileError(f"{path} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise CostProfileError(f"{path} must hold one JSON object, got {type(value).__name__}")
        return cls.from_json(value)


def _example_a100_70b(name: str, growth_ms: float) -> CostProfile:
    return CostProfile(
        name=name,
        verify=CostGrid((1, 5, 36, 68, 120), (0,), ((24.5, 26.2, 28.1, 38.6, 58.4),)),
        draft=CostGrid((1, 64), (0,), ((growth_ms, growth_ms),)),
        policy_ms=0.1,
        device="A100, 70B target (example)",
        dtype="unknown",
        attention="unknown",
        pair="a 70B target with a small draft (example)",
        verified=False,
        origin="an example curve, unverified: nobody here measured it",
    )


BUILTIN: dict[str, CostProfile] = {
    "example-a100-70b": _example_a100_70b("example-a100-70b", 1.0),
    "example-a100-70b-3ms": _example_a100_70b("example-a100-70b-3ms", 3.0),
}


def check_device(profile: CostProfile, device: str, pair: str) -> str | None:
    """Why `profile` may not hold for `pair` on `device`, naming both; None where it was measured for them."""
    differences = []
    if profile.device != device:
        differences.append(f"measured on {profile.device}, this is {device}")
    if profile.pair != pair:
        differences.append(f"measured with pair {profile.pair}, this is {pair}")
    if not differences:
        return None
    return f"cost profile {profile.name} is for another deployment: {'; '.join(differences)}"
