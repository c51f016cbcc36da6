"""Engines of tiny pairs for tests: built by a policy's spec, driven round by round with both caches looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.engine.tiny import RandomPolicy, example_cost, lax_settings
from treewise.data.envelope import Envelope
from treewise.engine.decode import Engine, RoundRecord
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy

PROMPT = [3, 7, 1, 3, 7, 1, 3, 7]
OPEN = Envelope(min_path_prior=1e-9, min_grow_prior=1e-9)  # chains are cut by their policy alone
INVENTIVE = [5, 2, 9, 14]  # the model of seed 0 does not answer it with one token over and over


def policy_of(spec: str, seed: int = 0) -> TreePolicy:
    """A policy by spec, or one of the two that exist for tests and dense traces."""
    if spec == "random":
        return RandomPolicy(seed)
    return EverythingPolicy() if spec == "everything" else parse_policy(spec)


def engine_of(pair: Pair, spec: str | TreePolicy = "topn:12x3", **changes: Any) -> Engine:
    """An engine whose decisions depend on no clock; `changes` are engine settings."""
    policy = policy_of(spec) if isinstance(spec, str) else spec
    return Engine(pair, policy, example_cost(), lax_settings(**changes))


def checked_rounds(
    engine: Engine, prompt: list[int], limit: int, sampling: Sampling | None = None
) -> Iterator[RoundRecord]:
    """Rounds of the engine, with both caches looked at after each."""
    for record in engine.rounds(prompt, limit, sampling):
        end = int(record.context.position[0]) + len(record.committed)
        assert engine._target.num_passes == record.index + 1
        assert engine._target.tree_model.cache.length == end
        engine._target.tree_model.cache.check_integrity()
        if engine._draft is not None:
            engine._draft.check_integrity()
        record.tree.forest.check_integrity()
        yield record


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    """Greedy, or any mix of temperature and warpers."""
    if draw(st.booleans()):
        return Sampling()
    return Sampling(
        draw(st.sampled_from([0.5, 0.8, 1.0, 1.5])),
        draw(st.sampled_from([0, 1, 3, 8, 100])),
        draw(st.sampled_from([1.0, 0.9, 0.5, 0.05])),
        draw(st.integers(0, 2**40)),
        draw(st.sampled_from([0.0, 0.0, 0.02, 0.3])),
        draw(st.sampled_from([1.0, 1.0, 0.9, 0.4])),
    )
