"""Why each node of a replayed tree was kept or cut, round by round: what a tree explorer shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import require
from treewise.policy.contain import ContainedPolicy
from treewise.policy.forest import BELOW, BELOW_RECYCLED
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    RECYCLED,
    Deployment,
    Float32Array,
    Int8Array,
    Int32Array,
    UInt8Array,
)
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.contest import Contender
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.logged_tree import LoggedTree
from treewise.training.replay import Replayer
from treewise.training.replay_result import Float64Array

IndexArray: TypeAlias = NDArray[np.intp]

# What became of a row; `fate` columns hold places in this tuple.
FATES = ("on path", "kept", "not kept", "not admitted", "below the envelope")
ON_PATH, KEPT, NOT_KEPT, NOT_ADMITTED, OUTSIDE = range(len(FATES))


@runtime_checkable
class ScoringPolicy(Protocol):
    """A policy that tells its own survival of the rows of the latest round, as learned ones do."""

    @property
    def survival(self) -> Float64Array | None:
        """Probability that each row's whole path matches, [rows]; None before the first scoring."""


@dataclass(frozen=True, slots=True)
class ExplainedTree:
    """One round of one policy. Rows are those of its forest, then candidates that the envelope shut out."""

    position: int  # absolute, of the root
    parent: Int32Array  # [rows] -1 for the root, row 0
    token: Int32Array  # [rows] -1 where ids are withheld
    sources: UInt8Array  # [rows] bits of the sources that proposed it
    grown: UInt8Array  # [rows] source bits that the policy asked for below it
    prior: Float32Array  # [rows] as rule policies read it
    survival: Float64Array  # [rows] the policy's own where it scores, else the path prior
    draft_prob: Float32Array  # [rows] NaN where the draft did not run on the parent
    draft_rank: Float32Array  # [rows]
    lookup_match_length: Float32Array  # [rows] NaN where the lookup was not asked
    lookup_count: Float32Array  # [rows]
    recycled_prob: Float32Array  # [rows] NaN where the recycled guesses were not asked for
    recycled_order: Float32Array  # [rows] tokens
    fate: Int8Array  # [rows] place in `FATES`
    match: Int8Array  # [rows] 1 or 0 where the parent is on the path, else -1
    path: tuple[int, ...]  # rows of the accepted path, root first
    committed: tuple[int, ...]  # tokens that the round committed, -1 where ids are withheld

    @property
    def accepted_length(self) -> int:
        """Depth of the deepest accepted node."""
        return len(self.path) - 1

    @property
    def num_verified(self) -> int:
        """Verified nodes."""
        return int((self.fate <= KEPT).sum()) - 1


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """One request, as far as its rounds are explained."""

    prompt_id: str
    task: str
    prompt_tokens: int
    root_token: int  # the prompt's last token; -1 where ids are withheld
    text: tuple[int, ...]  # completion tokens up to the end of the last explained round
    trees: dict[str, tuple[ExplainedTree, ...]]  # by policy, in the order of the text


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explained rounds of some requests. The first policy's rounds say how much of each text is shown."""

    policies: tuple[str, ...]
    scoring: tuple[bool, ...]  # [policies] survival is the policy's own
    profile: str  # name of the cost profile that the policies were told
    min_path_prior: float  # of the envelope
    requests: tuple[ExplainedRequest, ...]


