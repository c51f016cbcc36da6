"""Decoding: rounds of draft, verify, commit, with every decision taken by a policy through the hook."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError
from treewise.engine.completion import Completion as Completion
from treewise.engine.completion import RoundSums
from treewise.engine.engine_settings import EngineSettings as EngineSettings
from treewise.engine.live_draft import LiveDraft
from treewise.engine.live_request import LiveRequest, capacity_of, check_request, open_request
from treewise.engine.live_target import LiveTarget
from treewise.engine.pair import Pair
from treewise.engine.round_driver import Paths, RoundDriver
from treewise.engine.sampling import Sampling
from treewise.policy.hook import DraftSource, Int32Array, TreePolicy
from treewise.policy.outcome import RoundRecord as RoundRecord
from treewise.policy.round import RoundTree


class Engine(RoundDriver):
    """Decodes with a pair, a policy and a cost profile; one request at a time.

    The committed text is a function of target, prompt and seed alone: the policy decides how fast it comes.

    Raises:
        BundleError: a learned policy's bundle was trained on another pair, or under a narrower envelope.
    """

    def __init__(
        self,
        pair: Pair,
        policy: TreePolicy,
        cost: CostProfile,
        settings: EngineSettings | None = None,
    ) -> None:
        super().__init__(pair, policy, cost, settings)
        passes = self.settings.passes
        self._target = LiveTarget(pair.target, passes, self.settings.deployed_buckets)
        width = max(self.settings.envelope.draft_width, 1)
        self._draft = None if pair.draft is None else LiveDraft(pair.draft, pair.description.vocab_size, width, passes)
        self._num_requests = 0
        self.decode_began = 0.0  # clock after the last request's prefill

    def generate(
        self, prompt: Sequence[int], max_new_tokens: int = 128, sampling: Sampling | None = None, task: str = ""
    ) -> Completion:
        """Decode one prompt of token ids. See `rounds` for arguments and errors."""
        began = time.perf_counter()
        steps = self.rounds(prompt, max_new_tokens, sampling, task)
        return collect(steps, self, began)

    def rounds(
        self, prompt: Sequence[int], max_new_tokens: int = 128, sampling: Sampling | None = None, task: str = ""
    ) -> Iterator[RoundRecord]:
        """Decode one prompt, yielding each round after its commit; the first `next` prefills.

        `task` is the kind of task that the policy is told of. Rounds may be abandoned at any time; the next request
        starts afresh.

        Raises:
            ParameterError: a token id outside the vocabulary, or a round asked for after another request began.
            PromptError: an empty prompt, or one that leaves no room in the target's context.
            ModelOutputError: NaN or infinity in the target's logits.
        """
        check_request(self.pair, prompt, max_new_tokens)
        return self._rounds(tuple(prompt), max_new_tokens, sampling or Sampling(), task)

    def _rounds(
        self, prompt: tuple[int, ...], max_new_tokens: int, sampling: Sampling, task: str
    ) -> Iterator[RoundRecord]:
        policy, draft = self.policy, self._draft
        request_id = self._num_requests
        self._num_requests += 1
        guesses = None if draft is None else draft.first_guess
        request = open_request(self.pair, self.settings, request_id, prompt, max_new_tokens, sampling, guesses, task)
        text, progress = tuple(request.text), request.progress
        capacity = capacity_of(self.pair, text, progress.max_new_tokens)
        self._target.begin(text, capacity)
        if draft is not None:
            draft.begin(text, capacity, sampling=sampling, ranking=self.ranking)
            progress.draft_seen = draft.seen_tokens
        policy.begin(request.info)
        self.decode_began = time.perf_counter()
        try:
            while not request.finish:
                if self._num_requests != request_id + 1:
                    raise ParameterError("rounds must be taken before the engine's next request begins, got a late one")
                yield self._round([request])[0]
        finally:
            policy.finish(request_id, request.finish or "error")

    @property
    def _draft_source(self) -> DraftSource | None:
        return self._draft

    @property
    def _pass_seconds(self) -> tuple[float, float]:
        return self._draft.draft_seconds if self._draft else 0.0, self._target.verify_seconds

    def _verify(
        self, tree: RoundTree, flight: Sequence[LiveRequest], roots: Int32Array, positions: Int32Array
    ) -> tuple[torch.Tensor, Int32Array, int]:
        rows = self.deployment.padded_rows(int(tree.kept.sum()))
        logits = self._target.verify(tree, int(roots[0]), int(positions[0]), rows)
        return logits, self._target.places, rows

    def _commit(self, flight: Sequence[LiveRequest], paths: Paths, tokens: Paths) -> None:
        self._target.commit(flight[0].progress.position, paths[0])
        if self._draft is not None:
            self._draft.commit(paths[0], tokens[0])


def collect(steps: Iterator[RoundRecord], engine: Engine, began: float) -> Completion:
    """Run `steps` to the end; `began` is when the request's clock (`time.perf_counter`) was started."""
    sums = RoundSums()
    for record in steps:
        sums.add(record)
    prefilled, ended = engine.decode_began, time.perf_counter()
    return sums.completion(prefilled - began, ended - prefilled)
