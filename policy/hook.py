"""The hook: what a driver shows a policy, and what a policy answers.

Two drivers call it, the live engine and the replay engine, in the same order with the same arrays:

    bind once, begin once per request, then per round: expand (opening level, root only), expand once per later level,
    select, observe; finish at the end of each request.

Arrays are structure of arrays. A *row* is an index into the round's forest; the roots of the batch are its first rows,
parents come before children. A signal that a source does not give is NaN. Arrays handed to a policy are read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import require
from treewise.data.recycled_blend import Recycled as Recycled
from treewise.data.suffix import Continuations as Continuations

BoolArray: TypeAlias = NDArray[np.bool_]
UInt8Array: TypeAlias = NDArray[np.uint8]
Int8Array: TypeAlias = NDArray[np.int8]
Int32Array: TypeAlias = NDArray[np.int32]
Float32Array: TypeAlias = NDArray[np.float32]

State: TypeAlias = Literal["none", "request", "session"]

LOOKUP = 1  # grow bit of the suffix lookup: free
DRAFT = 2  # grow bit of the draft model: has a price
RECYCLED = 4  # grow bit of the target's recycled guesses: free
FREE = LOOKUP | RECYCLED


@dataclass(frozen=True, slots=True)
class Source:
    """One origin of guesses."""

    name: str
    bit: int  # its bit in `grow` and `sources`
    priced: bool  # True where a growth costs model time
    signals: tuple[str, ...]  # the columns of `Nodes` that it fills


SOURCES: tuple[Source, ...] = (
    Source(
        "lookup",
        LOOKUP,
        False,
        ("lookup_match_length", "lookup_count", "lookup_share", "lookup_age", "lookup_rank"),
    ),
    Source(
        "draft",
        DRAFT,
        True,
        (
            *("draft_prob", "draft_rank", "draft_entropy", "draft_margin", "in_draft_vocab"),
            *("draft_drawn_prob", "draft_drawn_rank", "draft_gap"),
        ),
    ),
    Source(
        "recycled",
        RECYCLED,
        False,
        ("recycled_prob", "recycled_order", "recycled_weight", "recycled_rank"),
    ),
)


@dataclass(frozen=True, slots=True)
class Reach:
    """The most a policy may ever ask for; an offline comparison refuses a trace whose envelope is narrower."""

    depth: int  # deepest node it admits
    draft_width: int  # highest draft rank it admits, plus one; 0 where it never drafts


@runtime_checkable
class TimedPolicy(Protocol):
    """A policy that knows what one of its calls costs, as learned ones do; replay charges it, not the profile."""

    @property
    def call_ms(self) -> float:
        """Mean milliseconds of one `expand` or `select`, measured where the policy was made."""


@runtime_checkable
class SharingPolicy(Protocol):
    """A policy that may spend one budget over a batch, so that a request's mates change its decisions."""

    @property
    def shares_budget(self) -> bool:
        """Whether it does."""


def shares_budget(policy: object) -> bool:
    """Whether `policy` says that a decision for one request reads the others; the rule is that it does not."""
    return isinstance(policy, SharingPolicy) and policy.shares_budget


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a policy is told once, before the first request."""

    cost: CostProfile
    envelope: Envelope
    prior_table: PriorTable
    sources: int  # bits of the sources that exist here
    vocab_size: int
    row_buckets: tuple[int, ...] = ()  # verify passes are padded up to the next of these rows; empty: no padding
    ranking: str = "plain"  # of the draft's candidates above temperature 0, see `treewise.policy.draft_ranking`

    def __post_init__(self) -> None:
        buckets = self.row_buckets
        rises = all(low < high for low, high in zip((0, *buckets), buckets, strict=False))
        require(rises, "row_buckets", "ascending and above 0", buckets)

    def padded_rows(self, rows: int) -> int:
        """Rows that a verify pass of `rows` rows (root included) runs with."""
        return next((bucket for bucket in self.row_buckets if bucket >= rows), rows)


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a policy is told at the start of a request."""

    request_id: int
    prompt_tokens: int
    max_new_tokens: int
    temperature: float  # 0: greedy
    task: str = ""  # kind of task, in the caller's or a recogniser's word; empty: nobody said