def explain(
    trace: LoggedTrace,
    cost: CostProfile,
    policies: Sequence[Contender],
    prompts: int = 6,
    rounds: int = 12,
    envelope: Envelope | None = None,
) -> Explanation:
    """Replay `policies` on the first `prompts` requests of `trace` and explain the first `rounds` rounds of each.

    The window is that of the first policy; every other policy shows its own rounds whose roots lie in it. All rounds
    are those of exact replays, so two policies stand at the same root only where both committed up to it.
    """
    require(prompts >= 1, "prompts", ">= 1", prompts)
    require(rounds >= 1, "rounds", ">= 1", rounds)
    require(len(policies) > 0, "policies", "at least one", len(policies))
    deployment = trace.deployment(cost, envelope)
    chosen = trace.requests[:prompts]
    found = {contender.name: _Explainer(contender, deployment) for contender in policies}
    scoring = tuple(explainer.is_scoring for explainer in found.values())
    explained = []
    for request in chosen:
        trees: dict[str, tuple[ExplainedTree, ...]] = {}
        end = -1
        for name, explainer in found.items():
            own = explainer.run(request, rounds if end < 0 else None, end)
            trees[name] = own
            if end < 0:
                end = own[-1].position + len(own[-1].committed)
        request.release()
        shown = end - request.first_position
        root = request.tree(request.first_position).root_token if request.tokens_included else -1
        explained.append(
            ExplainedRequest(
                request.prompt_id,
                request.task,
                request.prompt_tokens,
                root,
                tuple(request.text[:shown].tolist()),
                trees,
            )
        )
        request.release()
    names = tuple(found)
    return Explanation(names, scoring, cost.name, deployment.envelope.min_path_prior, tuple(explained))


def survival_of(policy: ContainedPolicy, tree: RoundTree, is_suspended: bool = False) -> Float64Array:
    """The policy's own survival of the rows of `tree` where it has one, else their path priors, [rows].

    Its fallback knows none either; `is_suspended` says that the log had the fallback draw the tree.
    """
    own = policy.policy
    if isinstance(own, ScoringPolicy) and not (is_suspended or policy.round_suspended or policy.round_fallback):
        survival = own.survival
        if survival is not None:
            return survival.copy()
    return np.asarray(tree.forest.column("path_prior"), dtype=np.float64)


class _Explainer:
    """Replays one policy and keeps its first rounds of each request."""

    def __init__(self, contender: Contender, deployment: Deployment) -> None:
        self._policy = ContainedPolicy(contender.make(), time_limit_ms=math.inf)
        self._deployment = deployment
        self._replayer = Replayer(self._policy, deployment, self._watch)
        self._trees: list[ExplainedTree] = []
        self._rounds: int | None = None
        self._end = -1

    @property
    def is_scoring(self) -> bool:
        """Whether survival is the policy's own."""
        return isinstance(self._policy.policy, ScoringPolicy)

    def run(self, request: LoggedRequest, rounds: int | None, end: int) -> tuple[ExplainedTree, ...]:
        """The first `rounds` rounds, or, for None, those whose roots lie before position `end`."""
        self._trees, self._rounds, self._end = [], rounds, end
        self._replayer.run(request)
        return tuple(self._trees)

    def _watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        wanted = position < self._end if self._rounds is None else len(self._trees) < self._rounds
        if wanted:
            survival = survival_of(self._policy, tree, request.is_suspended(position))
            self._trees.append(explained_tree(request, position, tree, walk, survival, self._deployment))


def explained_tree(
    request: LoggedRequest,
    position: int,
    tree: RoundTree,
    walk: Walk,
    survival: Float64Array,
    deployment: Deployment,
) -> ExplainedTree:
    """The round at `position` as a `Replayer` watched it; `survival` [rows] is that of the forest's rows."""
    column = tree.forest.column
    fate = np.full(tree.forest.num_rows, NOT_ADMITTED, dtype=np.int8)
    fate[column("admitted")] = NOT_KEPT
    fate[tree.kept] = KEPT
    fate[walk.on_path] = ON_PATH
    out = _outside(request.tree(position), tree, deployment)
    above = out.parent
    lost = len(above)
    nothing = np.full(lost, np.nan, dtype=np.float32)
    withheld = not request.tokens_included
    token = np.concatenate([column("token"), out.token]).astype(np.int32)
    truth = walk.tokens[0]
    depth = np.concatenate([column("depth"), column("depth")[above] + 1])
    on_path = walk.on_path[above]
    match = np.full(lost, -1, dtype=np.int8)
    for place in np.flatnonzero(on_path).tolist():
        at = int(depth[tree.forest.num_rows + place]) - 1
        if at < len(truth):
            match[place] = int(out.token[place] == truth[at])
    return ExplainedTree(
        position=position,
        parent=np.concatenate([column("parent"), above]).astype(np.int32),
        token=np.full_like(token, -1) if withheld else token,
        sources=np.concatenate([column("sources"), out.sources]).astype(np.uint8),
        grown=np.concatenate([column("grown"), np.zeros(lost, dtype=np.uint8)]),
        prior=np.concatenate([column("prior"), out.prior]).astype(np.float32),
        survival=np.concatenate([survival, column("path_prior")[above] * out.prior]).astype(np.float64),
        draft_prob=np.concatenate([column("draft_prob"), out.draft_prob]).astype(np.float32),
        draft_rank=np.concatenate([column("draft_rank"), out.draft_rank]).astype(np.float32),
        lookup_match_length=np.concatenate([column("lookup_match_length"), nothing]),
        lookup_count=np.concatenate([column("lookup_count"), nothing]),
        recycled_prob=np.concatenate([column("recycled_prob"), nothing]),
        recycled_order=np.concatenate([column("recycled_order"), nothing]),
        fate=np.concatenate([fate, np.full(lost, OUTSIDE, dtype=np.int8)]),
        match=np.concatenate([walk.match, match]),
        path=walk.path_rows[0],
        committed=(-1,) * len(truth) if withheld else truth,
    )


