"""Files that are there whole or not at all, and places where one can be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treewise.data.errors import ParameterError

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # no room, or broken


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """For a block that writes `path` so that what was there stays where it fails.

    Where the disk is full or fails, writing names no file, or a temporary one: the `OSError` of this block names `path`
    and says that nothing else is lost.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK:
            raise
        words = f"{os.strerror(error.errno)}; nothing that was stored before is lost"
        raise OSError(error.errno, words, str(path)) from error


def write_whole(path: str | Path, text: str) -> Path:
    """Write `text` to `path`, whole or not at all, and return it; folders above are made.

    What is there and no file, such as a pipe, is written to as it is.
    """
    named = Path(path)
    if named.exists() and not named.is_file():
        with naming(named):
            named.write_text(text, encoding="utf-8")
        return named
    target = named.resolve()  # a link stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with naming(named):
            part.write_text(text, encoding="utf-8")
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return named


def sync(path: Path) -> None:
    """Force a written file or a folder's names to the disk, so that a crash cannot lose what a rename publishes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_place(path: str | Path, name: str = "out") -> None:
    """Raise `ParameterError`, which calls `path` `name`, where it is a folder or below a file.

    For what takes long to make: so that it is not made in vain.
    """
    target = Path(path)
    if target.is_dir():
        raise ParameterError(f"{name} must be a file, got the folder '{target}'")
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ParameterError(f"{name} must be in a folder, got '{target}' below the file '{above}'")
    if not os.access(target if target.exists() else above, os.W_OK):
        raise ParameterError(f"{name} must be where this user may write, got '{target}'")