@dataclass(frozen=True, slots=True)
class RoundContext:
    """The state of each request when the round opens; one entry per request, in the order of the root rows."""

    request_id: Int32Array  # [requests]
    position: Int32Array  # [requests] absolute position of the root, counted from 0
    generated_tokens: Int32Array  # [requests] completion tokens committed so far
    remaining_tokens: Int32Array  # [requests] completion tokens that may still be committed
    catch_up: Int32Array  # [requests] committed tokens before the root that the draft cache has not seen
    draft_agreement: (
        Float32Array  # [requests] recent share of committed tokens that were the draft's first; NaN at first
    )
    lookup_agreement: Float32Array  # [requests] the same of the lookup's first continuation, where it had one
    accepted_recent: Float32Array  # [requests] moving average of accepted lengths; NaN in the first round
    last_accepted: Float32Array  # [requests] accepted length of the last round; NaN in the first
    target_entropy: Float32Array  # [requests] bits, of the distribution that the root was drawn from; NaN in the first
    target_margin: Float32Array  # [requests] p1 - p2 of the same distribution
    temperature: Float32Array  # [requests]
    batch_size: int  # requests in this round


@dataclass(frozen=True, slots=True)
class Nodes:
    """Columns of forest rows; a level's candidates are a slice of them.

    `lookup_match_length` and the draft's entropy and margin describe the distribution *below the parent* that the row
    was proposed from or scored by, so a draft candidate that the lookup does not know has count 0 and share 0 beside
    the match length. On the opening level's root row the lookup columns describe the root's first continuation.
    """

    request: Int32Array  # [rows] index of the request in this round's batch (its root row)
    parent: Int32Array  # [rows] forest row of the parent; -1 for a root
    depth: Int32Array  # [rows] 0 for a root
    token: Int32Array  # [rows]
    sources: UInt8Array  # [rows] bits of the sources that proposed it
    prior: Float32Array  # [rows] the most confident source's match probability; 1 for a root
    path_prior: Float32Array  # [rows] product of priors from the root
    draft_missing: Int32Array  # [rows] ancestors (root included) without draft KV when the row was offered
    draft_prob: Float32Array  # [rows] draft softmax at temperature 1; NaN where the draft did not run on the parent
    draft_rank: Float32Array  # [rows] 0 for the draft's first choice
    draft_entropy: Float32Array  # [rows] bits, below the parent
    draft_margin: Float32Array  # [rows] p1 - p2, below the parent
    in_draft_vocab: BoolArray  # [rows] False where the draft's head cannot say this token
    # The next three know the noise that the target's token will be drawn with: NaN at temperature 0, in plain ranking,
    # and where the draft did not run on the parent.
    draft_drawn_prob: Float32Array  # [rows] softmax of the draft's warped scores plus the position's noise
    draft_drawn_rank: Float32Array  # [rows] 0 for the token that the draft itself would draw
    draft_gap: Float32Array  # [rows] the highest of those perturbed scores minus this token's, at most MAX_GAP
    lookup_match_length: Float32Array  # [rows] tokens of context (path included) matched below the parent; 0: none
    lookup_count: Float32Array  # [rows] occurrences of match + token
    lookup_share: Float32Array  # [rows] count over all continuations of the match
    lookup_age: Float32Array  # [rows] tokens since the latest of those occurrences
    lookup_rank: Float32Array  # [rows] 0 for the most frequent continuation
    # What the target gave the token behind the same last tokens before, in this request or in the frozen corpus.
    recycled_prob: Float32Array  # [rows] that probability; 0: not among those it remembers; NaN: not asked there
    recycled_order: Float32Array  # [rows] last tokens (path included) of the longest known context; 0: none
    recycled_weight: Float32Array  # [rows] occurrences behind that context
    recycled_rank: Float32Array  # [rows] 0 for the highest probability
    may_grow: UInt8Array  # [rows] source bits that the envelope allows here
    level: Int32Array  # [rows] the level that offered the row
    admitted: BoolArray  # [rows] in the tree; a descendant that is admitted later forces its ancestors in
    grown: UInt8Array  # [rows] source bits asked for below the row
    drafted: BoolArray  # [rows] the draft ran on the row (asked for, or as a missing ancestor)


