"""Tables fitted to what settings did: own rows only where they surely pay; and traces that are told again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.data.traces import manifest, request
from tests.policy.recognisers import write_table
from tests.training.batch_traces import check_batched, check_same, trace
from tests.training.worlds import COST
from treewise.data.errors import ParameterError, TraceError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.policy.registry import parse_policy
from treewise.training.replay import replay
from treewise.training.task_table import SettingGrid, fit_table, gains, settings_to_try
from treewise.training.told_trace import tell_trace

SPECS = ("static:1x1", "static:2x3")


def grid(gain: float, prompts: int = 8, noise: float = 0.0) -> SettingGrid:
    """Two tasks; the second setting is `gain` times as fast on the first of them and as much slower on the other."""
    tasks = np.asarray(["code"] * prompts + ["chat"] * prompts, dtype=np.str_)
    ids = np.asarray([f"p{number}" for number in range(2 * prompts)], dtype=np.str_)
    rng = np.random.default_rng(0)
    tokens = np.tile(rng.integers(20, 60, 2 * prompts).astype(np.float64), (2, 1))
    ms = tokens * np.exp(noise * rng.normal(size=tokens.shape))
    ms[0] *= 1.001  # the second is a little faster over all
    ms[1] *= np.where(tasks == "code", 1.0 / gain, gain)
    return SettingGrid(SPECS, ids, tasks, tokens, ms)


def test_tasks_that_differ_get_rows_of_their_own() -> None:
    found = fit_table(grid(1.2))
    assert found.settings["code"] == "static:2x3"
    assert found.settings["chat"] == "static:1x1"
    assert math.isfinite(found.borrow)
    assert found.held_out.low > 1.0
    table = found.table("r.json", "ab", cost="made up")
    assert table.settings["unknown"] == found.single
    assert table.fitted["prompts"] == 16
    (whole, code, chat) = found.rows
    assert (whole.task, whole.prompts, code.task, code.prompts) == ("", 16, "code", 8)
    best = {True: chat, False: code}[found.single == "static:2x3"]
    assert best.gain.value > 1.15
    assert 1.0 < whole.gain.value < best.gain.value


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_tasks_that_do_not_surely_differ_share_one_setting(noise: float) -> None:
    found = fit_table(grid(1.0, noise=noise))
    assert set(found.settings.values()) == {found.single}
    assert math.isinf(found.borrow)
    assert found.table().fitted["borrowed_prompts"] == "all"
    assert found.rows[0].gain.value == 1.0


def test_rows_are_held_against_prompts_that_did_not_choose_them() -> None:
    # The first: 45 + 70 + 55 = 170, the second 180. Without the first prompt 125 and 110, so that one gets the second.
    ms = np.asarray([[45.0, 70.0, 55.0], [70.0, 50.0, 60.0]])
    ids = np.asarray(["a", "b", "c"], dtype=np.str_)
    found = fit_table(SettingGrid(SPECS, ids, np.asarray(["chat"] * 3, dtype=np.str_), np.full((2, 3), 10.0), ms))
    assert found.single == SPECS[0]
    assert found.held_out.value == pytest.approx(170 / (70 + 70 + 55))
    assert found.settings == {"chat": SPECS[0], "unknown": SPECS[0]}


def test_a_gain_is_judged_by_what_the_policy_was_told() -> None:
    settings = {"code": "static:2x3", "chat": "static:1x1", "unknown": "static:1x1"}
    other = grid(1.2)
    truth = gains(other, settings, other.task.tolist())
    unknown = gains(other, settings, ["unknown"] * 16)
    swapped = gains(other, settings, ["chat"] * 8 + ["code"] * 8)
    assert truth[0].gain.value > unknown[0].gain.value == 1.0 > swapped[0].gain.value
    assert [row.spec for row in truth] == ["", "static:2x3", "static:1x1"]


def test_too_little_is_refused() -> None:
    with pytest.raises(ParameterError, match="traces must be of three prompts or more, got 2"):
        fit_table(grid(1.2, prompts=1))
    with pytest.raises(ParameterError, match="specs must be at least one"):
        SettingGrid.replayed([trace()], COST, [])


def test_a_grid_holds_what_by_task_does(tmp_path: Path) -> None:
    log = trace()
    assert {entry.task for entry in log.entries} == {"chat", "copy"}
    specs = [spec for spec in settings_to_try([log], COST, ("static",)) if "sources=all" in spec][::3]
    assert len(specs) > 3
    tried = SettingGrid.replayed([log], COST, specs)
    settings = {"copy": specs[0], "chat": specs[-1], "unknown": specs[0]}
    file = write_table(tmp_path, settings)
    result = check_batched(lambda: parse_policy(f"by-task:{file}"), log, 3)
    expected, _ = tried.of([settings[task] for task in tried.task.tolist()])
    np.testing.assert_array_equal(result.by_request(result.committed_tokens), expected)
    for place, request_of in enumerate(log.requests):
        alone = replay(parse_policy(settings[request_of.task]), [request_of], log.deployment(COST))
        mine = replay(parse_policy(f"by-task:{file}"), [log.requests[place]], log.deployment(COST))
        check_same(mine, alone)


def test_a_trace_is_told_again(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "old", manifest(kind="dense", policy=None), shard_rounds=8) as writer:
        for number in range(4):
            writer.add(*request(f"p{number}", num_rounds=4))
    told = {f"p{number}": f"task {number % 2}" for number in range(4)}
    assert tell_trace(tmp_path / "old", told, tmp_path / "new", "ab" * 32) == 4
    old, new = (TraceReader(tmp_path / name) for name in ("old", "new"))
    assert new.manifest.input_hashes["recogniser"] == "ab" * 32
    rounds = new.read_all().rounds
    assert rounds.told_task.tolist() == [told[name] for name in rounds.prompt_id.tolist()]
    np.testing.assert_array_equal(new.read_all().nodes.match, old.read_all().nodes.match)
    with pytest.raises(TraceError, match="holds prompt 'p0', which the prompts given do not"):
        tell_trace(tmp_path / "old", {}, tmp_path / "none", "")
    with pytest.raises(TraceError, match="holds prompt 'p3', which the prompts given do not"):
        tell_trace(tmp_path / "old", {name: told[name] for name in ("p0", "p1", "p2")}, tmp_path / "none", "")
    assert not (tmp_path / "none").exists()  # no half of a copy
    with TraceWriter(tmp_path / "live", manifest()) as writer:
        writer.add(*request("p"))
    with pytest.raises(TraceError, match="must be dense to be told again, got a live one"):
        tell_trace(tmp_path / "live", told, tmp_path / "none", "")


def test_dense_traces_tell_the_label_where_nobody_told_another() -> None:
    requests = trace().requests
    assert [request_of.told_task for request_of in requests] == [request_of.task for request_of in requests] != []
