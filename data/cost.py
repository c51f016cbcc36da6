"""Cost profiles: measured milliseconds of verification, draft growth and policy calls."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import CostProfileError, SchemaVersionError, require
from treewise.data.example_tables import A100_70B, H800_67B, ExampleTable
from treewise.data.stored_json import check_names, read_object
from treewise.data.whole_file import write_whole

SCHEMA_VERSION = 1
MAX_COUNT = 1 << 40  # rows, or tokens of cache
MAX_MS = 1e15  # of one part, so that sums and products of parts stay finite
CALL_GROWTH = 0.15  # of one request's policy call, that each further request adds to a call for several
_EXACT_COUNTS = 64  # of one request, up to which shared passes are priced one by one
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

    def at_each(self, counts: ArrayLike, capacities: ArrayLike) -> Float64Array:
        """`at`, each of `counts` [n] at its own one of `capacities` [n]. Returns [n] float64."""
        known, places = np.asarray(self.counts, dtype=np.float64), np.asarray(self.capacities, dtype=np.float64)
        table = np.asarray(self.ms, dtype=np.float64)
        asked = np.asarray(counts, dtype=np.float64)
        place = np.clip(np.asarray(capacities, dtype=np.float64), places[0], places[-1])
        above = places.searchsorted(place)
        below = np.maximum(above - 1, 0)
        width = np.where(above > below, places[above] - places[below], 1.0)
        weight = np.where(places[above] == place, 1.0, (place - places[below]) / width)

        def curve(column: NDArray[np.intp]) -> Float64Array:
            upper = table[above, column]
            return np.where(weight == 1.0, upper, (1.0 - weight) * table[below, column] + weight * upper)

        left = np.clip(known.searchsorted(asked, "right") - 1, 0, max(len(known) - 2, 0))
        low = curve(left)
        if len(known) > 1:
            slope = (curve(left + 1) - low) / (known[left + 1] - known[left])
            value = slope * (asked - known[left]) + low
            last = curve(np.full_like(left, len(known) - 1))
            value = np.where(asked >= known[-1], last + (asked - known[-1]) * np.maximum(slope, 0.0), value)
            value = np.where(asked <= known[0], curve(np.zeros_like(left)), value)
        else:
            value = low
        return np.where(asked <= 0, 0.0, value)

    def shared_by(self, requests: int) -> CostGrid:
        """Each one's share of passes of `requests` times the count: exact up to `_EXACT_COUNTS` and around kinks."""
        last = self.counts[-1] + requests  # beyond it the last slope goes on
        kinks = {place for count in (*self.counts, last) for place in (count // requests, -(-count // requests))}
        counts = sorted({*range(1, _EXACT_COUNTS + 1), *kinks} - {0})
        ms = [(self.at([count * requests for count in counts], at) / requests).tolist() for at in self.capacities]
        return CostGrid(tuple(counts), self.capacities, tuple(tuple(row) for row in ms))

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
    level_ms x levels after the opening one`; a round of plain decoding costs `round_ms + verify(1)`. Where several
    requests share every pass and every call, these are one request's share (`shared_by`).
    """

    name: str
    verify: CostGrid  # rows of one verify pass, root included
    draft: CostGrid  # tokens of one draft growth, catch-up included
    policy_ms: float = 0.0  # one call of the policy's `expand` or `select`
    round_ms: float = 0.0  # per round, whatever the tree: sampling, commit, cache compaction
    level_ms: float = 0.0  # per level after the opening one: asking the free source, laying the candidates out
    requests: int = 1  # that share every pass and call; milliseconds are the share of one of them
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
        require(isinstance(self.requests, int) and self.requests >= 1, "requests", "a count >= 1", self.requests)
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

    def shared_by(self, requests: int) -> CostProfile:
        """What one of `requests` requests pays where all are in one batch and do alike; itself for one.

        A pass of a batch runs `requests` times the rows, and costs what the profile says of so many; a call of the
        policy serves the batch (`share_of_call`). What is left of a round and of a level is not shared. Raises
        `ParameterError` where `requests` is below 1, or this is a share already.
        """
        require(requests >= 1, "requests", ">= 1", requests)
        if requests == 1:
            return self
        require(self.requests == 1, "requests", "1 before passes are shared", self.requests)
        return replace(
            self,
            name=f"{self.name}, batch {requests}",
            verify=self.verify.shared_by(requests),
            draft=self.draft.shared_by(requests),
            policy_ms=share_of_call(self.policy_ms, requests),
            requests=requests,
            origin=f"{self.origin}; shared by {requests} requests",
        )

    @property
    def sha256(self) -> str:
        """Hash of everything in the profile, in hex."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back. `requests` is named where it is not 1."""
        value = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        if self.requests == 1:
            del value["requests"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CostProfile:
        """The profile that `to_json` wrote.

        Raises `SchemaVersionError` on another version, `CostProfileError` on missing or unknown names.
        """
        found = value.get("schema_version")
        if found != SCHEMA_VERSION:
            raise SchemaVersionError("cost profile", found, SCHEMA_VERSION, "measure it again with `treewise profile`")
        value = {"requests": 1, **value}
        settings = {name: part for name, part in value.items() if name != "schema_version"}
        check_names(settings, cls.__dataclass_fields__, "cost profile", CostProfileError)
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
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")

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
        return cls.from_json(read_object(path, "cost profile", CostProfileError))


def share_of_call(call_ms: float, requests: int) -> float:
    """One request's share of a policy call for `requests` of them, where a call for one takes `call_ms`.

    Each further request adds `CALL_GROWTH` of that: measured, a call for 32 requests takes 2.2 (top-N) to 5.6 times
    (learned) one request's, that of a rule which reads prices 3.6 to 5.1 times.
    """
    return call_ms * (1.0 + CALL_GROWTH * (requests - 1)) / requests


def _example(table: ExampleTable, name: str, growth_ms: float, policy_ms: float, origin: str) -> CostProfile:
    curve = ((1, table.plain_ms), *(point for point in table.curve if point[0] > 1))
    return CostProfile(
        name=name,
        verify=CostGrid(tuple(rows for rows, _ in curve), (0,), (tuple(ms for _, ms in curve),)),
        draft=CostGrid((1, 64), (0,), ((growth_ms, growth_ms),)),
        policy_ms=policy_ms,
        device=table.device,
        dtype="unknown",
        attention="unknown",
        pair=table.pair,
        verified=False,
        origin=origin,
    )


_UNVERIFIED = "an example curve, unverified: nobody here measured it"
_DERIVED = (
    "an example curve of two points, unverified: nobody here measured it; its pass of one row lies on the line through "
    "them, beyond them the line goes on, and its draft pass is what the example's chains leave beside verification "
    "(`treewise tables`)"
)

BUILTIN: dict[str, CostProfile] = {
    "example-a100-70b": _example(A100_70B, A100_70B.name, 1.0, 0.1, _UNVERIFIED),
    "example-a100-70b-3ms": _example(A100_70B, f"{A100_70B.name}-3ms", 3.0, 0.1, _UNVERIFIED),
    # The policy's calls are in what the chains leave.
    "example-h800-67b": _example(H800_67B, H800_67B.name, round(H800_67B.pass_ms, 2), 0.0, _DERIVED),
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
