"""Live traces: the rounds of a driver, as rows of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from treewise.data.trace_schema import NodeTable, Rounds
from treewise.data.trace_writer import TraceWriter
from treewise.policy.forest import ASKED, Forest
from treewise.policy.hook import BoolArray, Int8Array
from treewise.policy.outcome import RoundRecord

NODE_SIGNALS = (
    "draft_prob",
    "draft_rank",
    "draft_entropy",
    "draft_margin",
    "in_draft_vocab",
    "draft_drawn_prob",
    "draft_drawn_rank",
    "draft_gap",
    "lookup_match_length",
    "lookup_count",
    "lookup_share",
    "lookup_age",
    "lookup_rank",
    "recycled_prob",
    "recycled_order",
    "recycled_weight",
    "recycled_rank",
)
ROOT_SIGNALS = (
    *("lookup_match_length", "lookup_count", "lookup_share", "lookup_age"),
    *("recycled_prob", "recycled_order", "recycled_weight"),
)


def node_columns(
    forest: Forest, request: int, round_index: int, root: int, kept: BoolArray, on_path: BoolArray, match: Int8Array
) -> dict[str, Any]:
    """Trace columns of one request's candidates in one round.

    Args:
        forest: the round's rows; may hold several requests.
        root: forest row of this request's root.
        kept, on_path, match: [rows] over the whole forest.
    """
    column = forest.column
    rows = np.flatnonzero((column("request") == column("request")[root]) & (column("parent") >= 0))
    number = np.zeros(forest.num_rows, dtype=np.int32)  # 0 stays the root's
    number[rows] = np.arange(1, len(rows) + 1)
    parts: dict[str, Any] = {name: column(name)[rows].copy() for name in NODE_SIGNALS}
    for name in ("depth", "level"):
        parts[name] = column(name)[rows].astype(np.int16)
    for name in ("token", "sources", "admitted", "drafted"):
        parts[name] = column(name)[rows].copy()
    parts["grown"] = column("grown")[rows] | column(ASKED)[rows]
    parts["request"] = np.full(len(rows), request, dtype=np.int32)
    parts["round"] = np.full(len(rows), round_index, dtype=np.int32)
    parts["node"] = number[rows]
    parts["parent"] = number[column("parent")[rows]]
    parts["kept"] = kept[rows]
    parts["on_path"] = on_path[rows]
    parts["match"] = match[rows]
    parts["survives"] = match[rows] == 1
    return parts


class LiveRecorder:
    """Turns the rounds of one request into trace rows; `add` after each round, `finish` at the end."""

    def __init__(
        self,
        prompt_id: str,
        task: str,
        prompt_tokens: int,
        temperature: float,
        seed: int,
        told_task: str = "",
        explorer: str = "",
        propensity: float = 1.0,
    ) -> None:
        """`explorer`: spec of the policy that was drawn to decide, with probability `propensity`; empty: none was."""
        self._fixed = {"prompt_id": prompt_id, "task": task, "told_task": told_task, "prompt_tokens": prompt_tokens}
        self._decider = {"explorer": explorer, "propensity": propensity}
        self._temperature = temperature
        self._seed = seed
        self._rounds: list[dict[str, Any]] = []
        self._nodes: list[dict[str, Any]] = []
        self._draft_agrees: dict[int, int] = {}  # position of the guess -> whether it agreed

    def add(self, record: RoundRecord) -> None:
        """Take one round of the request; everything is copied out of the engine's buffers."""
        context, forest, tree, own = record.context, record.tree.forest, record.tree, record.place
        nodes = node_columns(forest, 0, record.index, own, tree.kept, record.walk.on_path, record.walk.match)
        self._nodes.append(nodes)
        for place, agrees in enumerate(record.draft_agrees):
            self._draft_agrees[record.agrees_from + place] = agrees
        self._rounds.append(
            {
                **self._fixed,
                **self._decider,
                "request": 0,
                "round": record.index,
                "position": int(context.position[own]),
                "generated_tokens": int(context.generated_tokens[own]),
                "remaining_tokens": int(context.remaining_tokens[own]),
                "temperature": self._temperature,
                "seed": self._seed,
                "root_token": record.root_token,
                "committed": record.committed,
                "lookup_agrees": record.lookup_agrees,
                "target_entropy": float(context.target_entropy[own]),
                "target_margin": float(context.target_margin[own]),
                **{name: float(forest.column(name)[own]) for name in ROOT_SIGNALS},
                "opening": int(forest.column("grown")[own]),
                "num_nodes": len(nodes["node"]),
                "accepted_length": record.accepted_length,
                "draft_growths": len(record.growth_tokens),
                "draft_tokens": sum(record.growth_tokens),
                "verify_rows": record.verify_rows,
                "policy_calls": record.own_policy_calls,
                "fallback": record.fallback,
                "suspended": record.suspended,
                "draft_ms": record.draft_ms,
                "verify_ms": record.verify_ms,
                "policy_ms": record.policy_ms,
                "finish": record.finish,
                "batch_size": context.batch_size,
            }
        )

    def finish(self, writer: TraceWriter, reason: str = "") -> None:
        """Hand the request to `writer`. A request without rounds leaves nothing.

        `reason` is how the request ended where its last round does not say so.
        """
        if not self._rounds:
            return
        self._rounds[-1]["finish"] = self._rounds[-1]["finish"] or reason
        for row in self._rounds:
            start = row["position"]
            row["draft_agrees"] = [self._draft_agrees.get(start + i, -1) for i in range(len(row["committed"]))]
        writer.add(*build_tables(self._rounds, self._nodes))


def build_tables(rounds: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> tuple[Rounds, NodeTable]:
    """Tables of one request from rounds as mappings and nodes as columns per round."""
    columns = {name: [row[name] for row in rounds] for name in rounds[0]}
    merged = {name: np.concatenate([part[name] for part in nodes]) for name in nodes[0]}
    return Rounds.build(**columns), NodeTable.build(**merged)
