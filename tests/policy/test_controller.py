"""The controller: other people's loops decode the same text, faster, and lose nothing when something goes wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.policy.loops import COST, VOCAB, CheckedDraft, Loop, TableModel, drawn, greedy, plain_text
from tests.policy.models import tiny_bundle
from treewise.data.envelope import Envelope
from treewise.data.errors import BundleError, ParameterError, PolicySpecError, PromptError
from treewise.policy.controller import Controller, ControllerSettings, DraftCall
from treewise.policy.controller_draft import CalledDraft, DraftVocabulary, checked_guesses
from treewise.policy.draft_ranking import LISTED
from treewise.policy.everything import EverythingPolicy
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, LOOKUP, DraftGuesses, Drawn, Expansion, Level, RequestInfo, State
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy

TARGET, DRAFT_MODEL = TableModel(), TableModel(noise=1.0)
PROMPTS = [[3, 7, 1, 3, 7, 2, 3, 7], [5], [9, 9, 9, 4]]
SMALL = Envelope(max_depth=5, draft_width=3)


def controller_of(policy: Any = "topn:12x3", sources: int = LOOKUP | DRAFT, **settings: Any) -> Controller:
    settings.setdefault("envelope", SMALL)
    return Controller(policy, cost=COST, vocab_size=VOCAB, sources=sources, settings=ControllerSettings(**settings))


def decode(controller: Controller, max_new_tokens: int = 30) -> Loop:
    draft = DRAFT_MODEL if controller.deployment.sources & DRAFT else None
    loop = Loop(controller, greedy(TARGET), draft)
    for number, prompt in enumerate(PROMPTS):
        loop.begin(prompt, max_new_tokens + number)
    loop.run()
    return loop


def assert_texts(loop: Loop, max_new_tokens: int = 30) -> None:
    for number, prompt in enumerate(PROMPTS):
        expected = plain_text(prompt, greedy(TARGET), max_new_tokens + number)
        assert loop.completion(number, prompt) == expected


@pytest.mark.parametrize("sources", [LOOKUP | DRAFT, DRAFT, LOOKUP, 0])
@pytest.mark.parametrize("spec", ["topn:12x3", "frontier", "entropy", "chain:4", "static:2x3", "switch", "plain"])
def test_interleaved_requests_come_out_as_plain_decoding(spec: str, sources: int) -> None:
    controller = controller_of(spec, sources, row_buckets=(4, 8, 32))
    loop = decode(controller)
    assert_texts(loop)
    assert set(loop.finishes.values()) == {"length"}
    assert controller.open_requests == ()
    counters = controller.counters
    assert counters.committed_tokens == 30 + 31 + 32
    assert (
        counters.accepted_tokens == sum(map(sum, loop.accepted.values())) == counters.committed_tokens - counters.rounds
    )
    assert counters.rounds == sum(map(len, loop.accepted.values()))
    assert counters.growths == sum(draft.calls for draft in loop.drafts.values())
    assert (counters.requests, counters.finished, counters.failures, counters.fallbacks) == (3, 3, 0, 0)
    if spec == "plain" or not sources:
        assert counters.verified_nodes == counters.growths == 0
    elif sources & DRAFT:
        assert counters.accepted_tokens > 10
        assert counters.draft_tokens >= counters.growths > 0


@pytest.mark.parametrize("scorer", ["flat", "onnx"])
def test_a_learned_bundle_decides_under_its_own_envelope(scorer: Any, tmp_path: Path) -> None:
    folder = tiny_bundle().save(tmp_path / "bundle")
    policy = f"learned:{folder}" if scorer == "onnx" else LearnedPolicy.load(folder, scorer)
    controller = Controller(policy, cost=COST, vocab_size=VOCAB)
    assert controller.deployment.envelope == tiny_bundle().envelope
    loop = decode(controller)
    assert_texts(loop)
    counters = controller.counters
    assert counters.failures == 0 and counters.accepted_tokens > 10
    assert isinstance(controller.policy, LearnedPolicy) and not controller.policy._records
    with pytest.raises(BundleError, match="max_depth 9 > 6"):
        controller_of(LearnedPolicy(tiny_bundle(), "flat"), envelope=Envelope(max_depth=9, draft_width=4))


def test_calibration_sums_hold_the_policys_own_expectations() -> None:
    policy = LearnedPolicy(tiny_bundle(), "flat")
    controller = Controller(policy, cost=COST, vocab_size=VOCAB)
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    request, expected, matched = loop.begin(PROMPTS[0], 20), [], 0
    while request not in loop.finishes:
        tree = loop.propose(request)
        own = policy.round_match.copy()
        chosen = loop.verify(request, tree)
        waiting = controller._requests[request].waiting
        assert waiting is not None and (waiting.expected == own).all()
        kept = np.flatnonzero(waiting.tree.kept)
        step = loop.accept(request, tree, chosen)
        for row in range(1, tree.num_rows):
            if tree.parents[row] in step.places[: step.accepted_length + 1]:
                expected.append(float(own[kept[row]]))
                matched += int(tree.tokens[row] == chosen[tree.parents[row]])
    sums = controller.counters.calibration
    assert int(sums.nodes.sum()) == len(expected) > 10
    assert float(sums.predicted.sum()) == pytest.approx(sum(expected))
    assert int(sums.matched.sum()) == matched == controller.counters.accepted_tokens
    assert controller.counters.to_json()["calibration"]["nodes"] == sums.nodes.tolist()


def test_above_temperature_0_the_loop_draws_the_tokens() -> None:
    controller = controller_of("topn:16x3")
    choose = drawn(TARGET, 0.9, seed=4)
    loop = Loop(controller, choose, DRAFT_MODEL)
    for prompt in PROMPTS:
        loop.begin(prompt, 25, temperature=0.9)
    loop.run()
    for number, prompt in enumerate(PROMPTS):
        assert loop.completion(number, prompt) == plain_text(prompt, choose, 25)
    assert controller.counters.accepted_tokens > 5


class EveryThird(EverythingPolicy):
    """Drafts in every third round alone, so that the draft's cache has to catch up."""

    rounds = 0

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        answer = super().expand(level)
        grow = answer.grow if self.rounds % 3 == 0 else answer.grow & np.uint8(0xFF & ~DRAFT)
        return Expansion(answer.admit, grow.astype(np.uint8))


