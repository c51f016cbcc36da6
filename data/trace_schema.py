"""A trace in memory: rounds and nodes as structures of arrays, and the rules that hold between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError, TraceError
from treewise.data.trace_columns import (
    FINISHES,
    LISTS,
    NODE_COLUMNS,
    NODES_SCHEMA,
    ROUND_COLUMNS,
    ROUNDS_SCHEMA,
    SCHEMA_VERSION,
    Column,
)
from treewise.data.trace_manifest import TraceManifest

BoolArray: TypeAlias = NDArray[np.bool_]
UInt8Array: TypeAlias = NDArray[np.uint8]
Int8Array: TypeAlias = NDArray[np.int8]
Int16Array: TypeAlias = NDArray[np.int16]
Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]
Float32Array: TypeAlias = NDArray[np.float32]
TextArray: TypeAlias = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Rounds:
    """One row per root position. Units and meanings stand in `trace_columns`.

    The three lists are flat: round r owns the entries `committed_offsets[r]` to `committed_offsets[r + 1]` of each.
    """

    request: Int32Array  # [rounds] on disk counted from 0 within a shard, as read within the trace
    prompt_id: TextArray  # [rounds]
    task: TextArray  # [rounds]
    told_task: TextArray  # [rounds] empty: none
    round: Int32Array  # [rounds]
    position: Int32Array  # [rounds]
    generated_tokens: Int32Array  # [rounds]
    remaining_tokens: Int32Array  # [rounds]
    prompt_tokens: Int32Array  # [rounds]
    temperature: Float32Array  # [rounds]
    seed: Int64Array  # [rounds]
    root_token: Int32Array  # [rounds] -1 without ids
    committed: Int32Array  # [committed tokens] -1 without ids
    draft_agrees: Int8Array  # [committed tokens] 1, 0, or -1 where unknown
    lookup_agrees: Int8Array  # [committed tokens] 1, 0, or -1 where unknown
    committed_offsets: Int64Array  # [rounds + 1]
    target_entropy: Float32Array  # [rounds] bits; NaN where unknown
    target_margin: Float32Array  # [rounds]
    lookup_match_length: Float32Array  # [rounds] tokens
    lookup_count: Float32Array  # [rounds]
    lookup_share: Float32Array  # [rounds]
    lookup_age: Float32Array  # [rounds] tokens
    recycled_prob: Float32Array  # [rounds]
    recycled_order: Float32Array  # [rounds] tokens
    recycled_weight: Float32Array  # [rounds]
    opening: UInt8Array  # [rounds] source bits
    num_nodes: Int32Array  # [rounds]
    accepted_length: Int32Array  # [rounds] -1 in a dense trace
    draft_growths: Int32Array  # [rounds]
    draft_tokens: Int32Array  # [rounds]
    verify_rows: Int32Array  # [rounds]
    policy_calls: Int32Array  # [rounds]
    fallback: BoolArray  # [rounds]
    suspended: BoolArray  # [rounds]
    draft_ms: Float32Array  # [rounds] NaN in a dense trace
    verify_ms: Float32Array  # [rounds] NaN in a dense trace
    policy_ms: Float32Array  # [rounds] NaN in a dense trace
    finish: TextArray  # [rounds] "" except on the last round of a request
    explorer: TextArray  # [rounds] empty: the manifest's policy decided
    propensity: Float32Array  # [rounds] of who decided; 1 where nobody explores
    batch_size: Int32Array  # [rounds]

    def __post_init__(self) -> None:
        _check_columns("rounds", self, ROUND_COLUMNS, len(self.request))
        offsets = self.committed_offsets
        fits = offsets.dtype == np.int64 and offsets.shape == (len(self.request) + 1,)
        fits = (
            fits
            and int(offsets[0]) == 0
            and int(offsets[-1]) == len(self.committed)
            and bool((np.diff(offsets) >= 0).all())
        )
        if not fits:
            raise ParameterError(f"rounds.committed_offsets must be int64 offsets of [rounds + 1], got {offsets!r}")

    def __len__(self) -> int:
        return len(self.request)

    def committed_of(self, row: int) -> Int32Array:
        """The tokens that round `row` committed."""
        return self.committed[self.committed_offsets[row] : self.committed_offsets[row + 1]]

    @classmethod
    def build(cls, **columns: Any) -> Rounds:
        """Rounds from sequences by column name, lists as one sequence per round; columns that may be unknown may lack.

        Raises `ParameterError` on missing and unknown names, unequal lengths and values that do not fit their type.
        """
        count = len(columns["request"]) if "request" in columns else 0
        parts = _build_columns("rounds", columns, ROUND_COLUMNS, count)
        lengths = [[len(item) for item in columns[name]] for name in LISTS]
        if any(other != lengths[0] for other in lengths):
            raise ParameterError(f"rounds.{LISTS[1]} and {LISTS[2]} must be as long as {LISTS[0]}, got {lengths!r}")
        parts["committed_offsets"] = np.concatenate([[0], np.cumsum(lengths[0])]).astype(np.int64)
        return cls(**parts)

    def take(self, rows: NDArray[Any]) -> Rounds:
        """The rounds `rows`, a mask [rounds] or indices, in that order."""
        index = np.arange(len(self))[rows]
        starts, lengths = self.committed_offsets[index], np.diff(self.committed_offsets)[index]
        inner, offsets = _spread(starts, lengths)
        parts = {item.name: getattr(self, item.name)[inner if item.name in LISTS else index] for item in _flat(Rounds)}
        return Rounds(**parts, committed_offsets=offsets)


@dataclass(frozen=True, slots=True)
class NodeTable:
    """One row per candidate, roots left out; sorted by request, round and node. Units stand in `trace_columns`."""

    request: Int32Array  # [nodes]
    round: Int32Array  # [nodes]
    node: Int32Array  # [nodes] 1 .. num_nodes within a round
    parent: Int32Array  # [nodes] 0: the root
    depth: Int16Array  # [nodes]
    token: Int32Array  # [nodes] -1 without ids
    level: Int16Array  # [nodes]
    sources: UInt8Array  # [nodes] source bits
    draft_prob: Float32Array  # [nodes]
    draft_rank: Float32Array  # [nodes]
    draft_entropy: Float32Array  # [nodes] bits
    draft_margin: Float32Array  # [nodes]
    in_draft_vocab: BoolArray  # [nodes]
    draft_drawn_prob: Float32Array  # [nodes] NaN without noise, as the next two
    draft_drawn_rank: Float32Array  # [nodes]
    draft_gap: Float32Array  # [nodes] nats
    lookup_match_length: Float32Array  # [nodes] tokens
    lookup_count: Float32Array  # [nodes]
    lookup_share: Float32Array  # [nodes]
    lookup_age: Float32Array  # [nodes] tokens
    lookup_rank: Float32Array  # [nodes]
    recycled_prob: Float32Array  # [nodes]
    recycled_order: Float32Array  # [nodes] tokens
    recycled_weight: Float32Array  # [nodes]
    recycled_rank: Float32Array  # [nodes]
    admitted: BoolArray  # [nodes]
    grown: UInt8Array  # [nodes] source bits
    drafted: BoolArray  # [nodes]
    kept: BoolArray  # [nodes]
    on_path: BoolArray  # [nodes]
    match: Int8Array  # [nodes] 1, 0, or -1 where unknown
    survives: BoolArray  # [nodes]

    def __post_init__(self) -> None:
        _check_columns("nodes", self, NODE_COLUMNS, len(self.request))

    def __len__(self) -> int:
        return len(self.request)

    @classmethod
    def build(cls, **columns: Any) -> NodeTable:
        """Nodes from sequences by column name; columns that may be unknown may lack. Raises `ParameterError`."""
        count = len(columns["request"]) if "request" in columns else 0
        return cls(**_build_columns("nodes", columns, NODE_COLUMNS, count))

    def take(self, rows: NDArray[Any]) -> NodeTable:
        """The nodes `rows`, a mask [nodes] or indices, in that order."""
        return NodeTable(**{item.name: getattr(self, item.name)[rows] for item in fields(NodeTable)})


@dataclass(frozen=True, slots=True)
class TraceShard:
    """Rounds and their nodes, whole requests. `check` says whether the two belong together."""

    rounds: Rounds
    nodes: NodeTable

    @property
    def node_offsets(self) -> Int64Array:
        """[rounds + 1]: round r owns the node rows `node_offsets[r]` to `node_offsets[r + 1]`."""
        return np.concatenate([[0], np.cumsum(self.rounds.num_nodes, dtype=np.int64)])

    @property
    def num_requests(self) -> int:
        """Requests in the shard."""
        return len(np.unique(self.rounds.request))

    def round_rows(self) -> Int64Array:
        """[nodes] row of each node's round in `rounds`."""
        return np.repeat(np.arange(len(self.rounds)), self.rounds.num_nodes)

    def parent_rows(self) -> Int64Array:
        """[nodes] row of each node's parent in `nodes`; -1 below a root."""
        starts = self.node_offsets[:-1][self.round_rows()]
        return np.where(self.nodes.parent > 0, starts + self.nodes.parent - 1, -1)

    def take(self, rounds: NDArray[Any]) -> TraceShard:
        """The rounds `rounds`, a mask or indices, in that order, with their nodes; request numbers stay."""
        index = np.arange(len(self.rounds))[rounds]
        rows, _ = _spread(self.node_offsets[index], self.rounds.num_nodes[index].astype(np.int64))
        return TraceShard(self.rounds.take(index), self.nodes.take(rows))

    def renumbered(self, first: int) -> TraceShard:
        """The same with requests numbered `first`, `first + 1`, ... in order of appearance."""
        changes = np.diff(self.rounds.request, prepend=self.rounds.request[:1]) != 0
        request = (first + np.cumsum(changes)).astype(np.int32)
        rounds = {item.name: getattr(self.rounds, item.name) for item in fields(Rounds)}
        nodes = {item.name: getattr(self.nodes, item.name) for item in fields(NodeTable)}
        rounds["request"], nodes["request"] = request, request[self.round_rows()]
        return TraceShard(Rounds(**rounds), NodeTable(**nodes))

    def check(self) -> None:
        """Raise `TraceError`, which names the rule and the first row that breaks it, unless rounds and nodes agree."""
        rounds, nodes = self.rounds, self.nodes
        same = rounds.request[1:] == rounds.request[:-1]
        _hold("rounds", "request", "in order, without gaps", np.isin(np.diff(rounds.request), (0, 1)), 1)
        _hold("rounds", "round", "ascending within a request", ~same | (np.diff(rounds.round) > 0), 1)
        _hold("rounds", "batch_size", ">= 1", rounds.batch_size >= 1)
        _hold("rounds", "propensity", "above 0, at most 1", (rounds.propensity > 0) & (rounds.propensity <= 1))
        for name in ("prompt_id", "told_task", "explorer", "propensity"):
            values = getattr(rounds, name)
            _hold("rounds", name, "one per request", ~same | (values[1:] == values[:-1]), 1)
        _hold("rounds", "finish", f"one of {FINISHES}", np.isin(rounds.finish, FINISHES))
        _hold("rounds", "finish", "empty before the last round of a request", ~same | (rounds.finish[:-1] == ""))
        _hold("rounds", "num_nodes", ">= 0", rounds.num_nodes >= 0)
        total = int(rounds.num_nodes.sum(dtype=np.int64))
        if total != len(nodes):
            raise TraceError(f"rounds.num_nodes must add up to the {len(nodes)} nodes, got {total}")
        row = self.round_rows()
        _hold("nodes", "request", "that of its round", nodes.request == rounds.request[row])
        _hold("nodes", "round", "that of its round", nodes.round == rounds.round[row])
        place = np.arange(len(nodes)) - self.node_offsets[:-1][row] + 1
        _hold("nodes", "node", "1, 2, ... within a round", nodes.node == place)
        _hold("nodes", "parent", "an earlier row", (nodes.parent >= 0) & (nodes.parent < nodes.node))
        above = self.parent_rows()
        inner = above >= 0
        _hold("nodes", "depth", "one more than its parent's", nodes.depth == np.where(inner, nodes.depth[above], 0) + 1)
        _hold("nodes", "match", "1, 0 or -1", np.isin(nodes.match, (-1, 0, 1)))
        path = (nodes.match == 1) & (~inner | nodes.survives[above])
        _hold("nodes", "survives", "set only on a path of matches", ~nodes.survives | path)
        _hold("nodes", "kept", "closed under parents", ~nodes.kept | ~inner | nodes.kept[above])


