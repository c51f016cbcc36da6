"""Writing traces: whole requests into atomic shards."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treewise.data.errors import ParameterError, TraceError, require
from treewise.data.trace_columns import LISTS, NODES_SCHEMA, ROUNDS_SCHEMA
from treewise.data.trace_manifest import (
    IDENTITY_KEY,
    MANIFEST_NAME,
    NODES_NAME,
    ROUNDS_NAME,
    SHARDS_NAME,
    TEMPORARY_PREFIX,
    TraceManifest,
)
from treewise.data.trace_reader import read_requests
from treewise.data.trace_schema import NodeTable, Rounds, TraceShard, concatenate
from treewise.data.whole_file import naming, sync


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What tells the requests of a trace apart."""

    prompt_id: str
    seed: int


class TraceWriter:
    """Collects finished requests and writes them in shards of about `shard_rounds` rounds.

    A shard is written to a temporary folder beside its place, flushed to disk and renamed, so it appears whole or not
    at all; a killed writer loses at most the open shard. Several writers may share one folder. Used as a context
    manager, Ctrl-C keeps every finished request; another exception drops the open shard and leaves closed ones. Raises
    `TraceError` where the folder holds a trace of other conditions, or something else.
    """

    def __init__(self, folder: str | Path, manifest: TraceManifest, shard_rounds: int = 4096) -> None:
        require(shard_rounds >= 1, "shard_rounds", ">= 1", shard_rounds)
        self.folder = Path(folder)
        self.manifest = manifest
        self.shard_rounds = shard_rounds
        self._open: list[TraceShard] = []
        self._is_closed = False
        self._check_folder()
        (self.folder / SHARDS_NAME).mkdir(parents=True, exist_ok=True)
        self._claim_manifest()

    @property
    def open_rounds(self) -> int:
        """Rounds added and not yet on disk."""
        return sum(len(shard.rounds) for shard in self._open)

    def add(self, rounds: Rounds, nodes: NodeTable) -> None:
        """Add one finished request; its `request` numbers are replaced by the shard's own count.

        Raises `TraceError` where rounds and nodes break the rules of `TraceShard.check`.
        """
        require(not self._is_closed, "writer", "open", "a closed one")
        if len(rounds) == 0 or (rounds.request != rounds.request[0]).any():
            raise ParameterError(
                f"rounds must be those of one request, got requests {np.unique(rounds.request).tolist()}"
            )
        for name in ("prompt_id", "task", "told_task", "explorer"):
            # One that Parquet cannot hold would take the whole open shard with it.
            value = str(getattr(rounds, name)[0])
            require(_is_unicode(value), name, "text that UTF-8 can hold", ascii(value))
        shard = TraceShard(rounds, nodes)
        shard.check()
        self._open.append(shard if self.manifest.tokens_included else _without_tokens(shard))
        if self.open_rounds >= self.shard_rounds:
            self.flush()

    def flush(self) -> None:
        """Write the open shard, if it holds anything."""
        if not self._open:
            return
        shard = concatenate(self._open)
        self._write(shard)
        self._open.clear()
        sync(self.folder / SHARDS_NAME)

    def close(self) -> None:
        """Write what is open. Closing twice does nothing."""
        if not self._is_closed:
            self.flush()
            self._is_closed = True

    def drop(self) -> None:
        """Forget the open shard and close."""
        self._open.clear()
        self._is_closed = True

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.close()
        else:
            self.drop()

    def done_requests(self) -> set[RequestKey]:
        """The requests that closed shards of the folder hold. Raises `ShardError` on a shard that cannot be read."""
        return {RequestKey(prompt_id, seed) for prompt_id, seed in read_requests(self.folder)}

    def done(self) -> set[str]:
        """The prompt ids that closed shards of the folder hold, so that a collection can go on where it stopped."""
        return {key.prompt_id for key in self.done_requests()}

    def _check_folder(self) -> None:
        """Leave folders of other things alone; what a killed writer may have left is no other thing."""
        if not self.folder.exists() or (self.folder / MANIFEST_NAME).is_file():
            return
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else [self.folder.name]
        if MANIFEST_NAME in names:  # another writer has put it there in the meantime
            return
        foreign = sorted(name for name in names if name != SHARDS_NAME and not name.startswith(TEMPORARY_PREFIX))
        if foreign or not self.folder.is_dir():
            raise TraceError(f"folder must be new, empty or a trace, got {str(self.folder)!r} with {foreign[:3]}")

    def _claim_manifest(self) -> None:
        place = self.folder / MANIFEST_NAME
        if not place.exists():
            temporary = self.folder / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.json"
            try:
                with naming(place):
                    self.manifest.save(temporary)
                    sync(temporary)
                # A link, unlike a rename, never replaces what another writer has put there in the meantime.
                os.link(temporary, place)
            except FileExistsError:
                pass
            finally:
                temporary.unlink(missing_ok=True)
            sync(self.folder)
        differences = TraceManifest.load(self.folder).differences(self.manifest)
        if differences:
            raise TraceError(f"{place} must equal the new manifest, got {'; '.join(differences)}")

    def _write(self, shard: TraceShard) -> None:
        shards = self.folder / SHARDS_NAME
        temporary = shards / f"{TEMPORARY_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        number = 1 + max((int(path.name) for path in shards.iterdir() if path.name.isdecimal()), default=-1)
        try:
            with naming(shards / f"{number:06d}"):
                temporary.mkdir()
            identity = self.manifest.identity().encode("ascii")
            for name, table in ((ROUNDS_NAME, rounds_table(shard.rounds)), (NODES_NAME, nodes_table(shard.nodes))):
                marked = table.replace_schema_metadata({IDENTITY_KEY: identity})
                with naming(shards / f"{number:06d}" / name):
                    pq.write_table(marked, temporary / name, compression="zstd")
                    sync(temporary / name)
            sync(temporary)
            while not _renamed(temporary, shards / f"{number:06d}"):
                number += 1
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, as undecodable file names and input bring
        return False
    return True


def rounds_table(rounds: Rounds) -> Any:
    """The rounds as a pyarrow table of `ROUNDS_SCHEMA`."""
    offsets = pa.array(rounds.committed_offsets.astype(np.int32))
    columns = []
    for field in ROUNDS_SCHEMA:
        values = getattr(rounds, field.name)
        if field.name in LISTS:
            items = pa.array(values, type=field.type.value_type)
            columns.append(pa.ListArray.from_arrays(offsets, items, type=field.type))
        else:
            columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=ROUNDS_SCHEMA)


def nodes_table(nodes: NodeTable) -> Any:
    """The nodes as a pyarrow table of `NODES_SCHEMA`."""
    columns = [pa.array(getattr(nodes, field.name), type=field.type) for field in NODES_SCHEMA]
    return pa.Table.from_arrays(columns, schema=NODES_SCHEMA)


def _without_tokens(shard: TraceShard) -> TraceShard:
    """The same with -1 for every token id."""
    rounds = {item.name: getattr(shard.rounds, item.name) for item in fields(Rounds)}
    nodes = {item.name: getattr(shard.nodes, item.name) for item in fields(NodeTable)}
    for columns, name in ((rounds, "root_token"), (rounds, "committed"), (nodes, "token")):
        columns[name] = np.full_like(columns[name], -1)
    return TraceShard(Rounds(**rounds), NodeTable(**nodes))


def _renamed(source: Path, place: Path) -> bool:
    """Whether `source` became `place`; False where another writer's shard is there."""
    try:
        source.rename(place)
    except OSError:
        # Which error a taken name gives differs between systems; a full folder is never replaced by any of them.
        if place.exists():
            return False
        raise
    return True
