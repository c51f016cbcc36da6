"""The roots that rounds open at: they are harder than the average position, for something was just guessed wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.policy.opt_tree import OptTreePolicy, OptTreeSettings
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import replay

VisitedRoots: TypeAlias = Mapping[tuple[str, int], frozenset[int]]  # (prompt, seed) -> positions

# Where rounds open depends on what was accepted, and reasonable trees accept much the same; this one reads no costs.
# It drafts on where guesses are sure, as a policy will: a tree of one level would open rounds in the midst of them.
VISITING = OptTreeSettings(nodes=32)


def visited_roots(trace: LoggedTrace, cost: CostProfile, envelope: Envelope | None = None) -> VisitedRoots:
    """Where the rounds of a fixed tree open on each request of a dense trace, by replay.

    Raises `CoverageError` where the trace is narrower than `envelope`.
    """
    keys = [(entry.prompt_id, entry.seed) for entry in trace.entries]
    opened: dict[tuple[str, int], set[int]] = {key: set() for key in keys}
    rounds = replay(OptTreePolicy(VISITING), trace.requests, trace.deployment(cost, envelope))
    for place, position in zip(rounds.request.tolist(), rounds.position.tolist(), strict=True):
        opened[keys[place]].add(position)
    return {key: frozenset(positions) for key, positions in opened.items()}
