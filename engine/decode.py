"""Decoding: rounds of draft, verify, commit, with every decision taken by a policy through the hook."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError, PromptError, require
from treewise.data.recycled import RecycledIndex
from treewise.data.suffix import SuffixIndex
from treewise.data.trace_manifest import EXACT
from treewise.engine.acceptance import FloorWatch
from treewise.engine.live_draft import LiveDraft
from treewise.engine.live_target import LiveTarget
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling, entropy_and_margin
from treewise.engine.top_guesses import top_guesses
from treewise.engine.verification import Speaker, Verification
from treewise.policy.contain import ContainedPolicy
from treewise.policy.draft_ranking import BOTH, PLAIN, RANKINGS
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Deployment, RequestInfo, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.outcome import RoundRecord as RoundRecord
from treewise.policy.outcome import build_outcome, walk
from treewise.policy.progress import Progress, append_committed, build_context, check_guesses
from treewise.policy.round import RoundBuilder


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine may grow and how it runs its passes."""

    envelope: Envelope = field(default_factory=Envelope)
    prior_table: PriorTable = field(default_factory=PriorTable)
    row_buckets: tuple[int, ...] = ()  # verify passes are padded up to these rows; empty: no padding
    use_lookup: bool = True
    use_recycled: bool = True  # the target's own earlier guesses, behind the pair's corpus of them if it has one
    ranking: str = ""  # of the draft's candidates above temperature 0, see `treewise.policy.draft_ranking`; empty: both
    verification: str = EXACT  # or a lossy rule, see `treewise.engine.verification`
    time_limit_ms: float = 50.0  # of one policy call


@dataclass(frozen=True, slots=True)
class Completion:
    """One decoded request and what it took."""

    tokens: tuple[int, ...]  # committed completion tokens, end of text included
    finish: str  # "eos" or "length"; "stopped" where a caller's stopping criterion cut the text
    accepted_lengths: tuple[int, ...]  # [rounds]
    verified_nodes: tuple[int, ...]  # [rounds]
    growths: int
    policy_calls: int
    fallbacks: int
    suspensions: int
    prefill_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    policy_seconds: float

    @property
    def num_rounds(self) -> int:
        """Verify passes."""
        return len(self.accepted_lengths)

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens over decode time, prefill left out."""
        return len(self.tokens) / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens over verify passes; 1 for plain decoding."""
        return len(self.tokens) / max(self.num_rounds, 1)

    @property
    def nodes_per_round(self) -> float:
        """Verified nodes over verify passes."""
        return sum(self.verified_nodes) / max(self.num_rounds, 1)