def test_the_draft_catches_up_in_the_same_call() -> None:
    controller = controller_of(EveryThird())
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 40)
    late = []
    draft = loop.drafts[0]

    def watched(call: DraftCall) -> Any:
        late.append(call.catch_up)
        return draft(call)

    while 0 not in loop.finishes:
        draft.rows.clear()
        tree = controller.propose(0, watched)
        loop.accept(0, tree, loop.verify(0, tree))
    assert max(late) >= 2
    assert loop.completion(0, PROMPTS[0]) == plain_text(PROMPTS[0], greedy(TARGET), 40)


def test_guesses_and_probabilities_give_the_same_trees() -> None:
    """A draft that ranks on its own device answers `DraftGuesses`; the controller ranks a softmax alike."""
    probabilities, guesses = controller_of("topn:12x3"), controller_of("topn:12x3")
    for controller in (probabilities, guesses):
        controller.begin(PROMPTS[0], 30)
    texts = list(PROMPTS[0])
    by_probability, by_guess = CheckedDraft(DRAFT_MODEL, texts.copy()), CheckedDraft(DRAFT_MODEL, texts.copy())

    def ranked(call: DraftCall) -> DraftGuesses:
        probs = by_guess(call)
        order = np.argsort(-probs, axis=1, kind="stable")
        ranks = np.argsort(order, axis=1)[call.extra_rows, call.extra_tokens]
        top = np.take_along_axis(probs, order, axis=1)
        return DraftGuesses(
            tokens=order[:, :4].astype(np.int32),
            probs=top[:, :4],
            entropy=-(probs * np.log2(probs)).sum(axis=1),
            margin=top[:, 0] - top[:, 1],
            extra_probs=probs[call.extra_rows, call.extra_tokens],
            extra_ranks=ranks.astype(np.float32),
        )

    finish = ""
    while not finish:
        first, second = probabilities.propose(0, by_probability), guesses.propose(0, ranked)
        assert first.tokens.tolist() == second.tokens.tolist()
        assert first.parents.tolist() == second.parents.tolist()
        chosen = [greedy(TARGET)(by_probability.text)] * first.num_rows
        steps = [controller.accept(0, chosen) for controller in (probabilities, guesses)]
        by_probability.commit(steps[0])
        by_guess.commit(steps[1])
        finish = steps[0].finish
        assert finish == steps[1].finish


