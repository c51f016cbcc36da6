"""Replay over completed logs: exact where the log answers, lent where it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.training.judged import judged_trace
from tests.training.pruned_logs import pruned
from tests.training.worlds import COST
from treewise.data.errors import CoverageError
from treewise.policy.registry import parse_policy
from treewise.training.completed_replay import CompletedReplayer, check_completable
from treewise.training.donors import DraftAnswer, DraftDonors
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay

WRITERS = ("chain:3", "topn:8x2", "entropy", "topn:24x4,sources=draft")


def replayed(spec: str, log: LoggedTrace, seed: int = 0) -> CompletedReplayer:
    """`spec` over the completed `log`."""
    replayer = CompletedReplayer(parse_policy(spec), log.deployment(COST), DraftDonors(log, seed))
    for request in log.requests:
        replayer.run(request)
    return replayer


@pytest.mark.parametrize("writer", WRITERS)
def test_the_policy_that_wrote_the_log_is_replayed_exactly(writer: str) -> None:
    dense, log = judged_trace(), pruned(judged_trace(), writer)
    found = replayed(writer, log)
    expected = replay(parse_policy(writer), dense.requests, dense.deployment(COST))
    assert found.result().digest.tolist() == expected.digest.tolist()
    assert found.result().growth_tokens.tolist() == expected.growth_tokens.tolist()
    assert found.result().accepted_length.tolist() == expected.accepted_length.tolist()
    assert not found.imputed.any()
    assert len(replayed("plain", log).result()) == sum(request.num_tokens for request in log.requests)


@pytest.mark.parametrize("spec", ["chain:4", "topn:8x2", "static:2x3"])
def test_a_dense_log_needs_nothing_lent(spec: str) -> None:
    dense = judged_trace()
    found, expected = replayed(spec, dense), replay(parse_policy(spec), dense.requests, dense.deployment(COST))
    assert found.result().digest.tolist() == expected.digest.tolist()
    assert not found.imputed.any()


def test_rounds_complete_one_another() -> None:
    """A shorter chain has other roots than the log's; what the log's rounds said there is found all the same."""
    dense, log = judged_trace(), pruned(judged_trace(), "chain:4,sources=draft")
    spec = "chain:2,sources=draft"
    found, expected = replayed(spec, log), replay(parse_policy(spec), dense.requests, dense.deployment(COST))
    logged = {(request.index, position) for request in log.requests for position in request.rows}
    roots = set(zip(found.result().request.tolist(), found.result().position.tolist(), strict=True))
    assert not roots <= logged
    assert not found.imputed.any()
    assert found.result().accepted_length.tolist() == expected.accepted_length.tolist()
    assert found.result().growth_tokens.tolist() == expected.growth_tokens.tolist()
    wider = replayed("topn:8x2", log)
    assert 0.0 < wider.imputed.mean() < 1.0
    assert wider.result().committed_tokens.sum() == sum(request.num_tokens for request in log.requests)


def test_lent_answers_are_of_the_seed() -> None:
    log = pruned(judged_trace(), "chain:2,sources=draft")
    first, again, other = (replayed("topn:8x3", log, seed).result().digest.tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_a_request_may_be_taken_over() -> None:
    log = pruned(judged_trace(), "chain:3")
    first, second = (CompletedReplayer(parse_policy("chain:3"), log.deployment(COST), DraftDonors(log)) for _ in "ab")
    for request in log.requests:
        first.run(request)
        assert not first.was_lent
        second.repeat(first)
    assert first.result().digest.tolist() == second.result().digest.tolist()
    assert len(second.imputed) == len(second.result())


def test_donors_are_nearest_and_weighted() -> None:
    log = pruned(judged_trace(), "chain:3,sources=draft")
    first = log.requests[0]
    nodes = first.shard.nodes
    own = {float(one) for row in first.rows.values() for one in nodes.draft_entropy[first.node_rows(row)]}

    def lent() -> list[DraftAnswer]:
        donors = DraftDonors(log, 3)
        return [donors.pick(True, 1.0, (number,)) for number in range(50)]

    evenly = lent()
    assert all(0 < len(pick.tokens) == len(pick.scores) for pick in evenly)
    assert len({pick.tokens for pick in evenly}) > 1
    assert not {pick.entropy for pick in evenly} <= own
    first.propensity = 1e-9  # weighs everything
    assert {pick.entropy for pick in lent()} <= own
    first.propensity = 1.0
    donors = DraftDonors(log, 3)
    sure, unsure = (np.mean([donors.pick(False, p, (n,)).entropy for n in range(50)]) for p in (1.0, 0.0))
    assert np.isfinite([sure, unsure]).all()


def test_what_cannot_be_completed_is_refused() -> None:
    log = pruned(judged_trace(), "chain:3,sources=lookup")
    with pytest.raises(CoverageError, match="trace world must hold guesses of the draft to estimate from, got none"):
        DraftDonors(log)
    hidden = replace(log, manifest=replace(log.manifest, tokens_included=False))
    with pytest.raises(CoverageError, match="trace world must hold token ids for an estimate, got none"):
        check_completable(hidden)
    reads = replace(log, manifest=replace(log.manifest, draft_reads="target_features"))
    with pytest.raises(CoverageError, match="is of a draft that reads the target's features"):
        check_completable(reads)
