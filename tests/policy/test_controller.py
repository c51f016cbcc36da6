"""The controller: other people's loops decode the same text, faster, and lose nothing when something goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.policy.controlled import DRAFT_MODEL, PROMPTS, TARGET, assert_texts, controller_of, decode
from tests.policy.loops import COST, VOCAB, Loop, drawn, greedy, plain_text
from tests.policy.models import tiny_bundle
from treewise.data.envelope import Envelope
from treewise.data.errors import BundleError, ParameterError
from treewise.policy.controller import Controller
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy


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
