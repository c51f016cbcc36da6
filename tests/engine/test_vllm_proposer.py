"""The vLLM proposer against a stub of the model runner."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.stub_engines import END, MAX_MODEL_LEN, VOCAB, StubVllm, repetitive_text, vllm_config
from tests.policy.models import tiny_bundle
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import ParameterError, PolicySpecError
from treewise.data.suffix import SuffixIndex
from treewise.engine import lookup_chains
from treewise.engine.vllm_proposer import IDLE_STEPS, OPTIONS_VARIABLE, TreewiseProposer, options_of
from treewise.policy.chain import ChainPolicy, ChainSettings
from treewise.policy.hook import Expansion, Level

TEXTS = [repetitive_text(seed) for seed in range(3)]


class Failing(ChainPolicy):
    """A chain that fails in every round."""

    def expand(self, level: Level) -> Expansion:
        raise ZeroDivisionError("a fault of the policy")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_chains, "parse_policy", lambda spec: Failing(ChainSettings(length=2)))


def test_guesses_are_the_lookups_chain() -> None:
    proposer, text = TreewiseProposer(vllm_config(tokens=4)), TEXTS[0]
    index = SuffixIndex(text[:40])
    path: list[int] = []
    while len(path) < 4 and index.continuations(path).tokens:
        path.append(index.continuations(path).tokens[0])
    rows = np.full((1, MAX_MODEL_LEN), -1, dtype=np.int32)
    rows[0, :40] = text[:40]
    (guesses,) = proposer.propose([[text[39]]], np.asarray([40]), rows)
    assert guesses == path[: len(guesses)]
    assert 1 <= len(guesses) <= 4


def test_a_repetitive_text_takes_fewer_steps_than_tokens() -> None:
    proposer = TreewiseProposer(vllm_config())
    steps = StubVllm(TEXTS).run(proposer)
    assert steps < END - 16 - 10
    assert proposer.counters.accepted_tokens > 20
    assert proposer.counters.requests == len(TEXTS)
    assert (proposer.num_refused, proposer._chains.num_restarts) == (0, 0)


def test_every_round_is_told_to_the_policy() -> None:
    proposer, engine = TreewiseProposer(vllm_config()), StubVllm(TEXTS[:1])
    engine.run(proposer)
    counters = proposer.counters
    # The first step ends prefill; what the last one committed is never proposed behind.
    assert counters.rounds == engine.steps - 1
    assert counters.committed_tokens == counters.rounds + counters.accepted_tokens == engine.lengths[0] - 16 - 1


def test_rows_that_move_keep_their_requests() -> None:
    still, moving = TreewiseProposer(vllm_config()), TreewiseProposer(vllm_config())
    first, second = StubVllm(TEXTS), StubVllm(TEXTS)
    for number in range(8):
        first.step(still)
        second.step(moving, order=[[0, 1, 2], [2, 0, 1], [1, 2, 0]][number % 3])
    assert first.lengths == second.lengths
    assert first.guesses == second.guesses
    assert (moving.counters.requests, moving._chains.num_restarts) == (3, 0)


def test_a_request_that_sits_out_is_known_again_and_later_forgotten() -> None:
    proposer, engine = TreewiseProposer(vllm_config()), StubVllm(TEXTS)
    engine.step(proposer)
    engine.step(proposer, order=[0, 2])
    assert proposer.num_requests == 3
    engine.step(proposer, order=[2, 1, 0])
    assert proposer.counters.requests == 3
    for _ in range(IDLE_STEPS + 1):
        proposer.propose([], np.zeros(0, dtype=np.int32), engine.texts)
    assert proposer.num_requests == 0
    assert proposer.counters.finished == 3


def test_two_rows_of_one_text_are_two_requests() -> None:
    proposer, engine = TreewiseProposer(vllm_config()), StubVllm([TEXTS[0], TEXTS[0]])
    engine.step(proposer)
    engine.step(proposer, order=[1, 0])
    assert proposer.num_requests == proposer.counters.requests == 2
    assert engine.guesses[0] == engine.guesses[1]


def test_chains_that_the_scheduler_cuts_lose_no_text() -> None:
    proposer, engine = TreewiseProposer(vllm_config()), StubVllm(TEXTS)
    while engine.order:
        engine.step(proposer, cut=1)
    assert all(END <= length <= END + 1 for length in engine.lengths.values())
    assert proposer._chains.num_restarts > 0  # a round that may have ended anywhere starts its request over
    assert proposer.num_refused == 0


def test_prefill_rows_and_full_rows_get_nothing() -> None:
    proposer = TreewiseProposer(vllm_config())
    rows = np.tile(np.asarray(TEXTS[0][:16], dtype=np.int32), (3, MAX_MODEL_LEN // 16))
    guesses = proposer.propose([[], [1], [int(rows[2, 90])]], np.asarray([16, MAX_MODEL_LEN, 91]), rows)
    assert guesses[:2] == [[], []]
    assert 1 <= len(guesses[2]) <= 4


def test_guesses_stop_at_the_longest_text() -> None:
    proposer = TreewiseProposer(vllm_config(tokens=8))
    rows = np.tile(np.arange(4, dtype=np.int32), (1, MAX_MODEL_LEN // 4))
    length = MAX_MODEL_LEN - 3
    (guesses,) = proposer.propose([[0]], np.asarray([length]), rows)
    assert guesses == rows[0, length:-1].tolist()  # and one token more, the target's own


@pytest.mark.usefixtures("failing")
def test_a_failing_policy_leaves_the_plain_rule_and_is_counted() -> None:
    options = {"policy": "broken", "cost": "example-a100-70b"}
    proposer, plain = TreewiseProposer(vllm_config(options=options)), TreewiseProposer(vllm_config())
    with pytest.warns(RuntimeWarning, match="Failing failed and its fallback took over"):
        steps = StubVllm(TEXTS).run(proposer)
    assert steps == StubVllm(TEXTS).run(plain)
    assert proposer.counters.fallbacks == proposer.counters.rounds == plain.counters.rounds
    assert plain.counters.fallbacks == 0


def test_a_policy_that_reads_prices_guesses_less_where_rows_are_dear(tmp_path: Path) -> None:
    nodes = []
    for row_ms in (0.01, 1000.0):
        cost = CostProfile(
            "rows", CostGrid((1, 64), (0,), ((10.0, 10.0 + 64 * row_ms),)), CostGrid((1,), (0,), ((1.0,),))
        )
        cost.save(tmp_path / "cost.json")
        options = {"policy": "frontier", "cost": str(tmp_path / "cost.json"), "time_limit_ms": 10_000.0}
        proposer = TreewiseProposer(vllm_config(options=options))
        StubVllm(TEXTS).run(proposer)
        nodes.append(proposer.counters.verified_nodes)
        assert proposer.counters.fallbacks == 0
    assert nodes[0] > nodes[1]


def test_a_bundle_decides_without_a_draft(tmp_path: Path) -> None:
    tiny_bundle().save(tmp_path / "bundle")
    cost = CostProfile("rows", CostGrid((1, 64), (0,), ((10.0, 10.5),)), CostGrid((1,), (0,), ((1.0,),)))
    cost.save(tmp_path / "cost.json")
    options = {"policy": f"learned:{tmp_path / 'bundle'}", "cost": str(tmp_path / "cost.json"), "time_limit_ms": 1e4}
    proposer = TreewiseProposer(vllm_config(options=options))
    StubVllm(TEXTS).run(proposer)
    assert proposer.counters.accepted_tokens > 0
    assert (proposer.counters.fallbacks, proposer.counters.failures, proposer.num_refused) == (0, 0, 0)


def test_the_environment_overrides_the_configuration() -> None:
    config = vllm_config(options={"policy": "chain:2", "cost": "a.json"})
    found = options_of(config, {OPTIONS_VARIABLE: json.dumps({"cost": "b.json"})})
    assert found == {"policy": "chain:2", "cost": "b.json"}
    assert options_of(SimpleNamespace(), {}) == {}


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({"polcy": "chain"}, "", "additional_config treewise must be a JSON object of policy, cost, time_limit_ms"),
        ({}, "[1]", "TREEWISE_VLLM must be a JSON object of policy"),
        ({}, "{", "TREEWISE_VLLM must be a JSON object, got '{'"),
    ],
)
def test_bad_options(options: dict[str, Any], environment: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        options_of(vllm_config(options=options), {OPTIONS_VARIABLE: environment})


def test_a_policy_needs_a_cost_profile_and_a_name() -> None:
    with pytest.raises(ParameterError, match="cost must be given beside a policy"):
        TreewiseProposer(vllm_config(options={"policy": "frontier"}))
    with pytest.raises(PolicySpecError, match="policy must be one of"):
        TreewiseProposer(vllm_config(options={"policy": "no-such", "cost": "example-a100-70b"}))


def test_another_configuration_is_refused_by_version() -> None:
    config = vllm_config()
    del config.model_config.get_vocab_size
    with pytest.raises(ParameterError, match=r"vllm_config must hold model_config.get_vocab_size, as vllm 0\.33\.0"):
        TreewiseProposer(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, [[1]], np.asarray([1])), "sampled_token_ids must be a list of token lists, as vllm"),
        (([1], np.asarray([1]), np.zeros((1, 4), np.int32)), "sampled_token_ids must be a list of token lists"),
        (([[1]], np.asarray([1.0]), np.zeros((1, 4), np.int32)), "num_tokens_no_spec must be whole numbers"),
        (([[1]], np.asarray([9]), np.zeros((1, 4), np.int32)), "token_ids_cpu must be token ids"),
    ],
)
def test_another_call_is_refused_by_version(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TreewiseProposer(vllm_config()).propose(*arguments)


def test_a_row_with_a_stray_token_is_refused_alone() -> None:
    proposer = TreewiseProposer(vllm_config())
    rows = np.tile(np.arange(4, dtype=np.int32), (2, 4))
    rows[0, 3] = VOCAB
    first, second = proposer.propose([[3], [3]], np.asarray([12, 12]), rows)
    assert (first, second) == ([], [0, 1, 2, 3])
    assert proposer.num_refused == 1
    assert "token ids between 0 and 49" in str(proposer.last_refusal)


def test_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.engine.tried_versions.installed_version", lambda package: "9.9.9")
    with pytest.warns(RuntimeWarning, match=r"tried with vllm 0\.33\.0, got 9\.9\.9"):
        TreewiseProposer(vllm_config())


def test_conforms_to_the_installed_vllm() -> None:
    module = pytest.importorskip("vllm.v1.spec_decode.custom_class_proposer")
    config = vllm_config()
    config.speculative_config.model = "treewise.engine.vllm_proposer.TreewiseProposer"
    assert isinstance(module.create_custom_proposer(config), TreewiseProposer)


@pytest.mark.parametrize(
    ("options", "message"), [({"time_limit_ms": "a"}, "time_limit_ms must be a number"), ({"policy": 5}, "policy must")]
)
def test_option_values_of_other_types(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TreewiseProposer(vllm_config(options=options))


def test_an_empty_batch_has_no_guesses() -> None:
    assert TreewiseProposer(vllm_config()).propose([], [], np.zeros((0, 8), dtype=np.int32)) == []


def test_ids_beyond_int32_do_not_wrap() -> None:
    proposer = TreewiseProposer(vllm_config())
    rows = np.tile(np.arange(4, dtype=np.int64), (2, 4))
    rows[0] += 2**32
    assert proposer.propose([[3], [3]], [12, 12], rows) == [[], [0, 1, 2, 3]]
    assert proposer.num_refused == 1