class Engine:
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
        if isinstance(policy, LearnedPolicy):
            policy.bundle.check_pair(pair.description)
        self.pair = pair
        self.cost = cost
        self.settings = settings or EngineSettings()
        self.policy = ContainedPolicy(policy, time_limit_ms=self.settings.time_limit_ms)
        require(
            self.settings.ranking in ("", *RANKINGS), "ranking", f"one of {', '.join(RANKINGS)}", self.settings.ranking
        )
        self._verification = Verification.parse(self.settings.verification)
        if not self._verification.is_exact:
            # Noise may rank guesses only where a guess is accepted iff it is the token that the noise draws.
            rule = f"{PLAIN} with the lossy verification {self._verification.spec!r}"
            require(self.settings.ranking in ("", PLAIN), "ranking", rule, self.settings.ranking)
        self.ranking = self.settings.ranking or (BOTH if self._verification.is_exact else PLAIN)
        self._builder = RoundBuilder(self.settings.envelope, self.settings.prior_table, ranking=self.ranking)
        self._verification.warn()
        self._watch = FloorWatch()
        self._target = LiveTarget(pair.target)
        vocab_size = pair.description.vocab_size
        self._draft = (
            None
            if pair.draft is None
            else LiveDraft(pair.draft, vocab_size, max(self.settings.envelope.draft_width, 1))
        )
        sources = (LOOKUP if self.settings.use_lookup else 0) | (DRAFT if self._draft is not None else 0)
        sources |= RECYCLED if self.settings.use_recycled else 0
        self.deployment = Deployment(
            cost=cost,
            envelope=self.settings.envelope,
            prior_table=self.settings.prior_table,
            sources=sources,
            vocab_size=vocab_size,
            row_buckets=self.settings.row_buckets,
            ranking=self.ranking,
        )
        self.policy.bind(self.deployment)
        self._num_requests = 0
        self._recorded_failures = 0  # of the policy, in the records so far
        self.decode_began = 0.0  # clock after the last request's prefill

    def generate(
        self, prompt: Sequence[int], max_new_tokens: int = 128, sampling: Sampling | None = None
    ) -> Completion:
        """Decode one prompt of token ids. See `rounds` for errors."""
        began = time.perf_counter()
        steps = self.rounds(prompt, max_new_tokens, sampling)
        return collect(steps, self, began)

    def rounds(
        self, prompt: Sequence[int], max_new_tokens: int = 128, sampling: Sampling | None = None
    ) -> Iterator[RoundRecord]:
        """Decode one prompt, yielding each round after its commit; the first `next` prefills.

        Rounds may be abandoned at any time; the next request starts afresh.

        Raises:
            ParameterError: a token id outside the vocabulary, or a round asked for after another request began.
            PromptError: an empty prompt, or one that leaves no room in the target's context.
            ModelOutputError: NaN or infinity in the target's logits.
        """
        sampling = sampling or Sampling()
        self._check(prompt, max_new_tokens)
        limit = min(max_new_tokens, self.pair.max_context_tokens - len(prompt))
        return self._rounds(tuple(int(token) for token in prompt), limit, sampling)

    def _check(self, prompt: Sequence[int], max_new_tokens: int) -> None:
        whole = isinstance(max_new_tokens, int | np.integer)
        require(whole and max_new_tokens >= 1, "max_new_tokens", "a whole number >= 1", max_new_tokens)
        if len(prompt) == 0:
            raise PromptError("prompt must be at least one token, got an empty one")
        longest = self.pair.max_context_tokens
        if len(prompt) >= longest:
            raise PromptError(
                f"prompt must be shorter than the target's context of {longest} tokens, got {len(prompt)}"
            )
        size = self.pair.description.vocab_size
        strays = [token for token in prompt if not (0 <= token < size and token == int(token))]
        if strays:
            raise ParameterError(f"prompt must be token ids between 0 and {size - 1}, got {strays[0]}")

    def _rounds(self, prompt: tuple[int, ...], limit: int, sampling: Sampling) -> Iterator[RoundRecord]:
        policy, target, draft = self.policy, self._target, self._draft
        request_id = self._num_requests
        self._num_requests += 1
        temperature = float(np.float32(sampling.temperature))  # as a trace keeps it
        progress = Progress(request_id, len(prompt), limit, temperature)
        capacity = len(prompt) + limit + 256
        target.begin(prompt, capacity)
        if draft is not None:
            draft.begin(prompt, capacity, sampling=sampling, ranking=self.ranking)
            progress.draft_seen = draft.seen_tokens
        index = SuffixIndex(prompt) if self.settings.use_lookup else None
        memory = RecycledIndex(self.pair.recycled, prompt) if self.settings.use_recycled else None
        text = list(prompt)
        policy.begin(RequestInfo(request_id, len(prompt), limit, temperature))
        finish, number = "", 0
        self.decode_began = time.perf_counter()
        try:
            while not finish:
                if self._num_requests != request_id + 1:
                    raise ParameterError("rounds must be taken before the engine's next request begins, got a late one")
                record = self._round(number, progress, text, (index, memory), sampling)
                finish = record.finish
                number += 1
                yield record
        finally:
            policy.finish(request_id, finish or "error")

    def _round(
        self,
        number: int,
        progress: Progress,
        text: list[int],
        free: tuple[SuffixIndex | None, RecycledIndex | None],
        sampling: Sampling,
    ) -> RoundRecord:
        policy, target, draft = self.policy, self._target, self._draft
        index, memory = free
        context = build_context([progress])
        root, position = text[-1], progress.position
        draft_before = draft.draft_seconds if draft else 0.0
        tree = self._builder.build(policy, context, np.asarray([root], dtype=np.int32), [index], draft, [memory])
        rows = self.deployment.padded_rows(int(tree.kept.sum()))
        verify_before = target.verify_seconds
        logits = target.verify(tree, root, position, rows)
        eos = self.pair.eos_token_ids
        result = walk(tree, 1, Speaker(tree, target, logits, position, sampling, eos, self._verification))
        self._watch.see(tree, result)
        committed = result.tokens[0]
        path = result.path_rows[0][: len(committed)]  # an accepted end of text is the new root, not before it
        target.commit(position, path)
        if draft is not None:
            draft.commit(path, committed)
        said_by = target.place_of(path[-1])  # the row whose distribution gave the new root
        entropy, margin = entropy_and_margin(logits[said_by][None])
        lookup_agrees = tuple(append_committed(index, committed)) if index is not None else (-1,) * len(committed)
        if memory is not None:
            said = top_guesses(logits[[target.place_of(row) for row in path]])
            for place, token in enumerate(committed):
                memory.remember(*said.at(place))
                memory.append(token)
        text.extend(committed)
        agrees_from = progress.draft_seen
        draft_agrees: tuple[int, ...] = ()
        if draft is not None:
            draft_agrees = check_guesses(progress, text, int(result.drafted_path[0]), draft.first_guess)
        policy.observe(build_outcome(tree, context, result))
        progress.advance(
            int(result.accepted_length[0]),
            len(committed),
            int(result.drafted_path[0]),
            draft_agrees,
            lookup_agrees,
            float(entropy[0]),
            float(margin[0]),
        )
        finish = ""
        if committed[-1] in eos:
            finish = "eos"
        elif progress.remaining_tokens <= 0:
            finish = "length"
        failures = policy.num_failures - self._recorded_failures
        self._recorded_failures += failures
        return RoundRecord(
            index=number,
            context=context,
            tree=tree,
            walk=result,
            committed=committed,
            draft_agrees=draft_agrees,
            agrees_from=agrees_from,
            lookup_agrees=lookup_agrees,
            root_token=root,
            fallback=policy.round_fallback,
            suspended=policy.round_suspended,
            draft_ms=((draft.draft_seconds if draft else 0.0) - draft_before) * 1e3,
            verify_ms=(target.verify_seconds - verify_before) * 1e3,
            policy_ms=policy.round_ms,
            policy_calls=policy.round_calls,
            policy_failures=failures,
            verify_rows=rows,
            finish=finish,
        )


