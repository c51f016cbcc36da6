"""Reading traces: every shard is validated before its rows are handed out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treewise.data.errors import ShardError, TraceError, TreewiseError
from treewise.data.trace_columns import LATE, LISTS, NODES_SCHEMA, ROUNDS_SCHEMA
from treewise.data.trace_manifest import (
    IDENTITY_KEY,
    NODES_NAME,
    ROUNDS_NAME,
    SHARDS_NAME,
    TEMPORARY_PREFIX,
    TraceManifest,
)
from treewise.data.trace_schema import NodeTable, Rounds, TraceShard, concatenate


class TraceReader:
    """The shards of the trace in `folder`, in order of their numbers, one in memory at a time.

    Raises `TraceError` where there is no trace and `SchemaVersionError` on another schema version; iterating raises
    `ShardError`, which names the file, on a shard that is corrupted, truncated or of another trace. With `skip_bad`
    such shards are left out and counted in `skipped`. What killed writers left behind is counted in `leftovers`.
    """

    def __init__(self, folder: str | Path, skip_bad: bool = False) -> None:
        self.folder = Path(folder)
        self.manifest = TraceManifest.load(folder)
        self.skip_bad = skip_bad
        self._bad: set[str] = set()

    @property
    def skipped(self) -> int:
        """Bad shards that were met and left out so far."""
        return len(self._bad)

    @property
    def leftovers(self) -> int:
        """Temporary files and folders of writers that did not finish, or have not yet."""
        places = (self.folder, self.folder / SHARDS_NAME)
        return sum(len(list(place.glob(f"{TEMPORARY_PREFIX}*"))) for place in places if place.is_dir())

    def shard_paths(self) -> list[Path]:
        """The folders of the closed shards, in order."""
        return shard_paths(self.folder)

    def __iter__(self) -> Iterator[TraceShard]:
        """The shards, their requests numbered on from shard to shard."""
        identity = self.manifest.identity()
        first = 0
        for path in self.shard_paths():
            try:
                shard = read_shard(path, identity)
            except ShardError:
                if not self.skip_bad:
                    raise
                self._bad.add(path.name)
                continue
            yield shard.renumbered(first)
            first += shard.num_requests

    def read(self, names: Sequence[str]) -> TraceShard:
        """The shards of those names at once. Raises `ShardError`."""
        identity = self.manifest.identity()
        return concatenate([read_shard(self.folder / SHARDS_NAME / name, identity) for name in names])

    def read_all(self) -> TraceShard:
        """Everything at once. Raises `TraceError` where there is no shard that can be read."""
        shards = list(self)
        if not shards:
            raise TraceError(f"{self.folder} must hold at least one readable shard, got none")
        return concatenate(shards)

    def content_hash(self) -> str:
        """SHA-256, in hex, over the manifest's conditions and the bytes of every closed shard, in order."""
        digest = hashlib.sha256(self.manifest.identity().encode("ascii"))
        for path in self.shard_paths():
            for name in (ROUNDS_NAME, NODES_NAME):
                part = path / name
                if not part.is_file():
                    raise ShardError(f"{part} is missing")
                with part.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def shard_paths(folder: Path) -> list[Path]:
    """The folders of the closed shards of the trace in `folder`, in order of their numbers."""
    shards = folder / SHARDS_NAME
    if not shards.is_dir():
        return []
    found = (path for path in shards.iterdir() if path.name.isdecimal())  # a file in a shard's place is a bad shard
    return sorted(found, key=lambda path: int(path.name))


def read_requests(folder: Path) -> set[tuple[str, int]]:
    """Prompt id and seed of every request in closed shards. Raises `ShardError`."""
    return {request for path in shard_paths(folder) for request in read_shard_requests(path)}


def read_shard_requests(path: Path) -> set[tuple[str, int]]:
    """The same of the one shard in the folder `path`."""
    table = _read(path / ROUNDS_NAME, ROUNDS_SCHEMA, None, ["prompt_id", "seed"])
    return set(zip(table.column("prompt_id").to_pylist(), table.column("seed").to_pylist(), strict=True))