def call_of(num_rows: int, extra_tokens: list[int]) -> DraftCall:
    rows = np.arange(num_rows, dtype=np.int32)
    below = np.zeros(len(extra_tokens), dtype=np.int32)
    return DraftCall(0, rows, rows - 1, rows, 0, 0, below, np.asarray(extra_tokens, dtype=np.int32))


@pytest.mark.parametrize(("width", "listed"), [(3, LISTED), (40, 40), (90, 50)])
@pytest.mark.parametrize("as_guesses", [False, True])
def test_late_ranks_read_alike_as_in_the_engines_own_draft_heads(width: int, listed: int, as_guesses: bool) -> None:
    probs = np.linspace(2.0, 0.0, 50, dtype=np.float32)[None] / 50.0
    extras = [0, 20, 31, 32, 39, 40, 49]

    def draft(call: DraftCall) -> Any:
        if not as_guesses:
            return probs
        exact = call.extra_tokens.astype(np.float32)
        flat, tokens = np.zeros(1, dtype=np.float32), np.arange(50, dtype=np.int32)[None]
        return DraftGuesses(tokens, probs, flat, flat, probs[0, call.extra_tokens], exact)

    source = CalledDraft(DraftVocabulary(50), width, 0)
    source.open(draft, (), 7)
    forest = Forest()
    forest.append(1)
    forest.column("parent")[:] = -1
    zeros = np.zeros(len(extras), dtype=np.int32)
    found = source.grow(forest.view(), np.zeros(1, dtype=np.int32), zeros, np.asarray(extras, dtype=np.int32))
    assert found.extra_ranks.tolist() == [min(rank, listed) for rank in extras]


def drawn_of(*shape: int) -> Drawn:
    return Drawn(*(np.zeros(shape, dtype=np.float32) for _ in range(3)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probs": [[2.5, 0.1, 0.0]]}, "draft guesses' probs must be between 0 and 1, got 2.5"),
        ({"probs": [[0.5, -0.1, 0.0]]}, "draft guesses' probs must be between 0 and 1, got -0.1"),
        ({"probs": [[0.5, np.nan, 0.0]]}, "draft guesses' probs must be between 0 and 1, got nan"),
        ({"probs": [[0.1, 0.5, 0.0]]}, r"draft guesses' probs must be in falling order, .* got \[0.1"),
        ({"tokens": [[3, -1, 1]], "probs": [[0.5, 0.4, 0.1]]}, "must be in falling order, tokens of -1 last"),
        ({"extra_probs": [np.nan, 1.5]}, "draft guesses' extra_probs must be between 0 and 1, got 1.5"),
        ({"ranks": [[0.0, 1.0]]}, r"draft guesses' ranks must be of shape \[1, 3\], got \[1, 2\]"),
        ({"drawn": drawn_of(1, 2)}, r"draft guesses' drawn.probs must be of shape \[1, 3\], got \[1, 2\]"),
        ({"extra_drawn": drawn_of(3)}, r"draft guesses' extra_drawn.probs must be of shape \[2\], got \[3\]"),
    ],
)
def test_guesses_that_are_none_are_named(changes: dict[str, Any], message: str) -> None:
    good = DraftGuesses(
        tokens=np.asarray([[3, 2, -1]], dtype=np.int32),
        probs=np.asarray([[0.5, 0.5001, 9.0]], dtype=np.float32),  # rounding is no disorder, and -1 no token
        entropy=np.zeros(1, dtype=np.float32),
        margin=np.zeros(1, dtype=np.float32),
        extra_probs=np.asarray([np.nan, 0.1], dtype=np.float32),
        extra_ranks=np.asarray([np.nan, 4.0], dtype=np.float32),
        ranks=np.zeros((1, 3), dtype=np.float32),
        drawn=drawn_of(1, 3),
        extra_drawn=drawn_of(2),
    )
    call = call_of(1, [7, 8])
    assert checked_guesses(good, call, VOCAB) is good
    arrays: dict[str, Any] = {
        name: np.asarray(value) if isinstance(value, list) else value for name, value in changes.items()
    }
    with pytest.raises(ParameterError, match=message):
        checked_guesses(replace(good, **arrays), call, VOCAB)


