"""The SGLang policy against a stub of the protocol, and against the installed package where there is one."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

from tests.policy.models import tiny_bundle
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import ParameterError
from treewise.engine import sglang_policy
from treewise.engine.sglang_policy import OPTIONS_VARIABLE, OWN_PARAMS, SglangPolicy, TreewiseParams, register
from treewise.policy.chain_controller import ChainSignals
from treewise.policy.hook import TreePolicy
from treewise.policy.learned import LearnedPolicy

STEPS = (0, 1, 3, 5)


def profile(row_ms: float = 0.05, draft_ms: float = 0.2) -> CostProfile:
    """A pass of 10 ms and `row_ms` a row."""
    verify = CostGrid((1, 512), (0,), ((10.0 + row_ms, 10.0 + 512 * row_ms),))
    return CostProfile("stub", verify, CostGrid((1, 512), (0,), ((draft_ms, draft_ms),)))


def policy(spec: str | TreePolicy = "frontier", **settings: Any) -> SglangPolicy:
    return SglangPolicy(spec, **{"cost": profile(), "candidate_steps": STEPS, **settings})


@runtime_checkable
class Protocol0523(Protocol):
    """The methods that SGLang 0.5.23 asks of an adaptive policy."""

    @property
    def candidate_steps(self) -> list[int]: ...
    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None: ...
    def get_steps_for_batch(self, batch_size: int) -> int: ...
    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> int | None: ...
    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None: ...


@dataclass
class StubWorker:
    """A worker that holds one state per step, and drafts that match with a fixed chance."""

    policy: Any
    chance: float
    seed: int = 0
    newer: bool = False  # tell `num_steps` and `on_state_activated` too
    late: bool = False  # tell outcomes one step late, as an overlapping scheduler does
    speculative_num_steps: int = 3
    states: dict[int, list[int] | None] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)

    def start(self, cuda_graph_bs: list[int] | None = None) -> None:
        """Build every state."""
        self.policy.set_cuda_graph_bs(cuda_graph_bs)
        self.states = {step: self.policy.cuda_graph_bs_for_step(step) for step in self.policy.candidate_steps}

    def decode(self, rounds: int, batch_size: int) -> list[int]:
        """Steps of every round."""
        rng = np.random.default_rng(self.seed)
        waiting: list[tuple[list[int], int]] = []
        for _ in range(rounds):
            steps = self.policy.get_steps_for_batch(batch_size)
            assert steps in self.states
            if self.newer and steps != self.speculative_num_steps:
                self.policy.on_state_activated(steps)
            self.speculative_num_steps = steps
            self.history.append(steps)
            matched = rng.random((batch_size, max(steps, 1))) < self.chance
            accepted = np.cumprod(matched[:, :steps], axis=1).sum(axis=1).astype(int).tolist()
            waiting.append((accepted, steps))
            if not self.late or len(waiting) > 1:
                told, drafted = waiting.pop(0)
                extra = {"num_steps": drafted} if self.newer else {}
                answer = self.policy.on_verify_complete(told, batch_size, **extra)
                assert answer is None or answer in self.states
        return self.history


def test_it_is_what_the_protocol_asks_for() -> None:
    assert isinstance(policy(), Protocol0523)
    assert policy().candidate_steps == [0, 1, 3, 5]


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_good_drafts_bring_many_steps_and_bad_ones_none(newer: bool, late: bool) -> None:
    steps = {}
    for chance in (0.95, 0.02):
        worker = StubWorker(policy(), chance, newer=newer, late=late)
        worker.start([1, 2, 4, 8])
        steps[chance] = float(np.mean(worker.decode(120, 4)[60:]))
        assert worker.policy.counters.failures == 0
    assert steps[0.95] >= 3.0
    assert steps[0.02] <= 0.5


@pytest.mark.parametrize("steps", [(0, 3, 7), (0, 1, 3, 5, 7), (3, 0)])
def test_drafts_that_become_good_are_found_out_whatever_the_candidates(steps: tuple[int, ...]) -> None:
    worker = StubWorker(policy(candidate_steps=steps), 0.0)
    worker.start()
    worker.decode(200, 4)
    before = len(worker.history)
    assert float(np.mean(worker.history[-100:])) <= 0.5
    worker.chance = 1.0
    found = worker.decode(200, 4)[before:]
    assert max(found[:80]) == max(steps)
    assert float(np.mean(found[100:])) >= 0.9 * max(steps)


def test_a_depth_that_is_always_rounded_to_0_is_tried_now_and_then() -> None:
    adapter = policy(candidate_steps=(0, 7))
    adapter._controller._depth = 2  # as after middling drafts
    worker = StubWorker(adapter, 1.0)
    worker.start()
    assert max(worker.decode(120, 4)) == 7


def test_a_fixed_length_is_rounded_down_for_ever() -> None:
    worker = StubWorker(policy("chain:2", candidate_steps=(0, 3)), 0.9)
    worker.start()
    assert set(worker.decode(80, 2)) == {0}


def test_a_bundle_decides_in_chain_mode() -> None:
    worker = StubWorker(policy(LearnedPolicy(tiny_bundle(), scorer="flat")), 0.95)
    worker.start()
    assert float(np.mean(worker.decode(120, 4)[60:])) >= 3.0
    assert worker.policy.counters.failures == 0


def test_every_outcome_is_counted() -> None:
    worker = StubWorker(policy("chain:3"), 0.6)
    worker.start()
    worker.decode(10, 4)
    counters = worker.policy.counters
    assert worker.history == [3] * 10
    assert (counters.rounds, counters.verified_nodes) == (40, 120)
    assert counters.committed_tokens == 40 + counters.accepted_tokens


def test_dear_rows_bring_few_steps_to_large_batches() -> None:
    adapter = policy(cost=profile(row_ms=0.5))
    chosen = {}
    for size in (1, 64):
        worker = StubWorker(adapter, 0.8)
        worker.start()
        chosen[size] = float(np.mean(worker.decode(100, size)[50:]))
    assert chosen[1] > chosen[64]


@pytest.mark.parametrize(("wanted", "expected"), [(0, 1), (1, 1), (2, 1), (3, 3), (4, 3), (9, 5)])
def test_lengths_snap_down_to_a_candidate(wanted: int, expected: int) -> None:
    spec = "plain" if wanted == 0 else f"chain:{wanted}"
    assert policy(spec, candidate_steps=(5, 3, 1)).get_steps_for_batch(2) == expected


def test_candidates_by_batch_size_follow_the_padded_size() -> None:
    adapter = policy("chain:5", candidate_steps={1: [1, 3, 5], 8: [0, 1]})
    assert adapter.candidate_steps == [0, 1, 3, 5]
    assert [adapter.get_steps_for_batch(size) for size in (1, 7, 8, 100)] == [5, 5, 1, 1]
    assert adapter.cuda_graph_bs_for_step(5) is None
    adapter.set_cuda_graph_bs([8, 4, 2])
    assert adapter.get_steps_for_batch(5) == 1  # runs padded to 8
    assert adapter.cuda_graph_bs_for_step(5) == [2, 4]
    assert adapter.cuda_graph_bs_for_step(0) == [8]
    assert adapter.cuda_graph_bs_for_step(7) == []


def test_outcomes_that_come_late_belong_to_their_own_decision() -> None:
    adapter = policy(candidate_steps={1: [1], 2: [3]})
    for size in (1, 2, 1):
        adapter.get_steps_for_batch(size)
    adapter.on_verify_complete([3, 3], 2)  # that of the first decision was never told
    assert adapter.counters.accepted_tokens == 6
    adapter.on_verify_complete([1], 1)
    assert (adapter.counters.accepted_tokens, adapter.counters.failures) == (7, 0)
    assert adapter.on_verify_complete([], 0) is None


def test_a_failing_policy_leaves_sglangs_own_steps_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = policy(initial_steps=3)

    def fail(signals: ChainSignals) -> int:
        raise ZeroDivisionError("a fault of the policy")

    monkeypatch.setattr(adapter._controller, "depth", fail)
    with pytest.warns(RuntimeWarning, match="SGLang's own 3 steps took over"):
        assert adapter.get_steps_for_batch(4) == 3
    assert adapter.get_steps_for_batch(4) == 3
    assert (adapter.counters.fallbacks, adapter.counters.failures) == (2, 2)


def test_an_outcome_that_cannot_be_is_counted_not_raised() -> None:
    adapter = policy()
    adapter.get_steps_for_batch(1)
    with pytest.warns(RuntimeWarning, match="between 0 and 5"):
        assert adapter.on_verify_complete([9], 1) is None
    assert adapter.counters.failures == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidate_steps": ()}, "candidate_steps must be lists of steps"),
        ({"candidate_steps": {}}, "candidate_steps must be at least one list"),
        ({"candidate_steps": (-1, 2)}, "candidate_steps must be lists of steps between 0 and 64"),
        ({"context_tokens": 0}, "context_tokens must be at least 1"),
        ({"spec": "entropy"}, "policy must be one with a draft length in chain mode"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        policy(**settings)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An adaptive configuration of SGLang, and ours in the environment."""
    profile().save(tmp_path / "cost.json")
    ours = {"policy": "chain:5", "cost": str(tmp_path / "cost.json")}
    monkeypatch.setenv(OPTIONS_VARIABLE, json.dumps(ours))
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps({"ema_alpha": 0.2, "1": {"candidate_steps": [1, 5]}, "8": {"candidate_steps": [0]}}))
    return config