@dataclass(frozen=True, slots=True)
class _Outside:
    """Candidates that a source had where it was asked, and that the envelope kept out of the forest."""

    parent: IndexArray  # [candidates] forest row
    token: Int32Array  # [candidates]
    sources: UInt8Array  # [candidates]
    prior: Float32Array  # [candidates]
    draft_prob: Float32Array  # [candidates]
    draft_rank: Float32Array  # [candidates]


def _outside(logged: LoggedTree, tree: RoundTree, deployment: Deployment) -> _Outside:
    """Read off the log, which is grown a little beyond the envelope; deeper cuts were never logged.

    The envelope was held when a source was asked: a path prior that rose since may lie above its bound.
    """
    column = tree.forest.column
    parent, token, drafted = column("parent"), column("token"), column("drafted")
    envelope = deployment.envelope
    looked_up, remembered = (~np.isnan(column(name)) for name in (BELOW, BELOW_RECYCLED))
    node_of = [0]
    held: list[set[int]] = [set() for _ in range(tree.forest.num_rows)]
    for row in range(1, tree.forest.num_rows):
        above, own = int(parent[row]), int(token[row])
        held[above].add(own)
        node_of.append(logged.children[node_of[above]][own])
    found: list[tuple[int, int, int, float, float, float]] = []
    for row, node in enumerate(node_of):
        drafts: dict[int, tuple[float, float]] = {}  # token -> probability and rank
        priors: dict[int, list[tuple[int, float]]] = {}  # token -> the sources that had it, each with its prior
        if drafted[row]:
            for at in logged.proposals(node, deployment.ranking, envelope.draft_width):
                prob, rank, *_ = logged.scores(at)
                drafts[logged.token(at)] = (prob, rank)
                priors.setdefault(logged.token(at), []).append((DRAFT, prob))
        if looked_up[row]:
            known = logged.continuations(node)
            for guess, share in zip(known.tokens[: envelope.lookup_width], known.shares, strict=False):
                prior = deployment.prior_table.prior(known.match_length, share)
                priors.setdefault(guess, []).append((LOOKUP, prior))
        if remembered[row]:
            memory = logged.recycled(node)
            for guess, prob in zip(memory.tokens[: envelope.recycled_width], memory.probs, strict=False):
                priors.setdefault(guess, []).append((RECYCLED, prob))
        for guess, said in priors.items():
            if guess >= 0 and guess not in held[row]:
                bits = sum(bit for bit, _ in said)
                best = max(prior for _, prior in said)
                found.append((row, guess, bits, best, *drafts.get(guess, (math.nan, math.nan))))
    columns = list(zip(*found, strict=True)) or [()] * 6
    kinds = (np.intp, np.int32, np.uint8, np.float32, np.float32, np.float32)
    arrays = [np.asarray(values, dtype=kind) for values, kind in zip(columns, kinds, strict=True)]
    return _Outside(*arrays)