def collect(steps: Iterator[RoundRecord], engine: Engine, began: float) -> Completion:
    """Run `steps` to the end; `began` is when the request's clock (`time.perf_counter`) was started."""
    tokens: list[int] = []
    accepted: list[int] = []
    nodes: list[int] = []
    growths = calls = fallbacks = suspensions = 0
    draft_ms = verify_ms = policy_ms = 0.0
    finish = ""
    for record in steps:
        tokens.extend(record.committed)
        accepted.append(int(record.walk.accepted_length[0]))
        nodes.append(record.tree.num_nodes)
        growths += len(record.tree.growth_tokens)
        calls += record.tree.policy_calls
        fallbacks += record.fallback
        suspensions += record.suspended
        draft_ms += record.draft_ms
        verify_ms += record.verify_ms
        policy_ms += record.policy_ms
        finish = record.finish
    prefilled, ended = engine.decode_began, time.perf_counter()
    return Completion(
        tokens=tuple(tokens),
        finish=finish,
        accepted_lengths=tuple(accepted),
        verified_nodes=tuple(nodes),
        growths=growths,
        policy_calls=calls,
        fallbacks=fallbacks,
        suspensions=suspensions,
        prefill_seconds=prefilled - began,
        decode_seconds=ended - prefilled,
        draft_seconds=draft_ms / 1e3,
        verify_seconds=verify_ms / 1e3,
        policy_seconds=policy_ms / 1e3,
    )
