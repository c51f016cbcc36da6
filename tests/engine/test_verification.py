"""Verification rules by name, on a target whose law is known, and through whole requests."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.driving import PROMPT, checked_rounds, engine_of
from tests.engine.tiny import NARROW, VOCAB, example_cost, lax_settings, plain_text, tiny_pair
from treewise.data.errors import LossyWarning, ParameterError, TraceError
from treewise.data.prompt_set import Prompt
from treewise.data.trace_reader import TraceReader
from treewise.engine import collect
from treewise.engine.collect import CollectSettings, collect_live
from treewise.engine.decode import Engine, EngineSettings
from treewise.engine.sampling import Sampling
from treewise.engine.verification import Verification
from treewise.policy.registry import parse_policy
from treewise.training.logged_trace import open_trace

#                     token: 0     1     2     3      4
LAW = np.asarray([0.04, 0.5, 0.3, 0.15, 0.01])
LOGITS = torch.from_numpy(np.log(LAW))
GREEDY = Sampling()
LOSSY = ["relaxed-top-n:3", "threshold:0.05", "threshold"]


def chosen(rule: str, children: Sequence[int], sampling: Sampling = GREEDY, position: int = 3) -> int:
    return Verification.parse(rule).choose(LOGITS, position, sampling, np.asarray(children, dtype=np.int32))


@pytest.mark.parametrize(
    ("rule", "children", "token"),
    [
        ("exact", [2, 3], 1),
        ("threshold:0.2", [2, 3], 2),
        ("threshold:0.2", [3, 2], 2),  # the likeliest, wherever it stands
        ("threshold:0.2", [3, 0], 1),  # none is above: the target's own
        ("threshold:0.1", [4, 3], 3),
        ("threshold:0.2", [2, 1], 1),  # the target's own is among them
        ("threshold:0.0", [4], 4),
        ("threshold", [2], 1),  # 0.45
        ("relaxed-top-n:1", [2, 3], 1),
        ("relaxed-top-n:2", [2, 3], 2),
        ("relaxed-top-n:2", [3], 1),
        ("relaxed-top-n:3", [3, 4], 3),
        ("relaxed-top-n:5", [4], 4),
        ("relaxed-top-n:5", [], 1),
    ],
)
def test_which_child_is_taken(rule: str, children: list[int], token: int) -> None:
    assert chosen(rule, children) == token


def test_the_probability_is_that_of_the_warped_law_at_the_requests_temperature() -> None:
    cold = Sampling(0.5)  # squares: 0.3 becomes 0.25
    hot = Sampling(2.0)  # square roots: 0.15 becomes 0.19
    squares, roots = LAW**2 / (LAW**2).sum(), LAW**0.5 / (LAW**0.5).sum()
    for sampling, law, child in ((cold, squares, 2), (hot, roots, 3)):
        place = next(p for p in range(99) if chosen("exact", [], sampling, p) != child)
        share = float(law[child])
        assert chosen(f"threshold:{share - 0.01}", [child], sampling, place) == child
        assert chosen(f"threshold:{share + 0.01}", [child], sampling, place) == chosen("exact", [], sampling, place)
    # a token that the warpers leave out is never taken
    cut = Sampling(1.0, top_k=2)
    assert chosen("threshold:0.0", [3], cut) in (1, 2)
    assert chosen("relaxed-top-n:5", [3], cut) in (1, 2)


def test_equal_children_are_taken_by_id() -> None:
    flat = torch.tensor([3.0, 1.0, 2.0, 2.0])
    rule = Verification.parse("relaxed-top-n:2")
    assert rule.choose(flat, 0, GREEDY, np.asarray([3, 2], dtype=np.int32)) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("typical", "verification must be exact, relaxed-top-n:N or threshold:P, got 'typical'"),
        ("exact:3", "verification must be exact, .* got 'exact:3'"),
        ("", "verification must be exact, .* got ''"),
        ("relaxed-top-n", "verification must be exact, .* got 'relaxed-top-n'"),
        ("relaxed-top-n:x", "verification must be exact, .* got 'relaxed-top-n:x'"),
        ("relaxed-top-n:0", "relaxed-top-n's number must be >= 1, got 0"),
        ("threshold:", "verification must be exact, .* got 'threshold:'"),
        ("threshold:1", "threshold's number must be at least 0 and below 1, got 1.0"),
        ("threshold:nan", "threshold's number must be at least 0 and below 1, got nan"),
    ],
)
def test_specs_that_name_no_rule(spec: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Verification.parse(spec)
    with pytest.raises(ParameterError, match=message):
        engine_of(tiny_pair(), verification=spec)


@pytest.mark.parametrize(
    "spec", ["exact", "relaxed-top-n:3", "threshold:0.45", "threshold:0.1", "threshold:0.999999999"]
)
def test_specs_come_back(spec: str) -> None:
    assert Verification.parse(spec).spec == spec
    assert Verification.parse("threshold").spec == "threshold:0.45"


@pytest.mark.parametrize("rule", LOSSY)
def test_a_lossy_engine_says_what_is_lost(rule: str) -> None:
    with pytest.warns(LossyWarning, match="no longer equals plain decoding's.*target's law.*neither be replayed"):
        engine_of(tiny_pair(), verification=rule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine_of(tiny_pair(), verification="exact")


@pytest.mark.filterwarnings("ignore::treewise.data.errors.LossyWarning")
@pytest.mark.parametrize("rule", LOSSY)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, seed=4), Sampling(0.8, top_p=0.9, seed=2)], ids=repr)
def test_a_lossy_rule_accepts_no_less_in_the_first_round(rule: str, sampling: Sampling) -> None:
    pair = tiny_pair("other", seed=1)
    longer = differing = 0
    for seed in range(4):
        prompt = np.random.default_rng(seed).integers(0, VOCAB, 6).tolist()
        strict = next(engine_of(pair, "topn:16x4", ranking="plain").rounds(prompt, 10, sampling))
        kept, reach = int(strict.walk.accepted_length[0]), strict.committed
        loose = engine_of(pair, "topn:16x4", verification=rule)
        records = list(checked_rounds(loose, prompt, 10, sampling))
        text = tuple(token for record in records for token in record.committed)
        assert int(records[0].walk.accepted_length[0]) >= kept
        assert records[0].committed[:kept] == reach[:kept]
        assert len(text) == 10
        for record in records:  # metrics count as under the exact rule
            assert len(record.committed) == int(record.walk.accepted_length[0]) + 1
        longer += int(records[0].walk.accepted_length[0]) > kept
        differing += text != plain_text(pair, prompt, 10, sampling)
    if rule != "threshold":  # above 0.45 there is hardly a token but the target's own
        assert longer > 0
        assert differing > 0


@pytest.mark.filterwarnings("ignore::treewise.data.errors.LossyWarning")
@pytest.mark.parametrize("rule", ["exact", "relaxed-top-n:1", "threshold:0.999"])
def test_rules_that_leave_no_choice_give_plain_decoding(rule: str) -> None:
    pair = tiny_pair("other", seed=1)
    engine = engine_of(pair, "everything", verification=rule)
    assert engine.generate(PROMPT, 30).tokens == plain_text(pair, PROMPT, 30, GREEDY)


@pytest.mark.filterwarnings("ignore::treewise.data.errors.LossyWarning")
def test_without_guesses_every_rule_is_plain_decoding() -> None:
    pair = tiny_pair("other", seed=1)
    sampling = Sampling(1.0, seed=8)
    engine = engine_of(pair, "plain", verification="threshold:0.0")
    assert engine.generate(PROMPT, 20, sampling).tokens == plain_text(pair, PROMPT, 20, sampling)


def test_a_lossy_trace_is_marked_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "encode_prompt", lambda pair, text: [int(word) for word in text.split()])
    pair, prompts = tiny_pair("other"), (Prompt("p", "chat", "3 7 1 3 7 1"),)
    settings = lax_settings(envelope=NARROW, verification="threshold")
    with pytest.warns(LossyWarning):
        collect_live(pair, "topn:8x2", example_cost(), prompts, tmp_path / "t", CollectSettings(8), settings)
    reader = TraceReader(tmp_path / "t")
    assert reader.manifest.verification == "threshold:0.45"
    reader.read_all().check()
    refused = (
        "verification of trace t must be 'exact' for replay, A/B tests and training, got 'threshold:0.45'.*"
        "collect the trace again with `--verification exact`"
    )
    with pytest.raises(TraceError, match=refused):
        open_trace(tmp_path / "t")
    # the same folder takes no rounds under another rule
    exact = replace(settings, verification="exact")
    with pytest.raises(TraceError, match=r"verification 'threshold:0.45' != 'exact'"):
        collect_live(pair, "topn:8x2", example_cost(), prompts, tmp_path / "t", CollectSettings(8), exact)


def test_policies_see_the_lossy_engine_as_any_other() -> None:
    with pytest.warns(LossyWarning):
        engine = Engine(
            tiny_pair("same"), parse_policy("entropy"), example_cost(), lax_settings(verification="relaxed-top-n:2")
        )
    completion = engine.generate(PROMPT, 20, Sampling(1.0, seed=1))
    assert (completion.fallbacks, completion.suspensions, len(completion.tokens)) == (0, 0, 20)


def test_a_lossy_rule_does_not_rank_with_noise() -> None:
    pair, cost = tiny_pair("same"), example_cost()
    with pytest.warns(LossyWarning):
        engine = Engine(pair, parse_policy("chain:2"), cost, EngineSettings(verification="threshold:0.1"))
    assert engine.ranking == "plain"
    chosen = EngineSettings(verification="threshold:0.1", ranking="both")
    rule = "ranking must be plain with the lossy verification 'threshold:0.1', got 'both'"
    with pytest.raises(ParameterError, match=rule):
        Engine(pair, parse_policy("chain:2"), cost, chosen)