def test_it_is_made_from_sglangs_arguments_and_the_environment(options: Path) -> None:
    made = TreewiseParams(initial_steps=5, cfg_path=str(options))
    assert made.candidate_steps == [0, 1, 5]
    assert [made.get_steps_for_batch(size) for size in (1, 8)] == [5, 0]


@pytest.mark.parametrize(
    "value", ["", "{", "[]", '{"policy": "chain"}', '{"policy": "chain", "cost": "x", "depth": 3}']
)
def test_bad_options(value: str) -> None:
    with pytest.raises(ParameterError, match="TREEWISE_SGLANG must be a JSON object of policy, cost"):
        sglang_policy.options_of({OPTIONS_VARIABLE: value})


@pytest.mark.usefixtures("options")
def test_the_plug_in_takes_the_place_of_sglangs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    hooks = ModuleType("sglang.srt.plugins.hook_registry")
    hooks.HookType = SimpleNamespace(REPLACE="replace")  # type: ignore[attr-defined]
    hooks.HookRegistry = SimpleNamespace(register=lambda *given: calls.append(given))  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    register()
    assert calls == [(OWN_PARAMS, TreewiseParams, "replace")]
    monkeypatch.delenv(OPTIONS_VARIABLE)
    register()
    assert len(calls) == 1


