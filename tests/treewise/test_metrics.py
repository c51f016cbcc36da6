"""Prometheus metrics: what a controller and our own engine leave in a registry."""

from __future__ import annotations

import gc
import json
import re
import sys
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.engine.tiny import example_cost, lax_settings, tiny_pair
from tests.house.layout import ROOT
from treewise.data.cost import CostProfile
from treewise.data.errors import MissingExtraError, ParameterError
from treewise.engine.decode import Engine
from treewise.engine.sampling import Sampling
from treewise.metrics import Metrics
from treewise.policy.controller import Controller
from treewise.policy.counters import ControllerCounters
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import LOOKUP, Expansion, Level
from treewise.policy.registry import parse_policy

TEXT = [1, 2, 3, 4, 5, 6, 7, 8] * 6


def controller(rounds: int, metrics: Metrics | None) -> Controller:
    """A controller that decoded a repetitive text for some rounds."""
    made = Controller("chain:3", cost=CostProfile.load("example-a100-70b"), vocab_size=10, sources=LOOKUP)
    request = made.begin(TEXT[:12], 30)
    for _ in range(rounds):
        tree = made.propose(request)
        chosen = [TEXT[position + 1] for position in tree.positions.tolist()]
        step = made.accept(request, np.asarray(chosen))
        if metrics is not None:
            metrics.step(tree, step)
    return made


def values(registry: CollectorRegistry) -> dict[str, float]:
    """Every sample, labels in its name."""
    lines = generate_latest(registry).decode().splitlines()
    found = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def test_a_controllers_rounds_and_counters() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    made = controller(4, metrics)
    metrics.update(made.counters)
    found, counters = values(registry), made.counters
    assert found["treewise_rounds_total"] == found["treewise_accepted_length_count"] == 4
    assert found["treewise_accepted_length_sum"] == found["treewise_accepted_tokens_total"] == counters.accepted_tokens
    assert found["treewise_round_nodes_sum"] == found["treewise_verified_nodes_total"] == counters.verified_nodes == 12
    assert found["treewise_committed_tokens_total"] == counters.committed_tokens == 16
    assert found["treewise_policy_seconds_total"] == pytest.approx(counters.policy_seconds)
    assert found["treewise_fallbacks_total"] == found["treewise_suspensions_total"] == 0
    for part in ("nodes", "predicted", "matched"):
        sums = [value for name, value in found.items() if name.startswith(f"treewise_calibration_{part}_total{{")]
        assert len(sums) == 10
        assert sum(sums) == pytest.approx(float(getattr(counters.calibration, part).sum()))
    assert sum(counters.calibration.nodes) > 0


def test_updates_add_what_is_new_of_every_controller() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    first, second = ControllerCounters(rounds=3, fallbacks=1), ControllerCounters(rounds=5)
    for counters in (first, second, first):
        metrics.update(counters)
    assert values(registry)["treewise_rounds_total"] == 8
    first.rounds += 2
    first.suspensions += 1
    metrics.update(first)
    found = values(registry)
    assert (found["treewise_rounds_total"], found["treewise_fallbacks_total"]) == (10, 1)
    assert found["treewise_suspensions_total"] == 1


def test_constant_labels_stand_on_every_metric() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, {"model": "small"}, prefix="mine")
    metrics.round(2, 5)
    metrics.update(ControllerCounters(rounds=1))
    found = values(registry)
    assert found['mine_rounds_total{model="small"}'] == 1
    assert found['mine_round_nodes_bucket{le="8.0",model="small"}'] == 1
    assert found['mine_calibration_nodes_total{bin="0.3",model="small"}'] == 0
    with pytest.raises(ParameterError, match="labels must be without 'bin'"):
        Metrics(CollectorRegistry(), {"bin": "x"})


def test_our_own_engines_rounds() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    engine = Engine(tiny_pair("same", seed=1), parse_policy("chain:3"), example_cost(), lax_settings())
    rounds, committed, nodes = 0, 0, 0
    for record in engine.rounds([3, 7, 1, 9, 3, 7, 1, 9], 20, Sampling()):
        metrics.record(record)
        rounds, committed, nodes = rounds + 1, committed + len(record.committed), nodes + record.tree.num_nodes
    found = values(registry)
    assert found["treewise_rounds_total"] == found["treewise_round_nodes_count"] == rounds > 0
    assert found["treewise_committed_tokens_total"] == committed
    assert found["treewise_verified_nodes_total"] == found["treewise_round_nodes_sum"] == nodes > 0
    checked = sum(value for name, value in found.items() if name.startswith("treewise_calibration_nodes_total{"))
    assert found["treewise_accepted_tokens_total"] <= checked <= nodes


class FailsTwice(EverythingPolicy):
    """Raises in its first two rounds, at the second level of the second."""

    rounds = 0

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.rounds == 1 or (self.rounds == 2 and level.index == 1):
            raise ValueError("no idea")
        return super().expand(level)


def test_our_own_engines_failures_and_calls_that_reached_the_policy() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    engine = Engine(tiny_pair("same", seed=1), FailsTwice(), example_cost(), lax_settings())
    calls = []
    with pytest.warns(RuntimeWarning, match="no idea"):
        for _ in range(2):
            for record in engine.rounds([3, 7, 1, 9, 3, 7, 1, 9], 12, Sampling()):
                metrics.record(record)
                calls.append((record.policy_calls, record.tree.policy_calls, record.policy_failures))
    found = values(registry)
    assert found["treewise_failures_total"] == found["treewise_fallbacks_total"] == engine.policy.num_failures == 2
    assert [reached for reached, _, _ in calls[:2]] == [1, 2]
    assert all(reached == asked and not failures for reached, asked, failures in calls[2:])
    assert found["treewise_policy_calls_total"] == sum(reached for reached, _, _ in calls)


def test_the_missing_extra_names_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install treewise\[metrics\]"):
        Metrics()


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    registry = CollectorRegistry()
    Metrics(registry, {"model": "m"})
    known = {re.sub(r"\{.*", "", name) for name in values(registry)}
    dashboard: Any = json.loads((ROOT / "docs" / "dashboard.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"treewise_\w+", target["expr"])
    }
    assert asked <= known
    wanted = ("accepted_length_bucket", "round_nodes_bucket", "policy_seconds_total", "fallbacks_total")
    assert {f"treewise_{name}" for name in (*wanted, "suspensions_total", "calibration_predicted_total")} <= asked
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_controllers_that_are_gone_are_forgotten() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for _ in range(20):
        metrics.update(ControllerCounters(rounds=2))
    gc.collect()
    assert values(registry)["treewise_rounds_total"] == 40
    assert not metrics._seen


def test_names_that_clash_are_told() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    with pytest.raises(ParameterError, match="prefix and labels must name metrics new to the registry, got Duplicated"):
        Metrics(registry)
    Metrics(registry, prefix="other")
    with pytest.raises(ParameterError, match="labels must be without 'le', which the histograms use"):
        Metrics(CollectorRegistry(), {"le": "1"})