def concatenate(shards: Sequence[TraceShard]) -> TraceShard:
    """One shard of all rows in order, requests renumbered from 0. Raises `TraceError` on none."""
    if not shards:
        raise TraceError("shards must be at least one, got none")
    first, parts = 0, []
    for shard in shards:
        parts.append(shard.renumbered(first))
        first += shard.num_requests
    rounds = {item.name: np.concatenate([getattr(part.rounds, item.name) for part in parts]) for item in _flat(Rounds)}
    lengths = np.concatenate([np.diff(part.rounds.committed_offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nodes = {
        item.name: np.concatenate([getattr(part.nodes, item.name) for part in parts]) for item in fields(NodeTable)
    }
    return TraceShard(Rounds(**rounds, committed_offsets=offsets), NodeTable(**nodes))


def _flat(table: Any) -> list[Any]:
    """The fields that are columns on disk."""
    return [item for item in fields(table) if item.name != "committed_offsets"]


def _item_dtype(column: Column) -> np.dtype[Any]:
    """The numpy dtype of a column's values, for lists of their items."""
    arrow = column.type.value_type if column.name in LISTS else column.type
    dtype: np.dtype[Any] = np.dtype(arrow.to_pandas_dtype())
    return dtype


def _check_columns(table: str, value: object, columns: Iterable[Column], count: int) -> None:
    """Dtype and length of every column; the text columns may have any width."""
    for column in columns:
        array = getattr(value, column.name)
        is_text = column.type == ROUNDS_SCHEMA.field("task").type
        dtype_fits = isinstance(array, np.ndarray) and (
            array.dtype.kind == "U" if is_text else array.dtype == _item_dtype(column)
        )
        length_fits = dtype_fits and array.ndim == 1 and (column.name in LISTS or len(array) == count)
        if not length_fits:
            kind = "str" if is_text else _item_dtype(column).name
            got = f"{array.dtype} of {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ParameterError(f"{table}.{column.name} must be {kind} of [{count}], got {got}")
    if table == "rounds":
        sizes = {name: len(getattr(value, name)) for name in LISTS}
        if len(set(sizes.values())) > 1:
            raise ParameterError(f"rounds.{', '.join(LISTS)} must be of one length, got {sizes}")


def _build_columns(table: str, given: dict[str, Any], columns: Sequence[Column], count: int) -> dict[str, Any]:
    """The columns as arrays of their dtypes; lists flattened."""
    unknown = sorted(set(given) - {column.name for column in columns})
    missing = sorted(column.name for column in columns if column.unknown is None and column.name not in given)
    if unknown or missing:
        raise ParameterError(f"{table} must hold its columns, got {missing} missing and {unknown} unknown")
    parts: dict[str, Any] = {}
    for column in columns:
        values = given.get(column.name)
        if values is None:
            values = [column.unknown] * count
        elif column.name in LISTS:
            if len(values) != count:
                raise ParameterError(f"{table}.{column.name} must be {count} lists, got {len(values)}")
            values = [item for part in values for item in part]
        dtype = np.dtype(np.str_) if column.type == ROUNDS_SCHEMA.field("task").type else _item_dtype(column)
        try:
            parts[column.name] = np.array(values, dtype=dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise ParameterError(f"{table}.{column.name} must be {dtype.name}: {error}") from error
    return parts


def _spread(starts: Int64Array, lengths: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Indices of the ranges that begin at `starts` and are `lengths` long, in order, and their offsets."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    inner = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths) + np.repeat(starts, lengths)
    return inner.astype(np.int64), offsets


def _hold(table: str, name: str, rule: str, holds: NDArray[Any], shift: int = 0) -> None:
    """Raise `TraceError` unless `holds` everywhere; entry i speaks of row i + shift."""
    if not holds.all():
        row = int(np.flatnonzero(~holds)[0]) + shift
        raise TraceError(f"{table}.{name} must be {rule}, got a breach at row {row}")


__all__ = [
    "NODES_SCHEMA",
    "ROUNDS_SCHEMA",
    "SCHEMA_VERSION",
    "NodeTable",
    "Rounds",
    "TraceManifest",
    "TraceShard",
    "concatenate",
]
