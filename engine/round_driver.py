"""The decode loop: one round of draft, verify, commit for the live requests that an engine holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from treewise.data.cost import CostProfile
from treewise.engine import host
from treewise.engine.acceptance import FloorWatch
from treewise.engine.engine_settings import EngineSettings, ranking_of
from treewise.engine.live_request import LiveRequest
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling, entropy_and_margin
from treewise.engine.spoken import Spoken, can_read_together, read_spoken
from treewise.engine.top_guesses import TopGuesses, top_guesses
from treewise.engine.verification import Speaker, Verification
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Deployment, DraftSource, Int32Array, RoundContext, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.outcome import RoundRecord, Walk, build_outcome, walk
from treewise.policy.progress import build_context
from treewise.policy.round import RoundBuilder, RoundTree

Paths = Sequence[Sequence[int]]  # [requests] forest rows, root first


class RoundDriver(ABC):
    """What engines of one request and of many share: policy, deployment, and the round.

    A subclass owns the models' caches: it runs the passes of a round and rolls the caches back to what was committed.

    Raises:
        BundleError: a learned policy's bundle was trained on another pair, or under a narrower envelope.
        ParameterError: settings that contradict each other.
    """

    def __init__(self, pair: Pair, policy: TreePolicy, cost: CostProfile, settings: EngineSettings | None) -> None:
        if isinstance(policy, LearnedPolicy):
            policy.bundle.check_pair(pair.description)
        self.pair = pair
        self.cost = cost
        self.settings = settings or EngineSettings()
        self.policy = ContainedPolicy(policy, time_limit_ms=self.settings.time_limit_ms)
        self._verification = Verification.parse(self.settings.verification)
        self.ranking = ranking_of(self.settings, self._verification)
        self._builder = RoundBuilder(self.settings.envelope, self.settings.prior_table, ranking=self.ranking)
        self._verification.warn()
        self._watch = FloorWatch()
        sources = (LOOKUP if self.settings.use_lookup else 0) | (DRAFT if pair.draft is not None else 0)
        sources |= RECYCLED if self.settings.use_recycled else 0
        self.deployment = Deployment(
            cost=cost,
            envelope=self.settings.envelope,
            prior_table=self.settings.prior_table,
            sources=sources,
            vocab_size=pair.description.vocab_size,
            row_buckets=self.settings.deployed_buckets,
            ranking=self.ranking,
        )
        self.policy.bind(self.deployment)
        ahead = self.settings.reads_ahead
        self._reads_ahead = pair.target.device.type != "cpu" if ahead is None else ahead
        self._recorded_failures = 0  # of the policy, in the records so far

    @property
    @abstractmethod
    def _draft_source(self) -> DraftSource | None:
        """The draft of the requests whose round begins; None where there is no draft model."""

    @property
    @abstractmethod
    def _pass_seconds(self) -> tuple[float, float]:
        """(drafting, verifying) so far."""

    @abstractmethod
    def _verify(
        self, tree: RoundTree, flight: Sequence[LiveRequest], roots: Int32Array, positions: Int32Array
    ) -> tuple[torch.Tensor, Int32Array, int]:
        """One pass of the target over roots and kept rows.

        Returns logits [pass rows, vocabulary], the pass row of each forest row [forest rows] (-1: it did not run), and
        the rows that the pass ran for each request, dead ones included.
        """

    @abstractmethod
    def _commit(self, flight: Sequence[LiveRequest], paths: Paths, tokens: Paths) -> None:
        """Keep the caches' rows of `paths`, nothing else of the trees; the texts grow by `tokens`."""

    def _round(self, flight: Sequence[LiveRequest]) -> list[RoundRecord]:
        """The next round of every request of `flight`; the records are valid until the round after it."""
        draft_before, verify_before = self._pass_seconds
        context = build_context([request.progress for request in flight])
        roots = np.asarray([request.text[-1] for request in flight], dtype=np.int32)
        indices = [request.index for request in flight]
        memories = [request.memory for request in flight]
        tree = self._builder.build(self.policy, context, roots, indices, self._draft_source, memories)
        logits, places, rows = self._verify(tree, flight, roots, context.position)
        samplings, eos = [request.sampling for request in flight], self.pair.eos_token_ids
        spoken = self._read_ahead(tree, logits, places, context.position, samplings)
        speaker = Speaker(tree, logits, places, context.position, samplings, eos, self._verification, spoken)
        result = walk(tree, len(flight), speaker)
        self._watch.see(tree, result)
        # an accepted end of text is the new root, not before it
        paths = [rows[: len(said)] for rows, said in zip(result.path_rows, result.tokens, strict=True)]
        self._commit(flight, paths, result.tokens)
        said, said_from = self._said(flight, paths, logits, places, spoken)
        # the rows whose distributions gave the new roots
        ends = [int(places[path[-1]]) for path in paths]
        if spoken is None:
            entropy, margin = host.read_together(*entropy_and_margin(logits[ends]))
        else:
            entropy, margin = spoken.entropy[ends], spoken.margin[ends]
        for place, request in enumerate(flight):
            request.take(result.tokens[place], said, said_from[place], int(result.drafted_path[place]))
        self.policy.observe(build_outcome(tree, context, result))
        for place, request in enumerate(flight):
            request.advance(
                int(result.accepted_length[place]),
                result.tokens[place],
                int(result.drafted_path[place]),
                float(entropy[place]),
                float(margin[place]),
                eos,
            )
        draft_after, verify_after = self._pass_seconds
        pass_ms = (1e3 * (draft_after - draft_before), 1e3 * (verify_after - verify_before))
        return self._records(flight, (tree, context, result), roots, pass_ms, rows)

    def _read_ahead(
        self,
        tree: RoundTree,
        logits: torch.Tensor,
        places: Int32Array,
        positions: Int32Array,
        samplings: Sequence[Sampling],
    ) -> Spoken | None:
        """What the target says behind every kept row; None where rows are read one by one, as the walk asks."""
        if not (self._reads_ahead and self._verification.is_exact and can_read_together(samplings)):
            return None
        kept = np.flatnonzero(tree.kept)
        owner = tree.forest.column("request")[kept]
        owners, below = np.empty(len(kept), dtype=np.int32), np.empty(len(kept), dtype=np.int32)
        owners[places[kept]] = owner  # kept rows are the first of the pass, in some order
        below[places[kept]] = positions[owner] + tree.forest.column("depth")[kept] + 1
        return read_spoken(logits[: len(kept)], below, owners, samplings)

    @staticmethod
    def _said(
        flight: Sequence[LiveRequest],
        paths: Paths,
        logits: torch.Tensor,
        places: Int32Array,
        spoken: Spoken | None,
    ) -> tuple[TopGuesses | None, list[int]]:
        """What the target ranked high behind the rows of `paths`, and where each request's begin, if anyone recalls."""
        first = [0]
        for path in paths:
            first.append(first[-1] + len(path))
        if all(request.memory is None for request in flight):
            return None, first
        rows = [int(places[row]) for path in paths for row in path]
        return top_guesses(logits[rows]) if spoken is None else spoken.top_at(np.asarray(rows)), first

    def _records(
        self,
        flight: Sequence[LiveRequest],
        made: tuple[RoundTree, RoundContext, Walk],
        roots: Int32Array,
        pass_ms: tuple[float, float],
        verify_rows: int,
    ) -> list[RoundRecord]:
        tree, context, result = made
        policy, count = self.policy, len(flight)
        draft_ms, verify_ms = pass_ms
        failures = policy.num_failures - self._recorded_failures
        self._recorded_failures += failures
        growths = self._growths(tree, count)
        suspended = [policy.is_suspended(request.progress.request_id) for request in flight]
        asked = max(count - sum(suspended), 1)  # whom the policy's time was spent on
        return [
            RoundRecord(
                index=request.num_rounds - 1,
                context=context,
                tree=tree,
                walk=result,
                committed=result.tokens[place],
                draft_agrees=request.draft_agrees,
                agrees_from=request.agrees_from,
                lookup_agrees=request.lookup_agrees,
                root_token=int(roots[place]),
                fallback=policy.round_fallback and not suspended[place],
                suspended=suspended[place],
                draft_ms=draft_ms / count,
                verify_ms=verify_ms / count,
                policy_ms=0.0 if suspended[place] else policy.round_ms / asked,
                policy_calls=0 if suspended[place] else policy.round_calls,
                policy_failures=0 if place else failures,
                verify_rows=verify_rows,
                finish=request.finish,
                growth_tokens=growths[place],
                place=place,
            )
            for place, request in enumerate(flight)
        ]

    def _growths(self, tree: RoundTree, count: int) -> list[tuple[int, ...]]:
        """Draft tokens that each growth of the round ran, for each of the `count` requests."""
        assert count == 1, "an engine of many requests counts them by request"
        return [tree.growth_tokens]
