"""The requests of a batched replay that are under way: where each stands, and its rounds so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import CoverageError
from treewise.policy.hook import Float32Array, Int8Array, Int32Array, RequestInfo, RoundContext
from treewise.policy.progress import DECAY
from treewise.training.logged import LoggedRequest
from treewise.training.logged_columns import LoggedColumns
from treewise.training.replay_result import ROUND_COLUMNS, RequestRows, UInt64Array

# What `Progress` keeps of a request. One table, since requests join and leave it whole.
_STATE = np.dtype(
    [
        *((name, np.int32) for name in ("number", "slot", "round", "position", "generated", "max_new", "draft_seen")),
        ("end", np.int32),  # position behind the text's last token
        ("text_offset", np.int64),  # of position 0 in the shard's committed tokens
        *((name, np.float32) for name in ("temperature", "last_accepted", "target_entropy", "target_margin")),
        *((name, np.float64, (2,)) for name in ("draft_share", "lookup_share", "accepted")),  # weighted sum, weight
    ]
)
_FIRST_ROUNDS = 64


@dataclass(slots=True)
class Driven:
    """One request on its way through a batch."""

    number: int
    request: LoggedRequest
    is_probe: bool = False  # it ran beside others from its first round on
    rows: RequestRows | None = field(default_factory=RequestRows)  # None: it must be replayed alone

    def info(self) -> RequestInfo:
        """What the policy is told of it."""
        request = self.request
        return RequestInfo(
            self.number, request.prompt_tokens, request.max_new_tokens, request.temperature, task=request.told_task
        )


class Flight:
    """`Progress` of many requests of one shard as columns, which advance together and come out to the same bits."""

    def __init__(self, columns: LoggedColumns, most: int) -> None:
        """Room for `most` requests."""
        self._columns = columns
        self.driven: list[Driven] = []  # [requests]
        self._state = np.zeros(0, dtype=_STATE)  # [requests]
        self._free = list(range(most))[::-1]  # slots
        self._rounds = FlightRounds(most)

    def __len__(self) -> int:
        return len(self.driven)

    def column(self, name: str) -> NDArray[Any]:
        """The column `name` of the state, [requests]."""
        return self._state[name]

    def join(self, driven: Driven) -> None:
        """Take a request in, at its first root."""
        request = driven.request
        rounds = request.shard.rounds
        own = np.zeros(1, dtype=_STATE)
        own["number"], own["slot"] = driven.number, self._free.pop()
        own["position"] = own["draft_seen"] = request.prompt_tokens - 1
        own["max_new"], own["end"], own["temperature"] = (
            request.max_new_tokens,
            request.end_position,
            request.temperature,
        )
        first = int(rounds.committed_offsets[request.row_at(request.first_position)])
        own["text_offset"] = first - request.prompt_tokens
        for name in ("last_accepted", "target_entropy", "target_margin"):
            own[name] = np.nan
        self.driven.append(driven)
        self._state = np.concatenate([self._state, own])

    def leave(self) -> list[Driven]:
        """Take out the requests whose text is committed, each with its rows."""
        state = self._state
        over = state["position"] >= state["end"] - 1
        if not over.any():
            return []
        ended = []
        for place in over.nonzero()[0].tolist():
            slot = int(state["slot"][place])
            self.driven[place].rows = self._rounds.take(slot, int(state["round"][place]))
            self._free.append(slot)
            ended.append(self.driven[place])
        self.driven = [driven for driven, is_over in zip(self.driven, over.tolist(), strict=True) if not is_over]
        self._state = state[~over]
        return ended

    def clear(self) -> list[Driven]:
        """Take out every request, in the order of their numbers, to be replayed alone."""
        all_of_them = sorted(self.driven, key=lambda driven: driven.number)
        for driven in all_of_them:
            driven.rows = None
        self._free.extend(self._state["slot"].tolist())
        self.driven, self._state = [], self._state[:0]
        return all_of_them

    def context(self, batch_size: int) -> RoundContext:
        """The context of a round over all of them."""
        state = self._state
        return RoundContext(
            request_id=state["number"].copy(),
            position=state["position"].copy(),
            generated_tokens=state["generated"].copy(),
            remaining_tokens=state["max_new"] - state["generated"],
            catch_up=state["position"] - state["draft_seen"],
            draft_agreement=_mean(state["draft_share"]),
            lookup_agreement=_mean(state["lookup_share"]),
            accepted_recent=_mean(state["accepted"]),
            last_accepted=state["last_accepted"].copy(),
            target_entropy=state["target_entropy"].copy(),
            target_margin=state["target_margin"].copy(),
            temperature=state["temperature"].copy(),
            batch_size=batch_size,
        )

    def rows(self) -> Int32Array:
        """The round of the log at each root, [requests]. Raises `CoverageError` where the log holds none."""
        state = self._state
        return self._rows(state["text_offset"] + state["position"] + 1)

    def advance(
        self,
        accepted: Int32Array,
        committed: Int32Array,
        drafted_path: Int32Array,
    ) -> None:
        """Move past one round, as `Progress.advance`, by columns [requests]. Raises as `rows` does."""
        state, rounds = self._state, self._columns.shard.rounds
        offset = state["text_offset"] + 1  # of the guess at position 0, in series by the position of the guess
        position, seen, end = state["position"].copy(), state["draft_seen"].copy(), state["end"]
        drafted = drafted_path > 0
        reached = np.where(drafted, position + drafted_path, seen)
        _add_series(state["draft_share"], rounds.draft_agrees, offset + seen, np.minimum(reached, end - 1) - seen)
        _add_series(state["lookup_share"], rounds.lookup_agrees, offset + position, committed)
        _add(state["accepted"], np.arange(len(state)), accepted)
        state["draft_seen"] = reached
        state["position"] += committed
        state["generated"] += committed
        state["last_accepted"] = accepted
        state["round"] += 1
        goes_on = (state["position"] < end - 1).nonzero()[0]  # of the others nobody asks any more
        row = self._rows(offset[goes_on] + state["position"][goes_on])
        state["target_entropy"][goes_on] = rounds.target_entropy[row]
        state["target_margin"][goes_on] = rounds.target_margin[row]

    def record(
        self, numbers: NDArray[np.integer[Any]], digests: UInt64Array, growths: NDArray[np.integer[Any]]
    ) -> None:
        """Keep a round, before `advance`: `ROUND_COLUMNS` behind the position, [columns, requests], digests [requests].

        `growths` [growths, requests] are the tokens that each pass of the draft ran for each request; 0: it had none.
        """
        state = self._state
        self._rounds.add(state["slot"], state["round"], state["position"], numbers, digests, growths)

    def _rows(self, tokens: NDArray[np.int64]) -> Int32Array:
        row = self._columns.token_round[tokens]
        if (row < 0).any():
            raise CoverageError("the log holds no round at a position")
        return row


class FlightRounds:
    """Rounds of the requests under way, by slot, until each is taken."""

    def __init__(self, slots: int) -> None:
        self._values: Int32Array = np.zeros((slots, _FIRST_ROUNDS, len(ROUND_COLUMNS)), dtype=np.int32)
        self._digests: UInt64Array = np.zeros((slots, _FIRST_ROUNDS), dtype=np.uint64)
        self._growths: Int32Array = np.zeros((slots, _FIRST_ROUNDS, 1), dtype=np.int32)

    def add(
        self,
        slot: Int32Array,
        number: Int32Array,
        position: Int32Array,
        values: NDArray[np.integer[Any]],
        digests: UInt64Array,
        growths: NDArray[np.integer[Any]],
    ) -> None:
        """Write round `number` [n] of each `slot` [n]; for the rest see `Flight.record`."""
        self._make_room(int(number.max()) + 1, len(growths))
        self._values[slot, number, 0] = number
        self._values[slot, number, 1] = position
        self._values[slot, number, 2:] = values.T
        self._digests[slot, number] = digests
        self._growths[slot, number, : len(growths)] = growths.T
        self._growths[slot, number, len(growths) :] = 0

    def take(self, slot: int, rounds: int) -> RequestRows:
        """The first `rounds` of a slot."""
        growths = self._growths[slot, :rounds]
        return RequestRows(
            [tuple(values) for values in self._values[slot, :rounds].tolist()],
            self._digests[slot, :rounds].tolist(),
            growths[growths > 0].tolist(),
        )

    def _make_room(self, rounds: int, growths: int) -> None:
        more = max(rounds - self._digests.shape[1], 0) and self._digests.shape[1]
        wider = max(growths - self._growths.shape[2], 0)
        if more:
            self._values = np.pad(self._values, ((0, 0), (0, more), (0, 0)))
            self._digests = np.pad(self._digests, ((0, 0), (0, more)))
        if more or wider:
            self._growths = np.pad(self._growths, ((0, 0), (0, more), (0, wider)))


def _mean(share: NDArray[np.float64]) -> Float32Array:
    """The means of `share` [n, (weighted sum, weight)], NaN before the first value; see `RecentShare`."""
    weighted, weight = share.T
    means = np.full(len(share), np.nan)
    np.divide(weighted, weight, out=means, where=weight > 0)
    return means.astype(np.float32)


def _add(share: NDArray[np.float64], own: NDArray[np.intp], values: NDArray[np.integer[Any]]) -> None:
    """Add one of `values` [n] to the shares of each of the requests `own` [n]; see `RecentShare`."""
    share[own, 0] = DECAY * share[own, 0] + values
    share[own, 1] = DECAY * share[own, 1] + 1.0


def _add_series(
    share: NDArray[np.float64], series: Int8Array, first: NDArray[np.int64], counts: NDArray[np.integer[Any]]
) -> None:
    """Add `counts` [requests] entries of `series`, from `first` [requests] on, in order; -1 is unknown."""
    own, step = (counts > 0).nonzero()[0], 0
    while own.size:
        values = series[first[own] + step]
        known = values >= 0
        _add(share, own[known], values[known])
        step += 1
        own = own[counts[own] > step]
