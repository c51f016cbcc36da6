"""Random forests with something, or nothing, in every column: for comparing two ways to compute over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.policy.models import plain_context
from treewise.policy.forest import Forest
from treewise.policy.hook import DRAFT, FREE, Nodes, RoundContext

SIGNALS = ("draft_entropy", "draft_margin", "draft_drawn_prob", "draft_gap", "draft_prob", "lookup_share")
SIGNALS_OF_RECYCLED = ("recycled_prob", "recycled_order", "recycled_weight")
RANKS = ("draft_rank", "lookup_rank", "recycled_rank")
COUNTS = ("lookup_match_length", "lookup_count", "lookup_age")


def random_forest(rng: np.random.Generator, requests: int = 1, most_rows: int = 60) -> Nodes:
    """A forest of `requests` roots and up to `most_rows` rows for each, parents first."""
    rows = requests + int(rng.integers(0, requests * most_rows + 1))
    forest = Forest()
    forest.append(rows)
    column = forest.column
    request, parent, depth = column("request"), column("parent"), column("depth")
    level, missing, drafted = column("level"), column("draft_missing"), column("drafted")
    request[:requests] = np.arange(requests)
    bushy = int(rng.integers(1, 30))
    known = int(rng.integers(0, rows + 1))  # the draft ran on some of the first rows
    drafted[:known] = rng.random(known) < rng.choice([0.0, 0.2, 0.6])
    for row in range(requests, rows):
        above = (
            int(rng.integers(max(row - bushy * requests, 0), row))
            if rng.random() < 0.9
            else int(rng.integers(0, requests))
        )
        parent[row], request[row], depth[row] = above, request[above], depth[above] + 1
        level[row] = max(level[row - 1], level[above] + int(rng.random() < 0.3))
        missing[row] = 0 if drafted[above] else missing[above] + 1
    for name in (*SIGNALS, *SIGNALS_OF_RECYCLED):
        column(name)[:] = rng.random(rows)
    column("recycled_order")[:] = rng.integers(0, 4, size=rows)
    for name in RANKS:
        column(name)[:] = rng.integers(0, 4, size=rows)
    for name in COUNTS:
        column(name)[:] = rng.integers(0, 20, size=rows)
    column("draft_prob")[:] **= 8  # some below every float32 that a logarithm should see
    column("prior")[requests:] = rng.random(rows - requests)
    column("in_draft_vocab")[:] = rng.random(rows) < 0.8
    column("sources")[:] = rng.integers(0, 8, size=rows)
    holes = rng.choice([0.0, 0.3, 1.0])
    for name in (*SIGNALS, *SIGNALS_OF_RECYCLED, *RANKS, *COUNTS):
        column(name)[rng.random(rows) < holes] = np.nan
    for name in RANKS:
        column(name)[:requests] = np.nan
    column("may_grow")[:] = rng.integers(0, 1 + (DRAFT | FREE), size=rows)
    column("admitted")[:] = rng.random(rows) < 0.8
    column("admitted")[:requests] = True
    return forest.view()


def random_context(rng: np.random.Generator, requests: int = 1) -> RoundContext:
    """A context of `requests` requests, some at their beginning and some at their end."""
    agreement = rng.random((3, requests)).astype(np.float32)
    agreement[:, rng.random(requests) < 0.2] = np.nan
    return replace(
        plain_context(requests),
        draft_agreement=agreement[0],
        lookup_agreement=agreement[1],
        temperature=np.nan_to_num(agreement[2]),
        catch_up=rng.integers(0, 6, size=requests, dtype=np.int32),
        remaining_tokens=rng.integers(1, 20, size=requests, dtype=np.int32),
        position=rng.integers(1, 200, size=requests, dtype=np.int32),
    )
