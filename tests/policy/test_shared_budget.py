"""One verify budget for a batch: where it goes, and that a request alone has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.policy.conformance import check_answers, check_determinism, check_edges, check_prices, check_spec
from tests.policy.models import ENVELOPE, tiny_bundle
from tests.policy.scripted import Played, World, example_deployment, play
from treewise.data.errors import ParameterError, PolicySpecError
from treewise.policy.budget import shared_survival
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Deployment, ForestView, TreePolicy, shares_budget
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.policy.shared_budget import SharedBudgetPolicy
from treewise.policy.topn import TopNPolicy, TopNSettings

WORLD = World(2, DRAFT | LOOKUP)
BATCH = (0, 1, 2)


def shared_topn(nodes: int = 4) -> TopNPolicy:
    return TopNPolicy(TopNSettings(nodes=nodes, depth=2, budget="batch"))


def shared(nodes: int = 0) -> SharedBudgetPolicy:
    return SharedBudgetPolicy(tiny_bundle(), "flat", compiled="off", nodes=nodes)


def deployment() -> Deployment:
    bound = example_deployment(DRAFT | LOOKUP)
    return replace(bound, envelope=ENVELOPE, prior_table=tiny_bundle().prior_table)


@pytest.mark.parametrize("check", [check_answers, check_edges, check_determinism, check_prices, check_spec])
def test_topn_with_the_batchs_budget_conforms(check) -> None:  # type: ignore[no-untyped-def]
    assert check(shared_topn) > 0


def test_the_batchs_nodes_go_to_the_surest_rows() -> None:
    rounds: list[Played] = []
    play(shared_topn(), WORLD, BATCH, rounds=rounds)
    uneven = 0
    for played in rounds:
        nodes, kept = played.tree.forest.view(), played.tree.kept
        requests = len(np.unique(nodes.request))
        inner = nodes.parent >= 0
        assert played.tree.num_nodes == min(4 * requests, int(inner.sum()))
        left = inner & ~kept
        survival = shared_survival(nodes)
        if left.any() and kept[inner].any():
            assert survival[inner & kept].min() >= survival[left].max()
        uneven += len(set(np.bincount(nodes.request[inner & kept], minlength=requests).tolist())) > 1
    assert uneven > 2


def test_alone_a_request_has_its_own_budget() -> None:
    bound = deployment()
    learned = LearnedPolicy(tiny_bundle(), "flat", compiled="off")
    alone = play(shared(), WORLD, (1,), deployment=bound)
    assert alone == play(learned, WORLD, (1,), deployment=bound)
    assert len(alone[1]) > 2
    rounds: list[Played] = []
    play(shared(nodes=3), WORLD, (1,), deployment=bound, rounds=rounds)
    assert max(played.tree.num_nodes for played in rounds) == 3


def test_a_shared_pass_is_priced_as_a_whole_and_goes_to_who_is_slow() -> None:
    """A row spares its request survival / rate milliseconds: the rows that spare most are kept, and no other number."""
    bound = deployment()
    seen = uneven = 0

    class Checked(SharedBudgetPolicy):
        """Requests come to rates that are far apart."""

        def select(self, forest: ForestView) -> BoolArray:
            nonlocal seen, uneven
            nodes, context = forest.nodes, forest.context
            requests = len(context.request_id)
            self._scores.prices = [
                replace(own, rate=own.rate * (1 + place)) for place, own in enumerate(self._scores.prices)
            ]
            keep = super().select(forest)
            if requests > 1:
                inner = nodes.admitted & (nodes.parent >= 0)
                survival = self._survival(nodes, context)
                saved = survival / np.asarray([own.rate for own in self._scores.prices])[nodes.request]
                best = np.sort(saved[inner])[::-1]
                longest = int(context.position.max())
                worth = [
                    best[:count].sum() - float(bound.cost.verify_ms(requests + count, longest))
                    for count in range(len(best) + 1)
                ]
                assert int(keep.sum()) - requests == int(np.argmax(worth))
                kept, left = inner & keep, inner & ~keep
                assert saved[kept].min(initial=np.inf) >= saved[left].max(initial=0.0)
                seen += 1
                uneven += bool(survival[kept].min(initial=1.0) < survival[left].max(initial=0.0))
            return keep

    play(Checked(tiny_bundle(), "flat", compiled="off"), WORLD, BATCH, deployment=bound)
    assert seen > 2 and uneven > 0 and shared().shares_budget


def test_who_shares_says_so() -> None:
    policies: list[tuple[TreePolicy, bool]] = [
        (shared_topn(), True),
        (shared(), True),
        (parse_policy("topn:4x2"), False),
        (parse_policy("plain"), False),
        (LearnedPolicy(tiny_bundle(), "flat"), False),
    ]
    assert [shares_budget(policy) for policy, _ in policies] == [says for _, says in policies]
    assert shares_budget(ContainedPolicy(shared_topn())) is False  # a wrapper answers for itself
    assert parse_policy("topn:4x2,budget=batch").spec == "topn:4x2,budget=batch"  # type: ignore[attr-defined]


def test_settings_that_are_refused() -> None:
    with pytest.raises(PolicySpecError, match="budget must be one of request, batch, got 'all'"):
        parse_policy("topn:4x2,budget=all")
    with pytest.raises(ParameterError, match="nodes must be a whole number >= 0, got -1"):
        shared(-1)
    with pytest.raises(PolicySpecError, match="shared:DIR with the folder of a bundle"):
        parse_policy("shared")
