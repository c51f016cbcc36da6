"""Who does which prompt where several processes collect one trace."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

from treewise.data.trace_manifest import TEMPORARY_PREFIX
from treewise.data.trace_reader import read_shard_requests, shard_paths

CLAIMS_NAME = f"{TEMPORARY_PREFIX}claims"
_TAKEN = (errno.EACCES, errno.EAGAIN)
_ALIVE = 0  # the byte that every process holds a part in


def _locks() -> ModuleType | None:
    """The module of file locks; None on a system without them."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl


def _is_locked(locks: ModuleType, file: int, start: int, kind: int) -> bool:
    """Whether the byte at `start` could be locked, or cannot be by anybody."""
    try:
        locks.lockf(file, kind | locks.LOCK_NB, 1, start)
    except OSError as error:
        return error.errno not in _TAKEN
    return True


class PromptClaims:
    """The prompts that this process does of the trace in `folder`, which is there; open until they are on disk.

    A claim is a lock on one byte of an empty file in the folder: the system gives it to one process alone and takes it
    back when that ends, however it does. Where the system or the disk knows no locks, every claim is granted, and so is
    one of another thread of this process. The last process to close takes the file away.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._place = self._folder / CLAIMS_NAME
        self._listed: set[str] = set()  # names of shards
        self._done: set[str] = set()  # prompt ids in them
        self._mine: set[str] = set()
        self._locks = _locks()
        self._file = -1 if self._locks is None else self._opened(self._locks)

    @property
    def taken(self) -> int:
        """Prompts that were this process's to do."""
        return len(self._mine)

    def is_open(self, prompt_id: str) -> bool:
        """Whether the prompt is in no closed shard and not this process's; another may be doing it."""
        self._list()
        return prompt_id not in self._done and prompt_id not in self._mine

    def take(self, prompt_id: str) -> bool:
        """Whether the prompt is now this process's to do. True once; False too where another does it or has done it.

        Raises `ShardError` on a shard that cannot be read.
        """
        digest = hashlib.sha256(prompt_id.encode("utf-8", "surrogatepass")).digest()
        place = 1 + (int.from_bytes(digest[:8], "big") >> 2)
        if not self.is_open(prompt_id) or not self._lock(place):
            return False
        self._list()  # whoever held it may have finished it in the meantime
        if prompt_id in self._done:
            return False
        self._mine.add(prompt_id)
        return True

    def close(self) -> None:
        """Give every claim back."""
        if self._file < 0:
            return
        if self._lock(_ALIVE):  # the last
            self._place.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def __enter__(self) -> PromptClaims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self, locks: ModuleType) -> int:
        while True:
            file = os.open(self._place, os.O_RDWR | os.O_CREAT, 0o644)
            if _is_locked(locks, file, _ALIVE, locks.LOCK_SH):
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), self._place.stat()):
                        return file
            os.close(file)  # the last process is taking it away

    def _lock(self, start: int) -> bool:
        return self._locks is None or _is_locked(self._locks, self._file, start, self._locks.LOCK_EX)

    def _list(self) -> None:
        for path in shard_paths(self._folder):
            if path.name not in self._listed:
                self._done |= {prompt_id for prompt_id, _ in read_shard_requests(path)}
                self._listed.add(path.name)