@dataclass(frozen=True, slots=True)
class Level:
    """One question: which candidates enter the tree, and which sources are asked below them."""

    index: int  # 0: opening level, its only candidates are the roots
    start: int  # forest row of the first candidate; candidate i is forest row start + i
    candidates: Nodes  # [candidates]
    forest: Nodes  # [rows] every row offered so far, candidates included
    context: RoundContext


@dataclass(frozen=True, slots=True)
class Expansion:
    """The answer to a level. `grow` implies `admit`; an admitted candidate forces its ancestors in."""

    admit: BoolArray  # [candidates]
    grow: UInt8Array  # [candidates] source bits; bits outside `may_grow` have no effect


@dataclass(frozen=True, slots=True)
class ForestView:
    """The whole forest of a round, after the last growth."""

    nodes: Nodes  # [rows]
    context: RoundContext


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What a round brought. Equal under both drivers."""

    nodes: Nodes  # [rows]
    context: RoundContext
    kept: BoolArray  # [rows] verified rows; roots are True
    on_path: BoolArray  # [rows] kept rows on the committed path; roots are True
    match: Int8Array  # [rows] 1 or 0 where the parent is on the path, -1 where it is not known
    accepted_length: Int32Array  # [requests]
    committed_tokens: Int32Array  # [requests] tokens committed by the round


@runtime_checkable
class TreePolicy(Protocol):
    """Decides branch width, depth cutoff and node budget. Never reads a clock, never touches the run's randomness."""

    @property
    def state(self) -> State:
        """What it remembers, and for how long: nothing, one request, or the session."""

    @property
    def reach(self) -> Reach:
        """The most it may ever ask for."""

    def bind(self, deployment: Deployment) -> None:
        """Called once, before the first request. May raise `PolicyError` where it cannot serve this deployment."""

    def begin(self, request: RequestInfo) -> None:
        """Called once per request."""

    def expand(self, level: Level) -> Expansion:
        """Called once per level, the whole batch in one call."""

    def select(self, forest: ForestView) -> BoolArray:
        """Which rows to verify, [rows] bool; the driver closes the set upward. Roots are always verified."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Called once per round."""

    def finish(self, request_id: int, reason: str) -> None:
        """End of a request; per-request memory goes. `reason`: "eos", "length" or "error"."""


MAX_GAP = 64.0  # of perturbed scores; also of a token that the draft's top-k or top-p left out


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the draft says of some tokens once the public noise of their position is added to its warped scores."""

    probs: Float32Array  # softmax of the perturbed scores over the draft's head; NaN outside it
    ranks: Float32Array  # by perturbed score; NaN outside the head
    gaps: Float32Array  # the highest perturbed score minus the token's, at most MAX_GAP; NaN outside the head


@dataclass(frozen=True, slots=True)
class DraftGuesses:
    """What the draft says below the nodes that one growth ran, in the order they were asked for.

    Columns are in descending order of the ranking's prior. Candidates of two rankings may be twice as many as the
    envelope's width.
    """

    tokens: Int32Array  # [nodes, width] best first; -1 where there is none
    probs: Float32Array  # [nodes, width] softmax at temperature 1 over the draft's head
    entropy: Float32Array  # [nodes] bits
    margin: Float32Array  # [nodes] p1 - p2
    extra_probs: Float32Array  # [extras] probability of each extra token below its node; NaN outside the head
    extra_ranks: Float32Array  # [extras] its rank; NaN outside the head
    ranks: Float32Array | None = None  # [nodes, width] by probability; None: the column's number
    drawn: Drawn | None = None  # [nodes, width] each; None without noise
    extra_drawn: Drawn | None = None  # [extras] each; None without noise


class LookupSource(Protocol):
    """The free source, per request."""

    def continuations(self, path: Sequence[int]) -> Continuations:
        """What followed the longest earlier occurrence of context + `path`. Does not change the source."""


class RecycledSource(Protocol):
    """The target's own earlier guesses, per request: free."""

    def recycled(self, path: Sequence[int]) -> Recycled:
        """What the target ranked high behind the last tokens of context + `path`. Does not change the source."""


class DraftSource(Protocol):
    """The priced source, for the whole batch of a round."""

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Run the draft on forest `rows` (parents first) in one forward pass, catch-up tokens included.

        `extra_rows` [extras] index into `rows`; `extra_tokens` [extras] are scored below them as well.
        """

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