def test_a_reduced_draft_head_speaks_for_the_tokens_it_names() -> None:
    ids = tuple(range(VOCAB - 1, 3, -1))  # backwards, and without the last four
    controller = controller_of("topn:12x3", draft_token_ids=ids)
    inner = CheckedDraft(DRAFT_MODEL, PROMPTS[0].copy())
    controller.begin(PROMPTS[0], 20)
    while True:
        tree = controller.propose(0, lambda call: inner(call)[:, list(ids)])
        paths = [inner.text]
        for row in range(1, tree.num_rows):
            paths.append([*paths[tree.parents[row]], int(tree.tokens[row])])
        step = controller.accept(0, [greedy(TARGET)(path) for path in paths])
        inner.commit(step)
        if step.finish:
            break
    assert inner.text[len(PROMPTS[0]) :] == plain_text(PROMPTS[0], greedy(TARGET), 20)
    assert controller.counters.accepted_tokens > 0


def test_a_corpus_is_looked_up() -> None:
    corpus = plain_text([1, 2], greedy(TARGET), 60)
    prompt = corpus[:4]
    with_corpus, without = (controller_of("topn:12x3", LOOKUP, corpus_tokens=tokens) for tokens in (tuple(corpus), ()))
    for controller in (with_corpus, without):
        loop = Loop(controller, greedy(TARGET), None)
        loop.begin(prompt, 20)
        loop.run()
        assert loop.completion(0, prompt) == plain_text(prompt, greedy(TARGET), 20)
    assert with_corpus.counters.rounds < without.counters.rounds
    assert with_corpus.corpus_hash is not None and without.corpus_hash is None


def test_dead_rows_see_themselves_and_nothing_sees_them() -> None:
    controller = controller_of("chain:4", row_buckets=(8, 16))
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 20)
    tree = loop.propose(0)
    padded = tree.padded()
    assert padded.num_rows == tree.padded_rows == 8 > tree.num_rows
    dead = slice(tree.num_rows, None)
    assert (padded.mask[dead, :] == np.eye(8, dtype=np.bool_)[dead]).all()
    assert not padded.mask[: tree.num_rows, dead].any()
    assert (padded.mask[: tree.num_rows, : tree.num_rows] == tree.mask).all()
    assert set(padded.tokens[dead].tolist()) == {PROMPTS[0][-1]} and (padded.parents[dead] == -1).all()
    assert padded.num_nodes == tree.num_nodes
    chosen = loop.verify(0, tree)
    step = controller.accept(0, [*chosen, *[0] * (8 - len(chosen))])
    assert list(step.tokens) == plain_text(PROMPTS[0], greedy(TARGET), 20)[: len(step.tokens)]


@pytest.mark.parametrize("place", range(6))
def test_an_end_token_ends_the_request_wherever_it_falls(place: int) -> None:
    text = plain_text(PROMPTS[0], greedy(TARGET), 30)
    eos = (text[place],)
    controller = controller_of("topn:24x4", eos_token_ids=eos)
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 30)
    loop.run()
    assert loop.finishes == {0: "eos"}
    assert loop.completion(0, PROMPTS[0]) == text[: text.index(eos[0]) + 1]


def test_the_loop_may_end_the_text_below_an_accepted_node() -> None:
    controller = controller_of("topn:24x4")
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 30)
    tree = loop.propose(0)
    chosen = loop.verify(0, tree)
    (child,) = [row for row in range(1, tree.num_rows) if tree.parents[row] == 0 and tree.tokens[row] == chosen[0]]
    chosen[child] = -1
    step = controller.accept(0, chosen)
    assert (step.finish, step.tokens, step.places) == ("eos", (chosen[0],), (0,))
    with pytest.raises(ParameterError, match=r"request must be unfinished, got .0, at its end by 'eos'"):
        controller.propose(0, loop.drafts[0])


BAD_CHOSEN: list[tuple[Any, str]] = [
    ([1], r"chosen must be of shape \[\d+\], one number per row of the tree, got \[1\]"),
    (np.zeros((2, 2), dtype=np.int64), r"chosen must be of shape .* got \[2, 2\]"),
    ("float", "chosen must be of an integer type, got 'float64'"),
    ("root", f"chosen must be a token id between 0 and {VOCAB - 1} below the root, got -1"),
    ("high", f"chosen must be a token id between 0 and {VOCAB - 1} below the root, got {VOCAB}"),
    ([[1, 2], [3]], "chosen must be one number per row of the tree"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_CHOSEN)
def test_a_wrong_chosen_leaves_the_request_as_it_was(bad: Any, message: str) -> None:
    controller = controller_of()
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 25)
    while 0 not in loop.finishes:
        tree = loop.propose(0)
        rows = tree.num_rows
        named = {"float": np.zeros(rows), "root": np.full(rows, -1), "high": np.full(rows, VOCAB)}
        if rows > 1:
            with pytest.raises(ParameterError, match=message):
                controller.accept(0, named[bad] if isinstance(bad, str) else bad)
        chosen = loop.verify(0, tree)
        with pytest.raises(ParameterError, match="target_entropy must be of shape"):
            controller.accept(0, chosen, target_entropy=np.zeros(rows + 99))
        loop.accept(0, tree, chosen)
    assert loop.completion(0, PROMPTS[0]) == plain_text(PROMPTS[0], greedy(TARGET), 25)


