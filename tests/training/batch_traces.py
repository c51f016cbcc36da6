"""Logs that are replayed in batches and alone, and what must come out the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from tests.policy.models import tiny_bundle
from tests.policy.rank_tables import rank_table
from tests.training.worlds import ALL, COST, GrowAll, World, as_trace, dense, manifest
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError
from treewise.data.trace_schema import TraceShard, concatenate
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import (
    Expansion,
    Level,
    TreePolicy,
)
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.policy.sequoia import SequoiaPolicy, SequoiaSettings
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay
from treewise.training.replay_result import ReplayResult

ENVELOPE = Envelope(max_depth=6, draft_width=4)
SPECS = (
    "plain", "chain:4", "chain:3,sources=draft", "chain:5,sources=lookup", "static:2x3", "topn:12x3",
    "topn:8x2,sources=draft", "topn:12x3,sources=both", "topn:12x3,sources=free", "chain:5,sources=recycled",
    "entropy", "cumulative", "frontier", "switch", "opt-tree:10x0.2", "opt-tree:8x0.1,sources=draft",
    "feedback:12x4,probe_rounds=3", "feedback:12x4,headroom=0.2,context_tokens=8,sources=both", "sequoia",
)  # fmt: skip


def policy_of(spec: str) -> TreePolicy:
    if spec == "sequoia":
        return SequoiaPolicy(SequoiaSettings(nodes=10, depth=3), rank_table())
    return LearnedPolicy(tiny_bundle(), "flat") if spec == "learned" else parse_policy(spec)


@cache
def shard(seed: int, sources: int = ALL) -> TraceShard:
    world = World(seed=seed, num_texts=4, answer_tokens=30)
    return concatenate([dense(world, text, ENVELOPE.widened(), sources) for text in world.texts])


def with_noise(plain: TraceShard, seed: int) -> TraceShard:
    """What the draft would draw, made up: perturbed probabilities and their ranks among the siblings."""
    nodes, rng = plain.nodes, np.random.default_rng(seed)
    knows = ~np.isnan(nodes.draft_prob)
    drawn = np.where(knows, rng.random(len(nodes)), np.nan).astype(np.float32)
    parents = np.where(nodes.parent > 0, plain.parent_rows(), -1 - plain.round_rows())
    order = np.lexsort((-drawn, parents))
    first = np.concatenate([[True], parents[order][1:] != parents[order][:-1]])
    places = np.arange(len(nodes))
    ranks = np.empty(len(nodes), dtype=np.float32)
    ranks[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    ranks[~knows] = np.nan
    return replace(
        plain, nodes=replace(nodes, draft_drawn_prob=drawn, draft_drawn_rank=ranks, draft_gap=(drawn * 3).astype("f4"))
    )


@cache
def trace(seed: int = 0, ranking: str = PLAIN, tokens_included: bool = True, sources: int = ALL) -> LoggedTrace:
    plain = shard(seed, sources)
    noisy = plain if ranking == PLAIN else with_noise(plain, seed)
    conditions = replace(manifest("dense", ENVELOPE.widened()), ranking=ranking)
    return as_trace(noisy, conditions, tokens_included)


def check_same(ours: ReplayResult, theirs: ReplayResult) -> None:
    for name in type(ours).__dataclass_fields__:
        if name != "policy_seconds":
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


def check_batched(make: Callable[[], TreePolicy], log: LoggedTrace, batch_requests: int) -> ReplayResult:
    """One at a time is the reference. Returns the batched result."""
    setting = log.deployment(COST)
    alone = replay(make(), log.requests, setting, batch_requests=1)
    together = replay(make(), log.requests, setting, batch_requests=batch_requests)
    check_same(together, alone)
    return together


def covers(make: Callable[[], TreePolicy], log: LoggedTrace) -> bool:
    """Whether the log, whose noise is made up, holds what the policy asks for."""
    try:
        replay(make(), log.requests, log.deployment(COST), batch_requests=1)
    except CoverageError:
        return False
    return True


class OneMinded(GrowAll):
    """Decides for all requests by the first one's position: not a policy for batches."""

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        return answer if int(level.context.position[0]) % 2 else Expansion(answer.admit, np.zeros_like(answer.grow))
