"""Features: hand-made values, path columns against brute force, and the same answers online as in hindsight."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tests.policy.models import plain_context, played_rounds
from tests.policy.scripted import Played, World, play
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import (
    FEATURE_GROUPS,
    FEATURES,
    GROWTH_FEATURES,
    growth_features,
    node_features,
)
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, LOOKUP, Expansion, Float32Array, Level, Nodes


def column(name: str) -> int:
    return FEATURES.index(name)


def small_forest() -> Nodes:
    """Root; lookup chain 1 -> 2; lookup alternative 3; draft-only child 4 of the root. The draft ran on the root."""
    forest = Forest()
    forest.append(5)
    values: dict[str, list[float]] = {
        "request": [0] * 5,
        "parent": [-1, 0, 1, 0, 0],
        "depth": [0, 1, 2, 1, 1],
        "sources": [0, LOOKUP | DRAFT, LOOKUP, LOOKUP, DRAFT],
        "prior": [1.0, 0.6, 0.5, 0.2, 0.25],
        "path_prior": [1.0, 0.6, 0.3, 0.2, 0.25],
        "draft_prob": [np.nan, 0.5, np.nan, 0.125, 0.25],
        "draft_rank": [np.nan, 0, np.nan, 3, 1],
        "draft_entropy": [np.nan, 1.5, np.nan, 1.5, 1.5],
        "draft_margin": [np.nan, 0.25, np.nan, 0.25, 0.25],
        "lookup_match_length": [4, 4, 5, 4, 4],
        "lookup_count": [3, 3, 2, 1, 0],
        "lookup_share": [0.75, 0.75, 1.0, 0.25, 0.0],
        "lookup_age": [9, 9, 9, 19, np.nan],
        "lookup_rank": [np.nan, 0, 0, 1, np.nan],
        "level": [0, 1, 1, 1, 1],
        "drafted": [1, 0, 0, 0, 0],
    }
    for name, given in values.items():
        forest.column(name)[:] = given
    return forest.view()


NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("draft_log_prob", [np.log(0.5), NAN, np.log(0.125), np.log(0.25)]),
        ("lookup_log_count", [np.log(4), np.log(3), np.log(2), 0.0]),
        ("in_both", [1, 0, 0, 0]),
        ("first_agree", [1, NAN, 1, 1]),
        ("lookup_first_draft_prob", [0.5, NAN, 0.5, 0.5]),
        ("draft_first_lookup_share", [0.75, NAN, 0.75, 0.75]),
        ("draft_rival_prob", [0.25, NAN, 0.5, 0.5]),
        ("lookup_rival_share", [0.25, NAN, 0.75, 0.75]),
        ("parent_draft_log_prob", [NAN, np.log(0.5), NAN, NAN]),
        ("parent_match_length", [NAN, 4, NAN, NAN]),
        ("parent_in_both", [NAN, 1, NAN, NAN]),
        ("depth", [1, 2, 1, 1]),
        ("draft_agreement", [0.9 / 1.9] * 4),
        ("lookup_agreement", [1.0] * 4),
        ("temperature", [0.0] * 4),
    ],
)
def test_hand_made_values(name: str, expected: list[float]) -> None:
    features = node_features(small_forest(), np.arange(1, 5), plain_context())
    np.testing.assert_allclose(features[:, column(name)], expected, rtol=1e-6)


def test_disagreement_is_told_from_silence() -> None:
    nodes = small_forest()
    rank = nodes.draft_rank.copy()
    rank[[1, 4]] = rank[[4, 1]]
    forest = Forest()
    forest.append(5)
    for field in fields(Nodes):
        forest.column(field.name)[:] = rank if field.name == "draft_rank" else getattr(nodes, field.name)
    agree = node_features(forest.view(), np.arange(1, 5), plain_context())[:, column("first_agree")]
    np.testing.assert_array_equal(agree, [0, NAN, 0, 0])


def test_names_are_unique_and_grouped() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
    assert len(set(GROWTH_FEATURES)) == len(GROWTH_FEATURES)
    assert sum(len(group) for group in FEATURE_GROUPS.values()) == len(FEATURES)
    assert not any("accepted" in name or "target" in name for name in FEATURES + GROWTH_FEATURES)


def test_shape_type_and_layout() -> None:
    nodes = played_rounds()[0].tree.forest.view()
    rows = np.asarray([5, 2, 9])
    features = node_features(nodes, rows, plain_context())
    assert features.shape == (3, len(FEATURES))
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    np.testing.assert_array_equal(features, node_features(nodes, np.arange(1, 12), plain_context())[rows - 1])
    assert node_features(nodes, rows[:0], plain_context()).shape == (0, len(FEATURES))


def test_batch_mates_change_nothing() -> None:
    together = played_rounds(2, requests=3)[0].tree.forest.view()
    alone = played_rounds(2)[0].tree.forest.view()
    rows = np.flatnonzero((together.request == 0) & (together.parent >= 0))
    mine = np.flatnonzero(alone.parent >= 0)
    np.testing.assert_array_equal(
        node_features(together, rows, plain_context(3)), node_features(alone, mine, plain_context())
    )


class Witness(EverythingPolicy):
    """Grows everything and remembers the first round's growth features at the moment of each decision."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.seen: dict[int, Float32Array] = {}

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.rounds == 1:
            rows = np.arange(level.start, len(level.forest.parent))
            told = growth_features(level.forest, rows, plain_context())
            self.seen.update(zip(rows.tolist(), told, strict=True))
        return super().expand(level)


def test_growth_features_do_not_look_ahead() -> None:
    """What the finished forest says below a row equals what was known when its growth was decided."""
    below = [place for place, name in enumerate(GROWTH_FEATURES) if name.startswith("below_")]
    for seed in (1, 2, 4):
        policy = Witness()
        rounds: list[Played] = []
        play(policy, World(seed), rounds=rounds)
        nodes = rounds[0].tree.forest.view()
        hindsight = growth_features(nodes, np.arange(len(nodes.parent)), plain_context())
        assert hindsight.shape == (len(nodes.parent), len(GROWTH_FEATURES))
        assert len(policy.seen) > 20
        known = 0
        for row, told in policy.seen.items():
            np.testing.assert_array_equal(hindsight[row][below], told[below])
            known += not np.isnan(told[below[0]])
        assert 0 < known < len(policy.seen)


def test_growth_features_from_node_features_are_the_same() -> None:
    nodes = played_rounds(1)[0].tree.forest.view()
    rows = np.arange(1, len(nodes.parent))
    context = plain_context()
    direct = growth_features(nodes, np.arange(len(nodes.parent)), context)
    np.testing.assert_array_equal(
        direct[1:], growth_features(nodes, rows, context, node_features(nodes, rows, context))
    )
    root = dict(zip(GROWTH_FEATURES, direct[0].tolist(), strict=True))
    assert np.isnan([root[name] for name in ("draft_log_prob", "draft_rank", "lookup_share")]).all()
    assert [root[name] for name in ("in_draft_vocab", "depth", "log_prior", "temperature")] == [1.0, 0.0, 0.0, 0.0]
    assert root["below_share"] == nodes.lookup_share[0]
    assert root["below_log_count"] == pytest.approx(np.log1p(nodes.lookup_count[0]))