def test_the_targets_state_reaches_the_next_round() -> None:
    controller = controller_of()
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 25)
    tree = loop.propose(0)
    chosen = loop.verify(0, tree)
    entropies = np.arange(tree.num_rows) + 0.5
    step = controller.accept(0, chosen, target_entropy=entropies, target_margin=entropies / 100.0)
    progress = controller._requests[0].progress
    assert progress.target_entropy == entropies[step.places[-1]]
    assert progress.target_margin == entropies[step.places[-1]] / 100.0


def answers(kind: str, call: DraftCall) -> Any:
    probs = np.full((call.num_rows, VOCAB), 1.0 / VOCAB, dtype=np.float32)
    if kind == "logits":
        return probs - 3.0
    if kind == "large":
        return probs * VOCAB * 2
    if kind == "shape":
        return probs[:, :-1]
    if kind == "text":
        return "probabilities"
    if kind == "raises":
        raise RuntimeError("out of memory")
    tokens = np.zeros((call.num_rows, 2), dtype=np.int32)
    flat = np.zeros(call.num_rows, dtype=np.float32)
    extras = np.zeros(len(call.extra_rows), dtype=np.float32)
    if kind == "stray":
        tokens += VOCAB
    if kind == "extras":
        extras = np.zeros(99, dtype=np.float32)
    if kind == "rows":
        tokens = tokens[:0]
    return DraftGuesses(tokens, tokens.astype(np.float32), flat, flat, extras, extras)


BAD_DRAFTS = [
    ("logits", "draft probabilities must be between 0 and 1 .a softmax, no logits., got -2.9"),
    ("large", "draft probabilities must be between 0 and 1"),
    ("shape", rf"draft must return probabilities of shape \[1, {VOCAB}\], got \[1, {VOCAB - 1}\]"),
    ("text", "draft must return an array of probabilities, got str"),
    ("stray", f"draft tokens must be between 0 and {VOCAB - 1}, or -1, got {VOCAB}"),
    ("extras", "draft guesses' extra_probs must be 1 numbers, got .99."),
    ("rows", "draft guesses must be of the call's 1 rows, got shapes"),
]


@pytest.mark.parametrize(("kind", "message"), [*BAD_DRAFTS, ("raises", "out of memory")])
def test_a_bad_draft_is_named_and_the_request_stands(kind: str, message: str) -> None:
    controller = controller_of("topn:12x3,sources=draft" if kind != "extras" else EverythingPolicy())
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin([3, 7, 1, 3, 7, 1, 3], 25)
    if kind == "extras":  # the first growth comes before the lookup's candidates; make them the second question
        message = r"draft guesses' extra_\w+ must be \d+ numbers, got \[99\]"
    for _ in range(2):
        with pytest.raises((ParameterError, RuntimeError), match=message):
            controller.propose(0, lambda call: answers(kind, call))
    loop.run()
    assert loop.completion(0, [3, 7, 1, 3, 7, 1, 3]) == plain_text([3, 7, 1, 3, 7, 1, 3], greedy(TARGET), 25)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_have_no_guesses(value: float) -> None:
    controller = controller_of("topn:12x3,sources=draft")
    controller.begin(PROMPTS[0], 10)

    def half_broken(call: DraftCall) -> Any:
        probs = np.full((call.num_rows, VOCAB), 1.0 / VOCAB, dtype=np.float32)
        probs[::2, 3] = value  # the root and every second row
        return probs

    assert controller.propose(0, half_broken).num_nodes == 0
    controller.accept(0, [1])
    assert controller.counters.unhealthy_rows == 1
    assert controller.counters.failures == 0


class Fails(EverythingPolicy):
    """Raises from the second round of any request on."""

    def expand(self, level: Level) -> Expansion:
        if level.context.generated_tokens[0] > 0:
            raise ValueError("no idea")
        return super().expand(level)


