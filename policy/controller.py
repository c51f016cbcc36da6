"""The controller: a policy for decoding loops that are not ours. Numpy in, numpy out; no torch.

    controller = Controller("learned:FOLDER", cost=profile, vocab_size=49152)
    request = controller.begin(prompt, max_new_tokens)
    while not finish:
        tree = controller.propose(request, draft)         # calls `draft` level by level, where the policy wants it
        chosen = ...                                      # the loop's verify pass: the target's token below every row
        step = controller.accept(request, chosen)         # tokens to append, rows whose KV to keep
        finish = step.finish
    controller.finish(request, finish)

The loop keeps its models, caches, masks and sampling; the controller owns the order of the hook's calls, the envelope,
the closure under parents, containment, counters and, if wanted, a trace. Several requests may be open at once, their
calls in any order; each round is a batch of one. Not safe for several threads at once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import ParameterError, PromptError, require
from treewise.data.suffix import SuffixIndex
from treewise.policy.contain import ContainedPolicy
from treewise.policy.controller_draft import CalledDraft, DraftVocabulary
from treewise.policy.controller_request import OpenRequest
from treewise.policy.controller_settings import (
    LARGEST_POSITION,
    ControllerSettings,
    check_text,
    checked_settings,
    checked_temperature,
    checked_tokens,
    is_number,
    is_whole,
)
from treewise.policy.controller_tree import AcceptedStep, Draft, DraftCall, ProposedTree
from treewise.policy.counters import ControllerCounters
from treewise.policy.hook import DRAFT, LOOKUP, Deployment, RequestInfo, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.progress import Progress
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundBuilder
from treewise.policy.task_table import told_task
from treewise.policy.topn import TopNPolicy, TopNSettings

if TYPE_CHECKING:
    from treewise.data.trace_manifest import TraceManifest
    from treewise.data.trace_writer import TraceWriter
    from treewise.policy.record import LiveRecorder

__all__ = [
    "AcceptedStep",
    "Controller",
    "ControllerCounters",
    "ControllerSettings",
    "Draft",
    "DraftCall",
    "ProposedTree",
]

REASONS = ("eos", "length", "error")


class Controller:
    """Drives one policy for another loop's requests.

    Args:
        policy: a policy, or the spec string of one ("learned:FOLDER", "frontier", ...).
        cost: the deployment's cost profile.
        vocab_size: of the target; every token id is below it.
        sources: bits of the sources that exist: `LOOKUP` is the controller's own, `DRAFT` is what `propose` is given.
        fallback: a policy of state "none" that finishes the rounds in which `policy` fails; None: a small top-n tree.
        recorder: a writer that finished requests go to; `manifest` makes the manifest that it must have. What it wrote
            replays decision by decision, rounds of a `fallback` of your own excepted.
        clock: seconds; times policy calls and draft calls.

    The policy is bound here. It is one object for all requests: what it keeps between `select` and `observe` it must
    keep by request id, since another request's round may lie between the two.

    Raises:
        ParameterError: a bad argument, or a recorder of other conditions.
        BundleError, PolicyError: a policy that cannot serve this deployment.
    """

    def __init__(
        self,
        policy: TreePolicy | str,
        *,
        cost: CostProfile,
        vocab_size: int,
        sources: int = LOOKUP | DRAFT,
        settings: ControllerSettings | None = None,
        fallback: TreePolicy | None = None,
        recorder: TraceWriter | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        require(isinstance(cost, CostProfile), "cost", "a CostProfile", cost)
        require(is_whole(vocab_size) and vocab_size >= 1, "vocab_size", ">= 1", vocab_size)
        require(vocab_size <= LARGEST_POSITION, "vocab_size", "below 2**31, as int32 holds token ids", vocab_size)
        require(is_whole(sources) and 0 <= sources <= LOOKUP | DRAFT, "sources", "bits of LOOKUP and DRAFT", sources)
        self.settings = settings = checked_settings(settings or ControllerSettings(), vocab_size)
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.spec = policy if isinstance(policy, str) else str(getattr(policy, "spec", type(policy).__name__))
        self._fallback: TreePolicy = TopNPolicy(TopNSettings(nodes=8, depth=2)) if fallback is None else fallback
        self._clock = clock
        self.counters = ControllerCounters()
        self.cost = cost
        envelope, prior_table = settings.envelope, settings.prior_table
        if isinstance(self.policy, LearnedPolicy):
            envelope = envelope or self.policy.bundle.envelope
            prior_table = prior_table or self.policy.bundle.prior_table
        self.deployment = Deployment(
            cost=cost,
            envelope=envelope or Envelope(),
            prior_table=prior_table or PriorTable(),
            sources=sources,
            vocab_size=vocab_size,
            row_buckets=settings.row_buckets,
        )
        self._vocabulary = DraftVocabulary(vocab_size, settings.draft_token_ids) if sources & DRAFT else None
        self._corpus = SuffixIndex(settings.corpus_tokens) if sources & LOOKUP else None
        self._contain().bind(self.deployment)
        self._requests: dict[int, OpenRequest] = {}
        self._num_requests = 0
        self._recorder: TraceWriter | None = None
        if recorder is not None:
            self.record(recorder)

    @property
    def open_requests(self) -> tuple[int, ...]:
        """Ids of the requests that began and did not finish."""
        return tuple(self._requests)

    def begin(
        self,
        prompt_tokens: Sequence[int] | NDArray[np.integer[Any]],
        max_new_tokens: int,
        temperature: float = 0.0,
        prompt_id: str = "",
        task: str = "",
        seed: int = 0,
        prompt_text: str = "",
    ) -> int:
        """Start a request; returns its id.

        The draft's cache, if it keeps one, holds all of the prompt but the last token when the first tree is proposed.
        `prompt_id`, `task` and `seed` go into the trace, where a prompt and seed count once; an empty `prompt_id`
        becomes `request-ID`. The policy is told `task`, or what its recogniser makes of `prompt_text`, the user's words
        before any chat template, where it has one and they are given. Above temperature 0 the loop draws the tokens,
        policies only see the number. A `max_new_tokens` beyond what int32 positions hold (2**31 - 1 - prompt tokens)
        stands for that many. Raises `PromptError` on an empty prompt, `ParameterError` on other bad arguments.
        """
        prompt = np.asarray(prompt_tokens)
        if prompt.size == 0:
            raise PromptError("prompt_tokens must be at least one token, got none")
        checked_tokens("prompt_tokens", prompt, self.deployment.vocab_size)
        require(is_whole(max_new_tokens) and max_new_tokens >= 1, "max_new_tokens", ">= 1", max_new_tokens)
        most = min(int(max_new_tokens), LARGEST_POSITION - prompt.size)
        warmth = checked_temperature(temperature)
        check_text("prompt_id", prompt_id)
        check_text("task", task)
        check_text("prompt_text", prompt_text)
        told = told_task(self.policy, task, prompt_text)
        require(is_whole(seed) and 0 <= seed < 2**63, "seed", "a whole number between 0 and 2**63 - 1", seed)
        request = self._num_requests
        text = [int(token) for token in prompt]
        index = None
        if self._corpus is not None:
            index = self._corpus.copy()
            index.extend(text)
        deployment = self.deployment
        draft = None
        if self._vocabulary is not None:
            draft = CalledDraft(self._vocabulary, deployment.envelope.draft_width, request, self._clock)
        state = OpenRequest(
            progress=Progress(request, len(text), most, warmth),
            text=text,
            index=index,
            policy=self._contain(),
            builder=RoundBuilder(deployment.envelope, deployment.prior_table),
            draft=draft,
            recorder=self._recorder_of(prompt_id or f"request-{request}", task, len(text), warmth, seed, told),
            deployment=deployment,
            eos_token_ids=tuple(self.settings.eos_token_ids),
        )
        self._num_requests += 1
        self._requests[request] = state
        state.policy.begin(RequestInfo(request, len(text), most, warmth, told))
        self.counters.requests += 1
        self._count_failures(state)
        return request

    def propose(self, request: int, draft: Draft | None = None) -> ProposedTree:
        """Grow the next tree of `request`; `draft` is called once per growth, and not at all where it does not pay.

        What `draft` raises passes through, and the request stands where it stood. Raises `ParameterError` on an
        unknown or finished request, a second tree before `accept`, and draft answers that are none.
        """
        state = self._state(request)
        try:
            return state.propose(draft)
        finally:
            self._count_failures(state)

    def accept(
        self,
        request: int,
        chosen: ArrayLike,
        target_entropy: ArrayLike | None = None,
        target_margin: ArrayLike | None = None,
        verify_ms: float = float("nan"),
    ) -> AcceptedStep:
        """Walk the proposed tree with the target's tokens, commit what agrees and the token behind it.

        Args:
            chosen: [rows] (or [padded_rows]) the token that the target says below every row. Rows off the accepted path
                are not read; -1 below an accepted node says that the text is over there.
            target_entropy: [rows] bits of the target's distribution at every row, for policies that look at it.
            target_margin: [rows] p1 - p2 of the same.
            verify_ms: what the verify pass took, for the trace; NaN: unknown.

        Raises `ParameterError` on another shape or type, or a token outside the vocabulary; the request then stands
        where it stood and may accept again.
        """
        state = self._state(request)
        require(is_number(verify_ms), "verify_ms", "a number of milliseconds", verify_ms)
        step = state.accept(chosen, target_entropy, target_margin, verify_ms)
        self.counters.add_round(step.record, step.unhealthy_rows, step.expected)
        self._count_failures(state)
        return step.accepted

    def withdraw(self, request: int) -> None:
        """Drop a proposed tree that will not be verified; nothing happens where there is none.

        The request stands where it stood before `propose`, and so must the draft's cache.
        """
        self._state(request).withdraw()

    def finish(self, request: int, reason: str) -> None:
        """End a request: "eos", "length" or "error". Its memory goes, and its rounds go to the recorder.

        Raises `ParameterError` on an unknown request or reason, and what the recorder raises.
        """
        require(reason in REASONS, "reason", f"one of {', '.join(REASONS)}", reason)
        state = self._state(request)
        del self._requests[request]
        state.policy.finish(request, reason)
        self.counters.finished += 1
        self._count_failures(state)
        if state.recorder is not None and self._recorder is not None:
            state.recorder.finish(self._recorder, reason)

    def record(self, writer: TraceWriter | None) -> None:
        """Hand the requests that begin from now on to `writer` when they finish; None: to nobody.

        Raises `ParameterError` where the writer's manifest says other conditions than this controller works under.
        """
        if writer is not None:
            from treewise.policy.controller_trace import check_conditions

            check_conditions(writer.manifest, self.deployment, self.corpus_hash)
        self._recorder = writer

    def manifest(self, pair: dict[str, Any], tokenizer_hash: str, max_new_tokens: int, **known: Any) -> TraceManifest:
        """The manifest of this controller's traces; `known` are further fields of `TraceManifest` by name.

        `pair` is a JSON-ready description of target, draft and tokenizer.
        """
        from treewise.data.trace_manifest import TraceManifest  # the store's packages load only for a trace
        from treewise.policy.controller_trace import conditions_of

        given = conditions_of(self.deployment, self.corpus_hash)
        given["policy"] = self.spec
        given["draft_reads"] = "prefix" if self.deployment.sources & DRAFT else "none"
        given["input_hashes"] = {"cost": self.deployment.cost.sha256}
        given.update(pair=pair, tokenizer_hash=tokenizer_hash, max_new_tokens=max_new_tokens, **known)
        return TraceManifest(**given)

    @property
    def corpus_hash(self) -> str | None:
        """SHA-256, in hex, of the corpus tokens as little-endian int32; None without a corpus."""
        if not len(self.settings.corpus_tokens):
            return None
        return hashlib.sha256(np.asarray(self.settings.corpus_tokens, dtype="<i4").tobytes()).hexdigest()

    def _state(self, request: int) -> OpenRequest:
        state = self._requests.get(request) if is_whole(request) else None
        if state is None:
            raise ParameterError(f"request must be one that began and did not finish, got {request!r}")
        return state

    def _contain(self) -> ContainedPolicy:
        return ContainedPolicy(
            self.policy,
            self._fallback,
            self.settings.time_limit_ms,
            self._clock,
            is_quiet=self.counters.failures > 0,  # told once for all requests
        )

    def _count_failures(self, state: OpenRequest) -> None:
        fresh = state.policy.num_failures - state.num_failures
        if not fresh:
            return
        self.counters.failures += fresh
        state.num_failures += fresh
        for other in self._requests.values():
            other.policy.is_quiet = True

    def _recorder_of(
        self, prompt_id: str, task: str, prompt_tokens: int, temperature: float, seed: int, told_task: str
    ) -> LiveRecorder | None:
        if self._recorder is None:
            return None
        from treewise.policy.record import LiveRecorder

        return LiveRecorder(prompt_id, task, prompt_tokens, temperature, seed, told_task)
