"""A small world that is judged under two costs: what tests of the A/B, its oracles and its break-even points share."""

from __future__ import annotations

from functools import cache

from tests.training.worlds import COST, World, dense_trace
from treewise.data.cost import BUILTIN
from treewise.data.envelope import Envelope
from treewise.training.ab import ab
from treewise.training.ab_report import AbReport
from treewise.training.logged_trace import LoggedTrace

ENVELOPE = Envelope(max_depth=5, draft_width=4)
EXAMPLE = BUILTIN["example-a100-70b"]
SPECS = ("topn:8x2", "plain", "chain:3,sources=lookup", "frontier")


@cache
def judged_world() -> World:
    """Four texts."""
    return World(seed=7, num_texts=4, answer_tokens=26)


@cache
def judged_trace() -> LoggedTrace:
    """Its dense trace."""
    return dense_trace(judged_world(), ENVELOPE)


@cache
def judged_report() -> AbReport:
    """Every policy of `SPECS` under both costs, oracles included."""
    return ab([judged_trace()], [COST, EXAMPLE], SPECS, with_depth_oracles=True)
