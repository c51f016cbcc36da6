"""Live runs of several policies, their figures, and where texts part."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.policy.recognisers import SETTINGS, write_table
from tests.treewise.tiny import HASTY
from treewise.data.cost import CostProfile
from treewise.data.errors import BundleError, PolicySpecError
from treewise.data.prompt_set import Prompt
from treewise.engine.decode import Completion, Engine
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.sampling import Sampling, target_token
from treewise.live import PLAIN, Asked, LiveFigures, policy_for, run_live, take_turns
from treewise.live_batch import run_live_batched
from treewise.policy.bundle import Bundle
from treewise.shipped import split_trace, train_part
from treewise.texts import Divergence, first_divergence, margin_at

COST = CostProfile.load("example-a100-70b")


def test_policies_take_turns_and_texts_are_equal(pair: Pair) -> None:
    prompts = {name: encode_prompt(pair, name) for name in ("red red red", "blue", "a b a b a")}
    told: list[str] = []
    run = run_live(pair, COST, ["entropy", "chain:2"], prompts, 10, Sampling(1.0, seed=3), advance=told.append)
    assert set(run.answers) == {PLAIN, "entropy", "chain:2"}
    assert [told[place].partition(" ")[0] for place in (0, 3, 6)] == ["plain", "entropy", "chain"]
    assert run.differing("entropy") == run.differing("chain:2") == 0
    found = run.figures("entropy")
    assert found.requests == 3
    assert found.tokens == run.figures(PLAIN).tokens == sum(len(answer.tokens) for answer in run.answers["entropy"])
    assert run.figures(PLAIN).tokens_per_round == 1.0
    assert run.speedup(PLAIN) == 1.0


def test_every_engine_is_warm_before_anything_counts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {name: Engine(pair, policy_for(pair, spec), COST) for name, spec in (("one", PLAIN), ("two", "entropy"))}
    asked: list[tuple[Engine, int]] = []
    generate = Engine.generate

    def noted(engine: Engine, ids: list[int], longest: int, sampling: Sampling, task: str = "") -> Completion:
        asked.append((engine, longest))
        return generate(engine, ids, longest, sampling, task)

    monkeypatch.setattr(Engine, "generate", noted)
    texts = [Asked(text, encode_prompt(pair, text), Sampling()) for text in ("red red", "blue")]
    given = [(name, len(answer.tokens)) for name, answer in take_turns(engines, texts, 5, warm_tokens=2)]
    one, two = engines.values()
    assert asked == [(one, 2), (two, 2), (one, 5), (two, 5), (two, 5), (one, 5)]
    assert [name for name, _ in given] == ["one", "two", "two", "one"]
    assert given[0][1] == given[1][1] > 0


@pytest.mark.parametrize("batch_size", [1, 2])
def test_policies_are_told_the_kind_of_task(pair: Pair, batch_size: int, tmp_path: Path) -> None:
    by_task = f"by-task:{write_table(tmp_path)}"
    asked = {text: Prompt(text, "rag", text) for text in ("hello", "json", "else")}
    encoded = {name: encode_prompt(pair, name) for name in asked}

    def nodes(spec: str, known: dict[str, Prompt] | None) -> list[tuple[int, ...]]:
        if batch_size == 1:
            run = run_live(pair, COST, [spec], encoded, 12, has_plain=False, asked=known)
        else:
            run = run_live_batched(pair, COST, [spec], encoded, 12, batch_size, has_plain=False, asked=known)
        return [answer.verified_nodes for answer in run.answers[spec]]

    own = [nodes(SETTINGS[row], None)[place] for place, row in enumerate(("chat", "structured", "unknown"))]
    assert nodes(by_task, asked) == own
    assert nodes(by_task, None) == nodes(SETTINGS["unknown"], None) != own


def test_figures_add_up_and_come_back(pair: Pair) -> None:
    run = run_live(pair, COST, ["entropy"], {"a": encode_prompt(pair, "aaaa"), "b": encode_prompt(pair, "b")}, 6)
    parts = [LiveFigures.of("entropy", [answer]) for answer in run.answers["entropy"]]
    total = LiveFigures.total("entropy", parts)
    assert total.tokens == run.figures("entropy").tokens
    assert total.decode_seconds == pytest.approx(run.figures("entropy").decode_seconds)
    assert 0.0 < total.policy_share < total.overhead_share < 1.0
    assert LiveFigures.from_json(json.loads(json.dumps(total.to_json()))) == total


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_margin_is_that_of_the_rule(pair: Pair, temperature: float) -> None:
    sampling = Sampling(temperature, seed=5)
    prompt = encode_prompt(pair, "red green")
    answer = Engine(pair, policy_for(pair, PLAIN), COST).generate(prompt, 6, sampling).tokens
    assert first_divergence(pair, prompt, answer, list(answer), sampling) is None
    wrong = (answer[3] + 1) % pair.description.vocab_size
    found = first_divergence(pair, prompt, answer, [*answer[:3], wrong, *answer[4:]], sampling)
    assert found is not None
    assert (found.place, found.expected, found.found) == (3, answer[3], wrong)
    assert found.margin > 0
    # Taking the best token away leaves the second best ahead by less than the margin said, or by nothing.
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, *answer[:3]]])
        logits = pair.target(input_ids=ids, use_cache=False).logits[0, -1]
    lowered = logits.clone()
    lowered[answer[3]] -= found.margin * (temperature or 1.0) * 0.99
    assert target_token(lowered, ids.shape[1], sampling) == answer[3]
    lowered[answer[3]] -= found.margin * (temperature or 1.0) * 0.02
    assert target_token(lowered, ids.shape[1], sampling) != answer[3]


def test_a_shorter_text_diverges_where_it_ends(pair: Pair) -> None:
    prompt = encode_prompt(pair, "red")
    found = first_divergence(pair, prompt, (5, 6, 7), (5, 6), Sampling())
    assert found == Divergence(2, 7, -1, margin_at(pair, [*prompt, 5, 6], Sampling()))
    assert str(found).startswith("token 2: -1 instead of 7, top-2 margin ")


def test_a_bundle_of_another_pair_is_refused(pair: Pair, traces: Path, tmp_path: Path) -> None:
    train_part(split_trace(traces), COST, tmp_path / "policy", HASTY)
    spec = f"learned:{tmp_path / 'policy'}"
    assert policy_for(pair, spec).reach.depth >= 1
    bundle = Bundle.load(tmp_path / "policy")
    replace(bundle, pair=replace(bundle.pair, target_sha256="0" * 64)).save(tmp_path / "policy")
    with pytest.raises(BundleError, match="target_sha256"):
        policy_for(pair, spec)
    with pytest.raises(PolicySpecError, match="policy must be one of"):
        policy_for(pair, "magic")
