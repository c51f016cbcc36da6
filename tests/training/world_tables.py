"""Trace tables of the made-up worlds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treewise.data.trace_schema import NodeTable, Rounds, TraceShard
from treewise.policy.forest import ASKED
from treewise.policy.outcome import Walk
from treewise.policy.progress import Progress
from treewise.policy.record import NODE_SIGNALS, ROOT_SIGNALS
from treewise.policy.round import RoundTree

if TYPE_CHECKING:
    from tests.training.world_law import Text, World

NODE_NAMES = ("parent", "depth", "token", "level", "sources", *NODE_SIGNALS, "admitted", "drafted")


def target_state(position: int) -> tuple[float, float]:
    """Made-up entropy and margin of the distribution that the token at `position` was drawn from."""
    return float(np.float32(1.0 + 0.01 * position)), float(np.float32(0.5 / (1 + position)))


def round_columns(
    world: World, text: Text, state: Progress, tree: RoundTree, accepted: int, committed: Sequence[int], number: int
) -> dict[str, Any]:
    """One row of the table of rounds."""
    column = tree.forest.column
    first = number == 0
    entropy, margin = (np.nan, np.nan) if first else target_state(state.position)
    positions = range(state.position, state.position + len(committed))
    return {
        "prompt_id": text.prompt_id,
        "task": text.task,
        "round": number,
        "position": state.position,
        "generated_tokens": state.generated_tokens,
        "remaining_tokens": state.remaining_tokens,
        "prompt_tokens": len(text.prompt),
        "root_token": text.tokens[state.position],
        "committed": list(committed),
        "draft_agrees": [world.draft_agrees(text, p) for p in positions],
        "lookup_agrees": [world.lookup_agrees(text, p) for p in positions],
        "target_entropy": entropy,
        "target_margin": margin,
        **{name: float(column(name)[0]) for name in ROOT_SIGNALS},
        "opening": int(column("grown")[0]),
        "num_nodes": len(column("parent")) - 1,
        "accepted_length": accepted,
        "draft_growths": len(tree.growth_tokens),
        "draft_tokens": sum(tree.growth_tokens),
        "policy_calls": tree.policy_calls,
        "finish": "",
    }


def node_columns(text: Text, position: int, tree: RoundTree, result: Walk | None, number: int) -> dict[str, Any]:
    """The rows of the table of nodes that belong to one round, by column; a dense round has no walk."""
    forest = tree.forest
    parent, depth, token = (forest.column(name).tolist() for name in ("parent", "depth", "token"))
    count = len(parent)
    survives = [True] + [False] * (count - 1)
    match = [-1] * count
    for row in range(1, count):
        place = position + depth[row]
        if survives[parent[row]] and place < len(text.tokens):
            match[row] = int(token[row] == text.tokens[place])
            survives[row] = match[row] == 1
    columns = {name: forest.column(name)[1:].tolist() for name in NODE_NAMES}
    columns["grown"] = (forest.column("grown") | forest.column(ASKED))[1:].tolist()
    columns["round"] = [number] * (count - 1)
    columns["node"] = list(range(1, count))
    columns["kept"] = tree.kept[1:].tolist() if result is not None else [False] * (count - 1)
    columns["on_path"] = result.on_path[1:].tolist() if result is not None else [False] * (count - 1)
    columns["match"] = result.match[1:].tolist() if result is not None else match[1:]
    columns["survives"] = (
        (result.on_path & (forest.column("depth") > 0))[1:].tolist() if result is not None else survives[1:]
    )
    return columns


def shard_of(rounds: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> TraceShard:
    """One request's shard."""
    columns: dict[str, Any] = {name: [row[name] for row in rounds] for name in rounds[0]}
    columns["request"] = [0] * len(rounds)
    table: dict[str, Any] = {name: [value for part in nodes for value in part[name]] for name in nodes[0]}
    table["request"] = [0] * len(table["node"])
    return TraceShard(Rounds.build(**columns), NodeTable.build(**table))
