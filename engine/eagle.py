"""A policy inside EAGLE's reference code, in place of the scoring and pruning step of `topK_genrate`.

    trees = EagleTrees("learned:FOLDER", cost, EagleSettings(num_nodes=59, top_k=10, depth=7, vocab_size=32000))
    trees.begin(prompt_tokens, max_new_tokens)                                            # once per request
    if not trees.keep_drafting(scores_list, ss_token, parents_list, sample_token): break  # top of the depth loop
    return trees.prune(scores_list, ss_token, parents_list, sample_token, sort_leaves)    # in place of what follows it
    trees.accept(retrieve_indices[best_candidate, : accept_length + 1], token)            # after verification

EAGLE keeps its draft model, its beam of constant width, verification and caches. The policy decides how many levels are
drafted and which nodes are verified. Numpy alone is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError, require
from treewise.engine.eagle_forest import EagleForest
from treewise.engine.eagle_tree import EagleCandidates, EagleDraft, Int64Array, as_array, best, like, token_of
from treewise.policy.contain import ContainedPolicy
from treewise.policy.controller_settings import LARGEST_POSITION, checked_temperature, is_number, is_whole
from treewise.policy.forest import close_upward
from treewise.policy.hook import DRAFT, Deployment, ForestView, Level, RequestInfo, RoundContext, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.outcome import build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundTree
from treewise.policy.topn import TopNPolicy, TopNSettings

TINY_PRIOR = 1e-30  # EAGLE bounds its tree by the beam, not by probability


@dataclass(frozen=True, slots=True)
class EagleSettings:
    """The sizes of EAGLE's tree, by the names of its draft model's attributes."""

    num_nodes: int = 59  # `total_tokens` of the draft model: most nodes that its buffers hold, root left out
    top_k: int = 10  # beam width, and candidates of one node
    depth: int = 7  # draft passes behind the first
    vocab_size: int = 32000  # of the target
    time_limit_ms: float = 50.0  # of one policy call; three slower ones in a row suspend it for the request

    def __post_init__(self) -> None:
        for name in ("num_nodes", "top_k", "depth", "vocab_size"):
            require(is_whole(getattr(self, name)), name, "a whole number", getattr(self, name))
        require(is_number(self.time_limit_ms), "time_limit_ms", "a number", self.time_limit_ms)
        require(1 <= self.num_nodes <= 1024, "num_nodes", "between 1 and 1024", self.num_nodes)
        require(1 <= self.top_k <= 64, "top_k", "between 1 and 64", self.top_k)
        require(0 <= self.depth < 64, "depth", "between 0 and 63", self.depth)
        require(self.vocab_size >= 1, "vocab_size", ">= 1", self.vocab_size)


@dataclass(slots=True)
class EagleCounters:
    """Running totals over every request; they only grow."""

    rounds: int = 0
    verified_nodes: int = 0
    passes: int = 0  # of the draft, the first of every round included
    accepted_tokens: int = 0  # of the rounds that `accept` was told of
    accepted_rounds: int = 0
    fallbacks: int = 0  # rounds that EAGLE's own rule finished after a failure of the policy
    suspensions: int = 0  # rounds that never reached the policy
    trimmed: int = 0  # rounds whose policy kept more than `num_nodes`


class EagleTrees:
    """Decides one request's trees at a time, as EAGLE's batch of one does.

    A policy that raises, answers nonsense or dawdles leaves its round to EAGLE's own rule (all levels, the best
    `num_nodes` paths), which is counted. What it remembers between rounds it learns by `accept`.

    Raises:
        PolicySpecError, CostProfileError: an unknown spec or profile.
        BundleError, PolicyError: a policy that cannot serve this deployment.
    """

    def __init__(
        self, policy: TreePolicy | str, cost: CostProfile | str | Path, settings: EagleSettings | None = None
    ) -> None:
        self.settings = settings or EagleSettings()
        size = self.settings
        inner = parse_policy(policy) if isinstance(policy, str) else policy
        own = TopNPolicy(TopNSettings(nodes=size.num_nodes, depth=size.depth + 1, beam=size.top_k, sources="draft"))
        self.policy = ContainedPolicy(inner, own, size.time_limit_ms)
        envelope, prior_table = Envelope(size.depth + 1, size.top_k, 0, TINY_PRIOR, TINY_PRIOR), PriorTable()
        if isinstance(inner, LearnedPolicy):  # what it never learned from is not offered
            learned, prior_table = inner.bundle.envelope, inner.bundle.prior_table
            bounds = (min(size.depth + 1, learned.max_depth), min(size.top_k, learned.draft_width), 0)
            envelope = Envelope(*bounds, learned.min_path_prior, learned.min_grow_prior)
        self.deployment = Deployment(
            cost=cost if isinstance(cost, CostProfile) else CostProfile.load(cost),
            envelope=envelope,
            prior_table=prior_table,
            sources=DRAFT,
            vocab_size=size.vocab_size,
        )
        self.policy.bind(self.deployment)
        self.counters = EagleCounters()
        self._forest = EagleForest(self.deployment.envelope)
        self._progress: Progress | None = None
        self._context: RoundContext | None = None
        self._seen = 0  # entries of the lists that the policy was shown; 0: no round is open
        self._wants_more = False
        self._kept: RoundTree | None = None  # the tree under verification
        self._num_requests = 0

    def begin(self, prompt_tokens: int, max_new_tokens: int, temperature: float = 0.0) -> None:
        """Start a request, ending the one before if it was left open.

        Args:
            prompt_tokens: length of the text at the first tree, the token that the tree hangs below included.
            max_new_tokens: how many may follow it; more than int32 positions hold stands for that many.
            temperature: 0 is greedy.

        Raises:
            ParameterError: an argument out of its rule.
        """
        fits = is_whole(prompt_tokens) and 1 <= prompt_tokens < LARGEST_POSITION
        require(fits, "prompt_tokens", "a whole number, >= 1 and below 2**31 - 1", prompt_tokens)
        fits = is_whole(max_new_tokens) and max_new_tokens >= 1
        require(fits, "max_new_tokens", "a whole number, >= 1", max_new_tokens)
        max_new_tokens = min(int(max_new_tokens), LARGEST_POSITION - prompt_tokens)
        temperature = checked_temperature(temperature)
        self.finish("error")
        self._progress = Progress(self._num_requests, prompt_tokens, max_new_tokens, temperature)
        self._num_requests += 1
        self.policy.begin(RequestInfo(self._progress.request_id, prompt_tokens, max_new_tokens, temperature))

    def finish(self, reason: str = "eos") -> None:
        """End the open request: "eos", "length" or "error". Nothing happens where none is open."""
        if self._progress is not None:
            self.policy.finish(self._progress.request_id, reason)
        self._progress, self._kept, self._seen = None, None, 0

    def keep_drafting(
        self, scores_list: Sequence[Any], ss_token: Sequence[Any], parents_list: Sequence[Any], sample_token: Any
    ) -> bool:
        """Whether the next pass of the depth loop is wanted, given what the lists hold so far.

        Raises:
            ParameterError: `begin` was not called, or shapes that do not fit.
        """
        if len(scores_list) == 1:
            self._seen = 0  # a round that was abandoned halfway leaves nothing behind
        candidates = EagleCandidates.read(scores_list, ss_token, parents_list)
        self._show(candidates, sample_token)
        return len(scores_list) <= self.settings.depth and (self._failed or self._wants_more)

    def prune(
        self,
        scores_list: Sequence[Any],
        ss_token: Sequence[Any],
        parents_list: Sequence[Any],
        sample_token: Any,
        sort_leaves: bool = False,
    ) -> EagleDraft:
        """The four outputs of `topK_genrate`, for the nodes that the policy keeps; where it keeps none, the best one.

        Args:
            scores_list, ss_token, parents_list: see `treewise.engine.eagle_tree`; tensors or arrays.
            sample_token: [1] the last committed token.
            sort_leaves: EAGLE's `logits_processor is not None`.

        Raises:
            ParameterError: `begin` was not called, or shapes that do not fit.
        """
        candidates = EagleCandidates.read(scores_list, ss_token, parents_list)
        self._show(candidates, sample_token)
        chosen = self._choose(candidates)
        self.counters.rounds += 1
        self.counters.passes += len(scores_list)
        self.counters.verified_nodes += len(chosen)
        self.counters.fallbacks += self.policy.round_fallback
        self.counters.suspensions += self.policy.round_suspended
        self._seen = 0
        draft = candidates.draft(chosen, token_of("sample_token", sample_token), sort_leaves=sort_leaves)
        return like(draft, scores_list[0])

    def accept(self, path: Any, next_token: Any) -> None:
        """Tell the policy what the last tree brought.

        Args:
            path: [accepted length + 1] rows of the tree on the accepted path, the root (0) first.
            next_token: the token that the target says behind it; -1: the text is over.

        Raises:
            ParameterError: no tree is under verification, a path that is not in it, or no token.
        """
        tree, context, progress = self._kept, self._context, self._progress
        if tree is None or context is None or progress is None:
            raise ParameterError("accept must follow prune, once, got none before it")
        kept = np.flatnonzero(tree.kept)
        places = as_array(path).reshape(-1)
        parent, token = tree.forest.column("parent"), tree.forest.column("token")
        inside = (
            len(places) > 0
            and places.dtype.kind in "iu"
            and places[0] == 0
            and bool(((places >= 0) & (places < len(kept))).all())
        )
        rows = kept[places] if inside else kept[:0]
        if not inside or (parent[rows[1:]] != rows[:-1]).any():
            raise ParameterError(f"path must be rows of the tree from the root down, got {places.tolist()}")
        end = token_of("next_token", next_token, lowest=-1)
        said = dict(zip(rows.tolist(), [*token[rows[1:]].tolist(), end], strict=True))
        result = walk(tree, 1, lambda request, row: said.get(row, -1))
        if not self._failed:  # else the tree is not the one that the policy was shown
            self.policy.observe(build_outcome(tree, context, result))
        firsts = self._forest.first_guesses(rows.tolist())
        agrees = [int(firsts[row] == said[row]) for row in rows.tolist() if row in firsts and said[row] >= 0]
        # The draft's cache is rebuilt on the committed text: what it drafted in the tree is gone, the root stays.
        accepted = len(rows) - 1
        progress.advance(accepted, len(result.tokens[0]), 1, agrees, (), float("nan"), float("nan"))
        self.counters.accepted_tokens += accepted
        self.counters.accepted_rounds += 1
        self._kept = None

    @property
    def _failed(self) -> bool:
        return self.policy.round_fallback or self.policy.round_suspended

    def _show(self, candidates: EagleCandidates, sample_token: Any) -> None:
        """Ask the policy about every entry that it has not seen and that it still wants."""
        if self._seen == 0:
            self._open(token_of("sample_token", sample_token))
        for entry in range(self._seen, len(candidates.ends)):
            if self._failed or not self._wants_more:
                break
            start = self._forest.offer(candidates, entry)
            self._seen = entry + 1
            self._wants_more = False
            if start < self._forest.rows.num_rows:
                self._ask(entry + 1, start)

    def _open(self, root_token: int) -> None:
        if self._progress is None:
            raise ParameterError("begin must be called before the first tree, got none")
        context = build_context([self._progress])
        # EAGLE's loop may run past its limit by a tree: one more token is always possible.
        self._context = replace(context, remaining_tokens=np.maximum(context.remaining_tokens, 1))
        self._forest.open(root_token)
        self._kept = None
        self._ask(0, 0)
        # EAGLE has run its first pass already, whatever the policy says of it: the level is offered.
        self._forest.rows.column("admitted")[0] = True
        self._forest.rows.column("grown")[0] = DRAFT
        self._wants_more = True

    def _ask(self, index: int, start: int) -> None:
        """Show one level; write down what the policy admits and grows."""
        rows = self._forest.rows
        assert self._context is not None
        answer = self.policy.expand(Level(index, start, rows.view(start), rows.view(), self._context))
        rows.column("grown")[start:] = answer.grow & rows.column("may_grow")[start:]
        admitted = rows.column("admitted")
        admitted[start:] |= answer.admit | (answer.grow > 0)
        admitted[:] = close_upward(admitted, rows.column("parent"))
        self._wants_more = bool((rows.column("grown")[start:] & DRAFT).any())

    def _choose(self, candidates: EagleCandidates) -> Int64Array:
        """The candidates to verify, rising and closed under parents; notes the tree for `accept`."""
        forest, limit = self._forest, self.settings.num_nodes
        assert self._context is not None
        kept = np.zeros(0, dtype=np.bool_)
        if not self._failed:
            view = ForestView(forest.rows.view(), self._context)
            kept = self.policy.select(view) & forest.rows.column("admitted")
        if self._failed:  # before the selection or in it
            chosen = candidates.own_choice(limit)
            forest.offer_everything(candidates)
        else:
            chosen = forest.numbers[close_upward(kept, forest.rows.column("parent"))]
            chosen = chosen[chosen >= 0]
            if not len(chosen):  # EAGLE's sampling cannot verify a root alone
                chosen = candidates.own_choice(1)
            if len(chosen) > limit:
                self.counters.trimmed += 1
                chosen = np.sort(chosen[best(candidates.scores[chosen], limit)])
        kept = np.isin(forest.numbers, [-1, *chosen])
        self._kept = RoundTree(forest.rows, kept, (1,) * len(candidates.ends), self.policy.round_calls)
        return chosen
