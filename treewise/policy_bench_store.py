"""Replays of the policy benchmark on disk: one line for each policy on a trace under a cost profile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treewise.bench_store import ResultStore
from treewise.code_hash import code_closure
from treewise.data.cost import CostProfile
from treewise.policy.registry import FILED, GUARDED, LEARNED, split_bundle

if TYPE_CHECKING:
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.replay_result import Float64Array, TextArray
    from treewise.training.tally import Tally

ORACLE = "oracle"  # the path oracle, in place of a spec
DEPTH = "depth oracle of "  # before a spec: the policy's depth oracle
CHUNK = 12  # policies that are replayed before their results are written
# Modules whose code decides what a replay brings; the learned policy's own does not touch the rules.
_RULES = ("treewise.training.contest", "treewise.policy.registry")
_BUNDLED = {LEARNED: "treewise.policy.learned", GUARDED: "treewise.policy.guard"}
_COUNTED = "treewise.policy.counted"  # a bundle with settings


@dataclass(frozen=True, slots=True)
class ReplayKey:
    """What tells replays apart within one file."""

    policy: str  # spec; where it names a file or folder, the hash of what that holds instead
    sources: int
    cost: str  # hash of the profile
    code: str  # hash of the code that decides


@dataclass(frozen=True, slots=True)
class StoredReplay:
    """What one policy did, by request."""

    key: ReplayKey
    reads_costs: bool
    columns: dict[str, list[float]]  # those of a tally, each [requests]

    def to_line(self) -> str:
        """One line of JSON; `from_line` reads it back."""
        key = self.key
        return json.dumps([key.policy, key.sources, key.cost, key.code, self.reads_costs, self.columns]) + "\n"

    @classmethod
    def from_line(cls, line: str) -> StoredReplay | None:
        """The replay in `line`; None where a killed run left half of one."""
        try:
            policy, sources, cost, code, reads_costs, columns = json.loads(line)
            found = {str(name): [float(value) for value in values] for name, values in columns.items()}
            return cls(ReplayKey(policy, int(sources), cost, code), bool(reads_costs), found)
        except (ValueError, TypeError, AttributeError):
            return None


class ReplayStore:
    """Replays on one trace, made where they are missing. Its file belongs to the trace's content."""

    def __init__(self, trace: LoggedTrace, path: Path) -> None:
        self.trace = trace
        self.path = path
        self._store: ResultStore[ReplayKey, StoredReplay] = ResultStore(path, StoredReplay.from_line)
        requests = trace.requests
        self.prompt_id: TextArray = np.asarray([request.prompt_id for request in requests], dtype=np.str_)
        self.task: TextArray = np.asarray([request.task for request in requests], dtype=np.str_)
        self._plain: dict[str, Float64Array] = {}  # by hash of the profile

    def tallies(
        self,
        sources: int,
        costs: Sequence[CostProfile],
        specs: Iterable[str],
        advance: Callable[[int], None] = lambda count: None,
    ) -> dict[tuple[int, str], Tally]:
        """What each policy did by (place of the profile, spec), where only `sources` exist.

        A spec may be `ORACLE`, or begin with `DEPTH`. `advance` is told how many more of them are done. Raises
        `CoverageError` as `contest`.
        """
        wanted = list(dict.fromkeys(specs))
        places = range(len(costs))
        keys = {(place, spec): key_of(spec, sources, costs[place].sha256) for place in places for spec in wanted}
        missing = [spec for spec in wanted if any(keys[place, spec] not in self._store for place in places)]
        advance(len(wanted) - len(missing))
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            made = _replay(masked(self.trace, sources), costs, chunk)
            for place in places:
                for spec in chunk:
                    key = keys[place, spec]
                    if key not in self._store:
                        tally = made[place, spec]
                        columns = {name: np.round(part, 9).tolist() for name, part in tally.columns.items()}
                        self._store.add(StoredReplay(key, tally.reads_costs, columns))
            advance(len(chunk))
        return {(place, spec): self._tally(costs[place], self._store[key]) for (place, spec), key in keys.items()}

    def _tally(self, cost: CostProfile, stored: StoredReplay) -> Tally:
        from treewise.training.replay_result import plain_ms
        from treewise.training.tally import Tally

        if cost.sha256 not in self._plain:
            times = [plain_ms(request, cost) for request in self.trace.requests]
            self._plain[cost.sha256] = np.asarray(times, dtype=np.float64)
        columns = {name: np.asarray(values, dtype=np.float64) for name, values in stored.columns.items()}
        return Tally(self.prompt_id, self.task, self._plain[cost.sha256], columns, stored.reads_costs)


def masked(trace: LoggedTrace, sources: int) -> LoggedTrace:
    """`trace` as though of its sources only `sources` existed."""
    return replace(trace, sources=trace.sources & sources)


def _replay(trace: LoggedTrace, costs: Sequence[CostProfile], specs: Sequence[str]) -> dict[tuple[int, str], Tally]:
    from treewise.training.contest import Contender, contest, oracle_tally

    found: dict[tuple[int, str], Tally] = {}
    if ORACLE in specs:
        found |= {(place, ORACLE): oracle_tally(trace, cost) for place, cost in enumerate(costs)}
    # A watched replay goes one request at a time, so only those that need it are watched.
    watched = [spec.removeprefix(DEPTH) for spec in specs if spec.startswith(DEPTH)]
    others = [spec for spec in specs if spec != ORACLE and not spec.startswith(DEPTH)]
    for names, with_depth_oracles in ((watched, True), (others, False)):
        if names:
            made = contest(trace, costs, [Contender.of(name) for name in names], None, None, with_depth_oracles)
            found |= {key: tally for key, tally in made.items() if key[1] in specs}
    return found


def key_of(spec: str, sources: int, cost_hash: str) -> ReplayKey:
    """The key of a spec."""
    if spec == ORACLE:
        return ReplayKey(ORACLE, sources, cost_hash, code_closure(_RULES))
    bare = spec.removeprefix(DEPTH)
    name, _, rest = bare.partition(":")
    content, code = bare, code_closure(_RULES)
    if name in _BUNDLED:
        folder, settings = split_bundle(rest)
        decides = _COUNTED if settings else _BUNDLED[name]
        content = f"{name} {_bundle_hash(folder)}{',' if settings else ''}{settings}"
        code = code_closure((*_RULES, decides))
    elif name in FILED:
        file, comma, settings = rest.partition(",")
        content = f"{name} {_file_hash(file)}{comma}{settings}"
    return ReplayKey(spec[: len(spec) - len(bare)] + content, sources, cost_hash, code)


@cache
def _bundle_hash(folder: str) -> str:
    from treewise.policy.bundle import Bundle

    return Bundle.load(folder).sha256


@cache
def _file_hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
