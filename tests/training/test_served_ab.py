"""Policies on a queue that keeps a batch full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.policy.recognisers import write_table
from tests.training.batch_traces import ENVELOPE, policy_of, trace
from tests.training.test_served_replay import mixed_world
from tests.training.worlds import COST, dense_trace
from treewise.data.cost import CostGrid, CostProfile
from treewise.data.errors import CoverageError, ParameterError
from treewise.policy.hook import DRAFT
from treewise.training.contest import Contender
from treewise.training.served_ab import QUEUED_BATCHES, served_ab, served_replays
from treewise.training.served_replay import replay_served


def test_each_place_of_a_full_round_pays_alike() -> None:
    log = trace()
    served = replay_served(policy_of("topn:8x2"), [*log.requests, *log.requests], log.deployment(COST), 3)
    totals = served.totals(3)
    full = served.rounds.requests == 3
    assert not full.all() and len(totals.tokens) == len(log.requests)
    assert totals.ms.sum() == pytest.approx(served.round_ms[full].sum())
    assert totals.tokens.sum() == served.rounds.committed_tokens[full].sum()
    # By hand: who was in which round follows from how many rounds each request took.
    result, free = served.result, [0, 0, 0]
    tokens = dict.fromkeys(result.prompt_id.tolist(), 0)
    ms = dict.fromkeys(tokens, 0.0)
    for number in range(result.num_requests):
        place = int(np.argmin(free))
        for committed in result.committed_tokens[result.request == number].tolist():
            if full[free[place]]:
                tokens[str(result.prompt_id[number])] += committed
                ms[str(result.prompt_id[number])] += served.round_ms[free[place]] / 3
            free[place] += 1
    assert totals.tokens.tolist() == [tokens[name] for name in sorted(tokens)]
    np.testing.assert_allclose(totals.ms, [ms[name] for name in sorted(ms)])
    with pytest.raises(ParameterError, match="full_batch must be the size of some round, got 9"):
        served.totals(9)


def test_sharing_shows_where_requests_differ() -> None:
    """The true gain is known from the world: stretches that the draft is sure of, and stretches that it is not."""
    world, texts = mixed_world()
    log = dense_trace(world, ENVELOPE, texts, sources=DRAFT)
    counted: list[int] = []
    policies = ["topn:1x3", "topn:1x3,budget=batch", "plain"]
    report = served_ab([log], [COST], policies, 6, advance=counted.append)
    equal, shared, plain = report.select(COST.name)
    assert len(counted) == sum(counted) == 3 * served_replays([log], 6)
    assert report.passes * len(texts) >= QUEUED_BATCHES * 6
    assert equal.ratio is None and shared.ratio is not None and plain.ratio is not None
    assert shared.ratio.low > 1.0
    assert plain.ratio.value == pytest.approx(plain.tokens_per_second / equal.tokens_per_second)
    assert shared.ratio.value == pytest.approx(shared.tokens_per_second / equal.tokens_per_second)
    assert shared.nodes_per_request_round <= 1.0 + 1e-9 and plain.nodes_per_request_round == 0.0
    assert plain.growths_per_round == 0.0 < equal.growths_per_round <= 3.0
    assert plain.rows_per_pass == 6.0 and plain.tokens_per_request_round == 1.0
    assert any("12 prompts" in line for line in report.warnings)


def test_what_prompts_cost_depends_on_the_profile() -> None:
    log = trace()
    twice = replace(COST, name="twice", verify=CostGrid((1, 64), (0,), ((20.0, 20.0),)))
    report = served_ab([log], [COST, twice], ["plain"], 2)
    assert [origin.name for origin in report.profiles] == [COST.name, "twice"]
    (slow,) = report.select("twice")
    assert slow.tokens_per_second == pytest.approx(2000.0 / (20.0 + 2 * twice.round_ms))  # plain calls cost nothing


def test_a_prompt_of_several_traces_is_one_draw() -> None:
    """The same prompts at another temperature make no interval narrower."""
    log = trace()
    warm = replace(log, name="warm", manifest=replace(log.manifest, temperature=1.0))
    one, two = (served_ab(logs, [COST], ["topn:8x2", "plain"], 2) for logs in ([log], [log, warm]))
    for alone, both in zip(one.rows, two.rows, strict=True):
        assert both.prompts == alone.prompts == len({request.prompt_id for request in log.requests})
        assert both.requests == 2 * alone.requests
    assert two.warnings[0] == one.warnings[0]


def test_labels_that_policies_are_told_are_warned_of(tmp_path: Path) -> None:
    spec = f"by-task:{write_table(tmp_path)}"
    assert any(
        f"{spec} is told the prompts' labels" in line for line in served_ab([trace()], [COST], [spec], 2).warnings
    )


@pytest.mark.parametrize(
    ("costs", "batch", "words"),
    [
        ([COST, COST], 2, "costs must be profiles of different names"),
        ([], 2, "costs must be at least one profile"),
        ([COST], 0, "batch must be >= 1, got 0"),
    ],
)
def test_what_is_refused(costs: list[CostProfile], batch: int, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        served_ab([trace()], costs, ["plain"], batch)


def test_a_policy_that_reaches_further_than_the_log_is_refused() -> None:
    deep = Contender("deep", lambda: policy_of("chain:30"))
    with pytest.raises(CoverageError, match="deep"):
        served_ab([trace()], [COST], [deep], 2)
