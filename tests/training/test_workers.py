"""The same work by one process and by several."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from tests.policy.models import tiny_bundle
from tests.training.doubling import Doubling, Stillborn
from tests.training.stored_worlds import request_shards, write_world
from tests.training.worlds import COST, World
from treewise.data.cost import BUILTIN
from treewise.data.errors import (
    CoverageError,
    MissingExtraError,
    ParameterError,
    SchemaVersionError,
    TreewiseError,
    WorkerError,
)
from treewise.policy.registry import parse_policy
from treewise.training.ab import ab
from treewise.training.contest import Contender, contests, count_workers
from treewise.training.contest_work import ORACLE, ContestJob
from treewise.training.logged_trace import LoggedTrace, open_trace
from treewise.training.stored_requests import GroupSize
from treewise.training.tune import tune
from treewise.training.workers import run_parts, worth_starting

EXAMPLE = BUILTIN["example-a100-70b"]
ERRORS: tuple[TreewiseError, ...] = (
    CoverageError("part must be 0, got 1"),
    SchemaVersionError("trace", 2, 3, "collect it again"),
    MissingExtraError("lightgbm", "train"),
)


def test_answers_come_in_order_from_several_processes() -> None:
    steps: list[int] = []
    found = run_parts(Doubling(), range(7), 2, steps.append)
    assert [answer for answer, _ in found] == [0, 2, 4, 6, 8, 10, 12]
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert sorted(steps) == list(range(7))
    assert {process for _, process in run_parts(Doubling(), range(3), 1)} == {os.getpid()}
    assert run_parts(Doubling(), [4], 8) == [(8, os.getpid())]  # no more workers than parts
    assert run_parts(Doubling(), [], 2) == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_home_as_it_is(error: TreewiseError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_of_the_first_part_is_raised(workers: int) -> None:
    with pytest.raises(CoverageError, match="part must be 0, got 1"):
        run_parts(Doubling(ERRORS[0]), range(4), workers)


@pytest.mark.parametrize("job", [Doubling(dies=True), Stillborn()], ids=["at work", "before"])
def test_a_worker_that_dies_is_told_of(job: Any) -> None:
    with pytest.raises(WorkerError, match="a worker process died, perhaps for want of memory: try fewer workers"):
        run_parts(job, range(4), 2)


def test_workers_are_one_or_more() -> None:
    with pytest.raises(ParameterError, match="workers must be at least 1, got 0"):
        run_parts(Doubling(), range(4), 0)


def test_workers_are_started_where_there_is_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.training.workers.usable_cores", lambda: 4)
    assert [worth_starting(rounds) for rounds in (0, 79_999, 80_000, 10**9)] == [1, 1, 2, 4]
    assert worth_starting(3_000, in_batches=False) == 3


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoggedTrace:
    shards = request_shards(World(seed=4, num_texts=4, answer_tokens=24))
    folder = write_world(tmp_path_factory.mktemp("shared") / "world", shards, shard_rounds=20)
    return open_trace(folder, size=GroupSize(nodes=1))


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Rules, a learned policy, and one that remembers the session."""
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    tiny_bundle().save(folder)
    return ["topn:8x2", "frontier", f"learned:{folder}", f"guarded:{folder}"]


@pytest.fixture
def hardly_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is enough for a process of its own."""
    for limit in ("ROUNDS_A_WORKER", "ROUNDS_ALONE"):
        monkeypatch.setattr(f"treewise.training.workers.{limit}", 1)


@pytest.mark.usefixtures("hardly_any_work")
def test_the_number_of_workers_changes_nothing(trace: LoggedTrace, specs: list[str]) -> None:
    costs = [COST, EXAMPLE]
    contenders = [Contender.of(spec) for spec in specs]
    found, steps = [], []
    for workers in (1, 2):
        done: list[int] = []
        found.append(contests([trace], costs, contenders, advance=done.append, workers=workers, with_path_oracle=True))
        steps.append(sum(done))
    assert steps == [len(costs) * len(specs) * len(trace.requests)] * 2
    (alone,), (shared,) = found
    assert alone.keys() == shared.keys() == {(place, name) for place in (0, 1) for name in (*specs, ORACLE)}
    for key, tally in alone.items():
        other = shared[key]
        assert (tally.prompt_id.tolist(), tally.reads_costs) == (other.prompt_id.tolist(), other.reads_costs)
        np.testing.assert_array_equal(tally.plain_ms, other.plain_ms)
        for name, column in tally.columns.items():
            np.testing.assert_array_equal(column, other.columns[name], err_msg=f"{key} {name}")


@pytest.mark.usefixtures("hardly_any_work")
def test_a_report_does_not_depend_on_workers(trace: LoggedTrace) -> None:
    alone, shared = (
        ab([trace], [COST], ["plain", "chain:3"], with_depth_oracles=True, workers=count).to_json(None)
        for count in (1, 2)
    )
    assert alone == shared


def test_tuning_hands_its_workers_on(trace: LoggedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Exception):
        """What was asked for."""

    def ask(*_: Any, workers: int, **__: Any) -> Any:
        raise Asked(workers)

    monkeypatch.setattr("treewise.training.tune.contests", ask)
    with pytest.raises(Asked, match="5"):
        tune([trace], [COST], ["switch"], workers=5)


def test_small_work_stays_here(trace: LoggedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ContestJob((trace,), (COST,), (Contender.of("topn"), Contender.of("plain")))
    rounds = 2 * sum(entry.num_rounds for entry in trace.entries)
    assert count_workers(job, 2) == 1
    monkeypatch.setattr("treewise.training.workers.ROUNDS_A_WORKER", rounds // 2)
    assert count_workers(job, 4) == 2


@pytest.mark.usefixtures("hardly_any_work")
def test_what_another_process_could_not_make_stays_here(trace: LoggedTrace) -> None:
    spec, built = Contender.of("topn"), Contender.of(parse_policy("topn"))
    assert count_workers(ContestJob((trace,), (COST,), (spec,)), 4) == 4
    assert count_workers(ContestJob((trace,), (COST,), (spec, built)), 4) == 1
    assert count_workers(ContestJob((trace.in_memory(),), (COST,), (spec,)), 4) == 1