def test_another_version_is_told(options: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.engine.tried_versions.installed_version", lambda package: "0.9.0")
    with pytest.warns(RuntimeWarning, match=r"tried with sglang 0\.5\.23, got 0\.9\.0"):
        TreewiseParams(5, str(options))


def test_conforms_to_the_installed_sglang() -> None:
    module = pytest.importorskip("sglang.srt.speculative.adaptive_runtime_state")
    adapter = policy(candidate_steps=(1, 3, 5), initial_steps=3)
    for name, method in inspect.getmembers(module.AdaptiveSpecPolicy, inspect.isfunction):
        if name.startswith("_"):
            continue
        theirs, ours = inspect.signature(method).parameters, inspect.signature(getattr(SglangPolicy, name)).parameters
        assert list(ours)[: len(theirs)] == list(theirs), name
    applied: list[int] = []

    class Worker:
        speculative_num_steps = 3

        def build_adaptive_runtime_state(self, speculative_num_steps: int, **sizes: Any) -> int:
            return speculative_num_steps

        def apply_runtime_state(self, state: int) -> None:
            self.speculative_num_steps = state
            applied.append(state)

    controller = module.AdaptiveController(Worker(), adapter)
    controller.init_states([1, 2, 4])
    for _ in range(60):
        controller.activate_step_by_batch(2)
        controller.on_verify_complete([0, 0], 2)
    assert applied[-1] == 1  # nothing is ever accepted: the fewest steps
    assert adapter.counters.rounds == 120


@pytest.mark.parametrize(
    ("counts", "more"), [(None, {}), ([None], {}), ([float("nan")], {}), ([1], {"num_steps": "x"})]
)
def test_outcomes_that_cannot_be_read_are_counted(counts: Any, more: dict[str, Any]) -> None:
    adapter = policy()
    adapter.get_steps_for_batch(1)
    with pytest.warns(RuntimeWarning, match="the policy failed"):
        assert adapter.on_verify_complete(counts, **more) is None
    assert adapter.counters.failures == 1


def test_a_batch_of_no_size_drafts_sglangs_own_steps() -> None:
    adapter = policy(initial_steps=3)
    with pytest.warns(RuntimeWarning, match="the policy failed"):
        assert adapter.get_steps_for_batch(None) == 3  # type: ignore[arg-type]
    assert (adapter.counters.fallbacks, adapter.counters.failures) == (1, 1)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"1": {}}', '{"1": 5}', '{"1": {"candidate_steps": 3}}', None])
def test_a_broken_configuration_is_named(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ParameterError, match=r"adaptive configuration .*steps\.json must be"):
        sglang_policy.steps_of(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": 5}, "TREEWISE_SGLANG policy must be a string, got 5"),
        ({"cost": None}, "TREEWISE_SGLANG cost must be a string"),
        ({"context_tokens": "x"}, "TREEWISE_SGLANG context_tokens must be a number"),
    ],
)
def test_option_values_of_other_types(changes: dict[str, Any], message: str) -> None:
    text = json.dumps({"policy": "chain", "cost": "c", **changes})
    with pytest.raises(ParameterError, match=message):
        sglang_policy.options_of({OPTIONS_VARIABLE: text})


@pytest.mark.parametrize("steps", ["3", -1, 2.5, True])
def test_initial_steps_are_checked(steps: Any) -> None:
    with pytest.raises(ParameterError, match="initial_steps must be None or between 0 and 64"):
        policy(initial_steps=steps)
