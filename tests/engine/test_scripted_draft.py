"""A draft that follows a script: it is right as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.tiny import RandomPolicy, example_cost, lax_settings, plain_text, tiny_pair
from treewise.data.errors import ParameterError
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.decode import Engine
from treewise.engine.sampling import Sampling
from treewise.engine.scripted_draft import Script, follow
from treewise.policy.hook import DRAFT
from treewise.policy.registry import parse_policy

PROMPTS = ([3, 1, 4, 1, 5], [9, 2, 6, 5])
HITS = 4000  # tokens of the long script


@pytest.mark.parametrize("hit", [0.3, 0.6])
def test_a_script_is_calibrated(hit: float) -> None:
    text = np.random.default_rng(1).integers(0, 500, HITS).tolist()
    script = Script.of(text, hit, 4, 500, seed=2)
    right = script.tokens == np.asarray(text)[:, None]
    # Five standard deviations of a share of 4000: a false alarm in 1.7 million runs.
    assert abs(right[:, 0].mean() - hit) < 5 * 0.5 / HITS**0.5
    assert np.abs(right.mean(axis=0) - script.probs.mean(axis=0)).max() < 5 * 0.5 / HITS**0.5
    sure = script.probs[:, 0] > hit
    assert right[sure, 0].mean() > right[~sure, 0].mean() + 0.2
    assert right.sum(axis=1).max() == 1
    assert all(len(set(row)) == 4 for row in script.tokens.tolist())
    assert (np.diff(script.probs[:, 1:], axis=1) <= 0).all() and float(script.probs.sum(axis=1).max()) <= 1.0
    assert (script.entropy > 0).all()
    again = Script.of(text, hit, 4, 500, seed=2)
    assert np.array_equal(again.tokens, script.tokens)
    assert not np.array_equal(Script.of(text, hit, 4, 500, seed=3).tokens, script.tokens)


def scripts_of(hit: float, width: int, sampling: list[Sampling]) -> dict[int, Script]:
    pair = tiny_pair("pruned")
    texts = [[*prompt, *plain_text(pair, prompt, 20, own)] for prompt, own in zip(PROMPTS, sampling, strict=True)]
    return {own.seed: Script.of(text, hit, width, 24, own.seed) for text, own in zip(texts, sampling, strict=True)}


def test_engines_follow_it() -> None:
    pair = tiny_pair("pruned")
    sampling = [Sampling(seed=0), Sampling(0.7, seed=1)]
    scripts = scripts_of(0.95, 3, sampling)
    settings = lax_settings(ranking="plain", use_lookup=False, use_recycled=False)
    found = []
    engine = Engine(pair, parse_policy("chain:4"), example_cost(), settings)
    follow(engine, scripts)
    for prompt, own in zip(PROMPTS, sampling, strict=True):
        answer = engine.generate(prompt, 20, own)
        assert answer.tokens == plain_text(pair, prompt, 20, own)
        assert answer.tokens_per_round > 2.0  # an untrained draft gets nowhere near
        found.append(answer.tokens)
    many = BatchEngine(pair, parse_policy("chain:4"), example_cost(), settings, max_batch=2)
    follow(many, scripts)
    answers = many.generate_many([BatchRequest(prompt, 20, own) for prompt, own in zip(PROMPTS, sampling, strict=True)])
    assert [answer.tokens for answer in answers] == found
    assert min(answer.tokens_per_round for answer in answers) > 2.0


def test_tokens_of_other_sources_have_the_scripts_probabilities() -> None:
    pair, sampling = tiny_pair("pruned"), [Sampling(seed=0), Sampling(seed=1)]
    scripts = scripts_of(0.6, 3, sampling)
    engine = Engine(pair, RandomPolicy(3), example_cost(), lax_settings(ranking="plain"))
    follow(engine, scripts)
    seen = 0
    for record in engine.rounds(PROMPTS[0], 20, sampling[0]):
        forest, position = record.tree.forest, int(record.context.position[0])
        columns = ("sources", "draft_prob", "draft_rank", "token", "depth")
        for bits, prob, rank, token, depth in zip(*(forest.column(name).tolist() for name in columns), strict=True):
            if np.isfinite(prob) and np.isfinite(rank) and rank < 3 and bits & DRAFT and depth:
                at = min(position + depth, len(scripts[0].tokens) - 1)
                assert scripts[0].tokens[at, int(rank)] == token
                assert prob == scripts[0].probs[at, int(rank)]
                seen += 1
    assert seen > 10


def test_what_cannot_follow_is_refused() -> None:
    scripts = scripts_of(0.6, 3, [Sampling(seed=0), Sampling(seed=1)])
    with pytest.raises(ParameterError, match="engine must have a draft model to follow a script"):
        follow(Engine(tiny_pair("none"), RandomPolicy(), example_cost(), lax_settings(ranking="plain")), scripts)
    with pytest.raises(ParameterError, match="ranking must be plain where a draft follows a script, got 'both'"):
        follow(Engine(tiny_pair("pruned"), RandomPolicy(), example_cost(), lax_settings()), scripts)
    engine = Engine(tiny_pair("pruned"), parse_policy("chain"), example_cost(), lax_settings(ranking="plain"))
    follow(engine, scripts)
    with pytest.raises(ParameterError, match="seed must be one with a script, got 7"):
        engine.generate(PROMPTS[0], 5, Sampling(seed=7))
    with pytest.raises(ParameterError, match=r"hit must be above 0 and below 1, got 1\.0"):
        Script.of([1, 2], 1.0, 2, 24)
