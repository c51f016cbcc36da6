"""The tuning of fixed policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.training.judged import EXAMPLE, judged_trace
from tests.training.worlds import COST
from treewise.data.errors import ParameterError, TraceError
from treewise.training.ab import ab
from treewise.training.logged_trace import LoggedTrace
from treewise.training.tune import GRIDS, tune


@pytest.fixture
def trace() -> LoggedTrace:
    return judged_trace()


def test_tuning_finds_the_fastest_of_a_family(trace: LoggedTrace) -> None:
    short = replace(trace, requests=trace.requests[:2])
    steps: list[int] = []
    found = tune([short], [COST, EXAMPLE], ["chain"], steps.append)
    deep = ("chain:6", "chain:8", "chain:10")
    assert found.skipped == tuple(spec for spec in GRIDS["chain"] if spec.startswith(deep))
    assert sum(steps) == 2 * 2 * (len(GRIDS["chain"]) - len(found.skipped))
    for cost in (COST, EXAMPLE):
        (winner,) = found.winners(cost.name)
        again = ab([short], [cost], [winner.spec]).rows[0]
        assert again.speedup.value == pytest.approx(winner.speedup)
        assert winner.speedup == max(row.speedup for row in found.settings if row.profile == cost.name)
    with pytest.raises(ParameterError, match="family must be among chain, static"):
        tune([short], [COST], ["oracle"])


def test_live_traces_are_refused(trace: LoggedTrace) -> None:
    live = replace(trace, manifest=replace(trace.manifest, kind="live", policy="chain:3"))
    with pytest.raises(TraceError, match="must be dense to try settings on, got a live one"):
        tune([trace, live], [COST], ["chain"])
