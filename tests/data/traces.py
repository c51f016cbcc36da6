"""Made-up traces for the tests: random trees with consistent outcomes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.trace_schema import NodeTable, Rounds, TraceManifest, TraceShard


def manifest(**changes: Any) -> TraceManifest:
    """A manifest with `changes`."""
    settings: dict[str, Any] = {
        "kind": "live",
        "pair": {"target": "tiny", "draft": "none"},
        "tokenizer_hash": "ab" * 32,
        "envelope": Envelope(),
        "prior_table": PriorTable(),
        "vocab_size": 50,
        "max_new_tokens": 16,
        "policy": "chain:3",
        "created": "2026-01-01T00:00:00+00:00",
        "command": "treewise collect",
    }
    return TraceManifest(**{**settings, **changes})


def request(prompt_id: str, seed: int = 0, num_rounds: int = 4, task: str = "chat") -> tuple[Rounds, NodeTable]:
    """One finished request of `num_rounds` rounds with up to 6 nodes each, from its own generator."""
    rng = np.random.default_rng([seed, *prompt_id.encode()])
    sizes = rng.integers(0, 7, num_rounds)
    parents: list[int] = []
    depths: list[int] = []
    match: list[int] = []
    survives: list[bool] = []
    for size in sizes:
        first = len(parents)
        taken: set[int] = set()  # parents that already have a matching child
        for node in range(1, size + 1):
            parent = int(rng.integers(0, node))
            above = parent == 0 or survives[first + parent - 1]
            hit = above and parent not in taken and bool(rng.random() < 0.5)
            if hit:
                taken.add(parent)
            parents.append(parent)
            depths.append(1 if parent == 0 else depths[first + parent - 1] + 1)
            match.append(int(hit) if above else -1)
            survives.append(hit)
    row = np.repeat(np.arange(num_rounds), sizes)
    accepted = np.zeros(num_rounds, dtype=int)
    np.maximum.at(accepted, row, np.where(survives, depths, 0).astype(int))
    committed = [rng.integers(0, 50, length + 1).tolist() for length in accepted]
    starts = np.concatenate([[1], 1 + np.cumsum(accepted + 1)])[:-1]
    rounds = Rounds.build(
        request=[9] * num_rounds,
        prompt_id=[prompt_id] * num_rounds,
        task=[task] * num_rounds,
        round=np.arange(num_rounds),
        position=10 + starts,
        generated_tokens=starts,
        remaining_tokens=100 - starts,
        prompt_tokens=[10] * num_rounds,
        seed=[seed] * num_rounds,
        root_token=rng.integers(0, 50, num_rounds),
        committed=committed,
        draft_agrees=[[1] * len(tokens) for tokens in committed],
        lookup_agrees=[[0, *[-1] * (len(tokens) - 1)] for tokens in committed],
        target_entropy=rng.random(num_rounds),
        num_nodes=sizes,
        accepted_length=accepted,
        verify_rows=sizes + 1,
        finish=[""] * (num_rounds - 1) + ["length"],
    )
    count = len(parents)
    nodes = NodeTable.build(
        request=[9] * count,
        round=row,
        node=np.concatenate([np.arange(1, size + 1) for size in sizes]),
        parent=parents,
        depth=depths,
        token=rng.integers(0, 50, count),
        level=[1] * count,
        sources=rng.integers(1, 4, count),
        draft_prob=rng.random(count),
        draft_rank=rng.integers(0, 5, count),
        lookup_match_length=rng.integers(0, 5, count),
        lookup_count=rng.integers(0, 3, count),
        kept=[True] * count,
        on_path=survives,
        match=match,
        survives=survives,
    )
    return rounds, nodes


def same(left: Any, right: Any, but: tuple[str, ...] = ()) -> bool:
    """Whether two tables, or two shards, hold the same values of the same dtypes; NaN equals NaN."""
    if isinstance(left, TraceShard):
        return same(left.rounds, right.rounds, but) and same(left.nodes, right.nodes, but)
    for item in fields(left):
        mine, theirs = getattr(left, item.name), getattr(right, item.name)
        if item.name in but:
            continue
        if mine.dtype != theirs.dtype and (mine.dtype.kind, theirs.dtype.kind) != ("U", "U"):
            return False
        if not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"):
            return False
    return True