def read_round_columns(
    path: Path, identity: str, names: Sequence[str]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """(columns `names` of the rounds of the shard in the folder `path`, committed tokens of each); nothing is checked.

    `committed` must be among `names`. Raises `ShardError`.
    """
    file = path / ROUNDS_NAME
    table = _read(file, ROUNDS_SCHEMA, identity, list(names))
    try:
        lengths = _column(table, LISTS[0]).value_lengths().to_numpy(zero_copy_only=False)
        return {name: _values(table, name) for name in names}, lengths.astype(np.int64)
    except TraceError as error:
        raise ShardError(f"{file}: {error}") from error


def count_nodes(path: Path, identity: str) -> int:
    """Rows of the table of nodes of the shard in the folder `path`, by its footer. Raises `ShardError`."""
    return int(_read(path / NODES_NAME, NODES_SCHEMA, identity, []).num_rows)


def read_shard(path: Path, identity: str | None = None) -> TraceShard:
    """The shard in the folder `path`, validated; `identity` is that of the manifest it must belong to.

    Raises `ShardError`, which names the file.
    """
    rounds_path, nodes_path = path / ROUNDS_NAME, path / NODES_NAME
    rounds = _read(rounds_path, ROUNDS_SCHEMA, identity)
    nodes = _read(nodes_path, NODES_SCHEMA, identity)
    try:
        shard = TraceShard(_rounds(rounds), NodeTable(**{name: _values(nodes, name) for name in _names(NodeTable)}))
        shard.check()
    except TreewiseError as error:
        broken = nodes_path if str(error).startswith("nodes") else rounds_path
        raise ShardError(f"{broken}: {error}") from error
    return shard


def _read(path: Path, schema: Any, identity: str | None, columns: list[str] | None = None) -> Any:
    """The table in one file, its schema and its trace checked."""
    if not path.is_file():
        raise ShardError(f"{path} is missing")
    try:
        with pq.ParquetFile(path) as file:
            found = file.schema_arrow
            _check_schema(path, found, schema)
            _check_identity(path, found.metadata, identity)
            return file.read(columns)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{path} is not a readable Parquet file: {error}") from error


def _check_schema(path: Path, found: Any, schema: Any) -> None:
    missing = [name for name in schema.names if name not in found.names and name not in LATE]
    unknown = [name for name in found.names if name not in schema.names]
    if missing or unknown:
        raise ShardError(f"{path} must hold the columns of its table, got {missing} missing and {unknown} unknown")
    for field in (field for field in schema if field.name in found.names):
        kind = found.field(field.name).type
        if kind != field.type:
            raise ShardError(f"{path}: {field.name} must be {field.type}, got {kind}")


def _check_identity(path: Path, metadata: dict[bytes, bytes] | None, identity: str | None) -> None:
    marked = (metadata or {}).get(IDENTITY_KEY, b"").decode("ascii", "replace")
    if identity is not None and marked != identity:
        raise ShardError(f"{path} must belong to the trace {identity[:12]}, got {marked[:12] or 'no mark'}")


def _names(table: Any) -> list[str]:
    return [field.name for field in fields(table) if field.name != "committed_offsets"]


def _rounds(table: Any) -> Rounds:
    """Rounds from the table; the three lists must have the same lengths."""
    lengths = [_column(table, name).value_lengths().to_numpy(zero_copy_only=False) for name in LISTS]
    if any(not np.array_equal(lengths[0], other) for other in lengths[1:]):
        raise TraceError(f"rounds.{LISTS[1]} and {LISTS[2]} must be as long as {LISTS[0]}")
    offsets = np.concatenate([[0], np.cumsum(lengths[0])]).astype(np.int64)
    return Rounds(**{name: _values(table, name) for name in _names(Rounds)}, committed_offsets=offsets)


def _column(table: Any, name: str) -> Any:
    column = table.column(name)
    if column.null_count:
        raise TraceError(f"{'rounds' if 'prompt_id' in table.column_names else 'nodes'}.{name} must hold no nulls")
    return column.combine_chunks()


def _values(table: Any, name: str) -> Any:
    """A column as a numpy array; lists flattened, a late one that the file is too old for filled in."""
    if name in LATE and name not in table.column_names:
        is_text = isinstance(LATE[name], str)
        kind = np.str_ if is_text else ROUNDS_SCHEMA.field(name).type.to_pandas_dtype()
        return np.full(table.num_rows, LATE[name], dtype=kind)
    column = _column(table, name)
    if name in LISTS:
        column = column.flatten()
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    return column.to_numpy(zero_copy_only=False)
