"""Dense traces whose every position is made to order: how sure the target is, what the draft guesses, how far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.training.worlds import as_trace, manifest
from treewise.data.envelope import Envelope
from treewise.data.trace_schema import NodeTable, Rounds, TraceShard, concatenate
from treewise.policy.hook import DRAFT, LOOKUP
from treewise.training.logged_trace import LoggedTrace

PROMPT_TOKENS = 5
WRONG = 0  # a token that no text holds


@dataclass(frozen=True, slots=True)
class Place:
    """One position."""

    entropy_bits: float
    is_first: bool  # the draft's first guess is right
    run: int  # nodes of the text's path that the draft proposes
    looked_up: int = 0  # nodes behind them that only the lookup proposes
    stated: float = 0.5  # the draft's highest probability
    draft_entropy_bits: float = 3.0


def made_shard(prompt_id: str, task: str, places: Sequence[Place]) -> TraceShard:
    """One text of as many tokens; a draft whose first guess is wrong has it beside the right one."""
    count = len(places)
    text = [1 + number % 20 for number in range(count + 8)]  # what is said behind the limit counts as well
    nodes: list[dict[str, Any]] = []
    sizes = []
    for number, place in enumerate(places):
        own: list[dict[str, Any]] = []
        common = {"request": 0, "round": number, "level": 1, "draft_entropy": place.draft_entropy_bits}
        if not place.is_first:
            own.append({"parent": 0, "depth": 1, "token": WRONG, "sources": DRAFT, "draft_rank": 0.0, "match": 0})
        above = 0
        for depth in range(1, place.run + place.looked_up + 1):
            drafted = depth <= place.run
            rank = 1.0 if depth == 1 and not place.is_first else 0.0
            row: dict[str, Any] = {"parent": above, "depth": depth, "token": text[number + depth - 1], "match": 1}
            row |= {
                "survives": True,
                "sources": DRAFT if drafted else LOOKUP,
                "draft_rank": rank if drafted else float("nan"),
            }
            own.append(row)
            above = len(own)
        for node, row in enumerate(own, 1):
            probability = place.stated if row["draft_rank"] == 0 and row["depth"] == 1 else 0.1
            nodes.append({"survives": False, **common, **row, "node": node, "draft_prob": probability})
        sizes.append(len(own))
    rounds = Rounds.build(
        request=[0] * count,
        prompt_id=[prompt_id] * count,
        task=[task] * count,
        round=list(range(count)),
        position=[PROMPT_TOKENS - 1 + number for number in range(count)],
        generated_tokens=list(range(count)),
        remaining_tokens=[count - number for number in range(count)],
        prompt_tokens=[PROMPT_TOKENS] * count,
        committed=[[token] for token in text[:count]],
        draft_agrees=[[int(place.is_first)] for place in places],
        lookup_agrees=[[-1] for _ in places],
        # Logged at a root is the distribution that drew the root itself.
        target_entropy=[float("nan"), *(place.entropy_bits for place in places[:-1])],
        opening=[DRAFT | LOOKUP] * count,
        num_nodes=sizes,
        finish=[""] * (count - 1) + ["length"],
    )
    columns = {name: [row[name] for row in nodes] for name in nodes[0]}
    return TraceShard(rounds, NodeTable.build(**columns))


def made_trace(texts: Sequence[tuple[str, str, Sequence[Place]]]) -> LoggedTrace:
    """A dense trace of the texts, each (prompt id, task, places)."""
    shard = concatenate([made_shard(*text) for text in texts])
    return as_trace(shard, manifest("dense", Envelope(max_depth=8, draft_width=4)))