def test_a_failing_policy_is_told_once_counted_and_survived() -> None:
    controller = controller_of(Fails())
    with pytest.warns(RuntimeWarning, match="no idea") as told:
        first = decode(controller)
        decoded = Loop(controller, greedy(TARGET), DRAFT_MODEL)
        request = decoded.begin(PROMPTS[1], 12)
        decoded.run()
    assert_texts(first)
    assert decoded.completion(request, PROMPTS[1]) == plain_text(PROMPTS[1], greedy(TARGET), 12)
    counters = controller.counters
    assert counters.fallbacks == counters.failures == counters.rounds - 4
    assert len(told) == 1


def test_a_slow_policy_is_suspended_for_its_request_alone() -> None:
    now = [0.0]

    class Slow(EverythingPolicy):
        def expand(self, level: Level) -> Expansion:
            now[0] += 1.0 if level.context.request_id[0] == 0 else 0.001
            return super().expand(level)

    controller = Controller(
        Slow(),
        cost=COST,
        vocab_size=VOCAB,
        settings=ControllerSettings(envelope=SMALL, time_limit_ms=100.0),
        clock=lambda: now[0],
    )
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    for prompt in PROMPTS[:2]:
        loop.begin(prompt, 30)
    loop.run()
    for number, prompt in enumerate(PROMPTS[:2]):
        assert loop.completion(number, prompt) == plain_text(prompt, greedy(TARGET), 30)
    assert 0 < controller.counters.suspensions < len(loop.accepted[0])
    assert controller.counters.fallbacks == 0
    assert controller.counters.policy_seconds >= 3.0


def test_a_withdrawn_tree_leaves_no_trace() -> None:
    controller = controller_of()
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    loop.begin(PROMPTS[0], 25)
    while 0 not in loop.finishes:
        first = loop.propose(0)
        controller.withdraw(0)
        with pytest.raises(ParameterError, match="accept must follow propose, got request 0 without a tree"):
            controller.accept(0, [0] * first.num_rows)
        again = loop.propose(0)
        assert again.tokens.tolist() == first.tokens.tolist()
        loop.accept(0, again, loop.verify(0, again))
    assert loop.completion(0, PROMPTS[0]) == plain_text(PROMPTS[0], greedy(TARGET), 25)


