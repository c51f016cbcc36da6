"""Exploration of a live collection: who decides is drawn, logged, and the same when the collection goes on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.test_collect import PROMPTS, SETTINGS, encode, texts_in
from tests.engine.tiny import example_cost, lax_settings, tiny_pair
from treewise.data.errors import ParameterError, PolicySpecError, TraceError
from treewise.data.prompt_set import Prompt
from treewise.data.trace_reader import TraceReader
from treewise.engine import collect
from treewise.engine.collect import collect_live
from treewise.engine.exploration import EXPLORERS, Exploration
from treewise.policy.registry import parse_policy

MANY = tuple(Prompt(f"p{number}", "chat", "dcdghi"[number % 4 :]) for number in range(10))
HALF = Exploration(0.5, ("chain:2", "topn:4x2"))


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny pairs have no tokenizer: a letter is a token."""
    monkeypatch.setattr(collect, "encode_prompt", encode)


def test_draws_follow_the_probability_and_the_generator() -> None:
    """2000 requests: outside five standard errors with probability below one in a million."""
    drawn = Exploration(0.3, ("chain:2", "chain:3", "plain")).draw(np.random.default_rng(1), 2000)
    share = np.mean([decider.explorer != "" for decider in drawn])
    assert abs(share - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 2000)
    assert {(decider.explorer, round(decider.propensity, 9)) for decider in drawn} == {
        ("", 0.7),
        ("chain:2", 0.1),
        ("chain:3", 0.1),
        ("plain", 0.1),
    }
    assert sum(1.0 / decider.propensity for decider in drawn) / 2000 == pytest.approx(4.0, abs=0.6)
    assert HALF.draw(np.random.default_rng(5), 20) == HALF.draw(np.random.default_rng(5), 20)
    assert HALF.draw(np.random.default_rng(5), 20) != HALF.draw(np.random.default_rng(6), 20)
    assert all(parse_policy(spec) for spec in EXPLORERS)


def test_the_text_stays_and_the_trace_says_who_decided(tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2)
    cost, lax = example_cost(), lax_settings()
    collect_live(pair, "chain:3", cost, MANY, tmp_path / "plain", SETTINGS, lax)
    generator = np.random.default_rng(4)
    collect_live(pair, "chain:3", cost, MANY, tmp_path / "explored", SETTINGS, lax, None, HALF, generator)
    assert texts_in(tmp_path / "explored") == texts_in(tmp_path / "plain")
    expected = HALF.draw(np.random.default_rng(4), len(MANY))
    rounds = TraceReader(tmp_path / "explored").read_all().rounds
    said = {
        str(name): (str(explorer), float(propensity))
        for name, explorer, propensity in zip(rounds.prompt_id, rounds.explorer, rounds.propensity, strict=True)
    }
    assert said == {prompt.id: (one.explorer, one.propensity) for prompt, one in zip(MANY, expected, strict=True)}
    assert {explorer for explorer, _ in said.values()} == {"", "chain:2", "topn:4x2"}
    assert rounds.accepted_length[rounds.explorer == "chain:2"].max() <= 2
    plain = TraceReader(tmp_path / "plain").read_all().rounds
    assert set(plain.explorer.tolist()) == {""} and set(plain.propensity.tolist()) == {1.0}


def test_a_collection_goes_on_with_the_same_choices(tmp_path: Path) -> None:
    pair = tiny_pair("pruned", seed=2)
    small = replace(SETTINGS, shard_rounds=1)

    def stop(prompt_id: str, tokens: int) -> None:
        if prompt_id == "p3":
            raise KeyboardInterrupt

    def run(folder: Path, told: object, exploration: Exploration = HALF) -> int:
        generator = np.random.default_rng(9)
        told_of = stop if told is stop else None
        return collect_live(
            pair, "chain:3", example_cost(), MANY, folder, small, lax_settings(), told_of, exploration, generator
        )

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", stop)
    assert run(tmp_path / "cut", None) == 4
    run(tmp_path / "whole", None)
    cut, whole = (TraceReader(tmp_path / name).read_all().rounds for name in ("cut", "whole"))
    assert cut.explorer.tolist() == whole.explorer.tolist()
    with pytest.raises(TraceError, match="input_hashes"):
        run(tmp_path / "cut", None, replace(HALF, probability=0.4))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Exploration(0.0), ParameterError, "explore must be above 0 and below 1, got 0.0"),
        (lambda: Exploration(1.0), ParameterError, "explore must be above 0 and below 1, got 1.0"),
        (lambda: Exploration(0.1, ()), ParameterError, "explore_policies must be at least one, each named once"),
        (lambda: Exploration(0.1, ("plain", "plain")), ParameterError, "explore_policies must be at least one"),
        (lambda: Exploration(0.1, ("sage:3",)), PolicySpecError, "policy must be one of"),
    ],
)
def test_bad_explorations(make: object, error: type[Exception], message: str) -> None:
    assert callable(make)
    with pytest.raises(error, match=re.escape(message)):
        make()


def test_exploring_needs_a_generator_and_other_policies(tmp_path: Path) -> None:
    pair = tiny_pair("none", seed=2)
    for exploration, generator in ((HALF, None), (None, np.random.default_rng(0))):
        with pytest.raises(ParameterError, match="generator must be given with exploration, and only then"):
            collect_live(pair, "plain", example_cost(), PROMPTS, tmp_path, SETTINGS, None, None, exploration, generator)
    with pytest.raises(ParameterError, match="explore_policies must be others, got 'chain:2'"):
        collect_live(
            pair, "chain:2", example_cost(), PROMPTS, tmp_path, SETTINGS, None, None, HALF, np.random.default_rng(0)
        )