class Memory(EverythingPolicy):
    """Notes what it is told of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, str]] = []

    def begin(self, request: RequestInfo) -> None:
        self.told.append((request.request_id, f"{request.prompt_tokens}+{request.max_new_tokens}"))

    def finish(self, request_id: int, reason: str) -> None:
        self.told.append((request_id, reason))


class Remembers(EverythingPolicy):
    """No fallback: it keeps something."""

    state: State = "request"


def test_requests_end_when_the_loop_says_so() -> None:
    policy = Memory()
    controller = controller_of(policy)
    loop = Loop(controller, greedy(TARGET), DRAFT_MODEL)
    first, second = loop.begin(PROMPTS[0], 9), loop.begin(PROMPTS[1], 5)
    loop.propose(second)  # a tree that waits is no hindrance
    controller.finish(second, "error")
    assert controller.open_requests == (first,)
    with pytest.raises(ParameterError, match="request must be one that began and did not finish, got 1"):
        controller.propose(second, loop.drafts[second])
    with pytest.raises(ParameterError, match="reason must be one of eos, length, error, got 'done'"):
        controller.finish(first, "done")
    controller.finish(first, "eos")
    assert policy.told == [(0, "8+9"), (1, "1+5"), (1, "error"), (0, "eos")]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompt_tokens": []}, PromptError, "prompt_tokens must be at least one token, got none"),
        ({"prompt_tokens": [1, VOCAB]}, ParameterError, rf"token ids between 0 and {VOCAB - 1}, got \[{VOCAB}\]"),
        ({"prompt_tokens": [0.5]}, ParameterError, "prompt_tokens must be whole numbers"),
        ({"prompt_tokens": [[1], [2]]}, ParameterError, r"prompt_tokens must be whole numbers, .* of shape \[2, 1\]"),
        ({"max_new_tokens": 0}, ParameterError, "max_new_tokens must be >= 1, got 0"),
        ({"temperature": -1.0}, ParameterError, "temperature must be finite and >= 0, got -1.0"),
        ({"temperature": float("nan")}, ParameterError, "temperature must be finite"),
        ({"seed": 0.5}, ParameterError, "seed must be a whole number between .*, got 0.5"),
        ({"seed": -1}, ParameterError, "seed must be a whole number between .*, got -1"),
        ({"seed": 2**63}, ParameterError, f"seed must be a whole number between .*, got {2**63}"),
    ],
)
def test_requests_that_cannot_begin(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    controller = controller_of()
    with pytest.raises(error, match=message):
        controller.begin(**{"prompt_tokens": [1, 2], "max_new_tokens": 4, **arguments})
    assert controller.open_requests == () and controller.counters.requests == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": "topm"}, PolicySpecError, "policy must be one of .*, got 'topm'"),
        ({"policy": object()}, ParameterError, "policy must be an object with state, reach"),
        ({"cost": "a100"}, ParameterError, "cost must be a CostProfile, got 'a100'"),
        ({"vocab_size": 0}, ParameterError, "vocab_size must be >= 1, got 0"),
        ({"sources": 4}, ParameterError, "sources must be bits of LOOKUP and DRAFT, got 4"),
        ({"fallback": Remembers()}, ParameterError, "fallback must be a policy of state 'none'"),
        ({"settings": ControllerSettings(eos_token_ids=(VOCAB,))}, ParameterError, "eos_token_ids must be token ids"),
        ({"settings": ControllerSettings(corpus_tokens=(-1,))}, ParameterError, "corpus_tokens must be token ids"),
        ({"settings": ControllerSettings(row_buckets=(8, 4))}, ParameterError, "row_buckets must be ascending"),
        ({"settings": ControllerSettings(draft_token_ids=(1, 1))}, ParameterError, "draft_token_ids must be distinct"),
        ({"settings": ControllerSettings(draft_token_ids=(VOCAB,))}, ParameterError, "draft_token_ids must be between"),
        ({"settings": ControllerSettings(time_limit_ms=0.0)}, ParameterError, "time_limit_ms must be above 0, got 0.0"),
    ],
)
def test_controllers_that_cannot_be(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Controller(**{"policy": "topn", "cost": COST, "vocab_size": VOCAB, **arguments})


def test_a_draft_is_asked_for_exactly_where_there_is_one() -> None:
    with_draft, without = controller_of(), controller_of(sources=LOOKUP)
    for controller in (with_draft, without):
        controller.begin([1, 2], 4)
    with pytest.raises(ParameterError, match="draft must be a callable where sources hold DRAFT, got None"):
        with_draft.propose(0)
    with pytest.raises(ParameterError, match="draft must be None where sources lack DRAFT"):
        without.propose(0, lambda call: np.zeros((1, VOCAB)))
    without.propose(0)
    with pytest.raises(ParameterError, match="propose must be called once before accept or withdraw"):
        without.propose(0)


BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "onnxruntime", "lightgbm", "sklearn", "pyarrow"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
"""


def test_a_bundle_decides_without_torch_onnxruntime_and_lightgbm(tmp_path: Path) -> None:
    folder = tiny_bundle().save(tmp_path / "bundle")
    code = f"""{BLOCKED}
import numpy as np
from treewise.data.cost import CostProfile
from treewise.policy.chain_controller import ChainController, ChainSignals
from treewise.policy.controller import Controller
cost = CostProfile.load("example-a100-70b")
controller = Controller("learned:{folder}", cost=cost, vocab_size={VOCAB})
request, finish = controller.begin([1, 2, 3, 1, 2], 12), ""
while not finish:
    tree = controller.propose(request, lambda call: np.eye({VOCAB})[(call.tokens + 1) % {VOCAB}])
    step = controller.accept(request, (tree.tokens + 1) % {VOCAB})
    finish = step.finish
chain = ChainController("learned:{folder}", cost=cost)
print(controller.counters.committed_tokens, controller.counters.failures, controller.counters.rounds < 12)
print(0 <= chain.depth(ChainSignals.of([5], draft_agreement=0.9)) <= 8, chain.counters.failures)
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.stderr, run.stdout.split()) == ("", ["12", "0", "True", "True", "0"])


def test_parsed_and_given_policies_are_named_alike() -> None:
    assert controller_of("topn:12x3").spec == controller_of(parse_policy("topn:12x3")).spec == "topn:12x3"
    assert controller_of(EverythingPolicy()).spec == "EverythingPolicy"
