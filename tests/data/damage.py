"""Damage for the tests of readers: random bytes, random JSON, and a watch over what a reader opens and starts."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treewise.data.errors import TreewiseError

STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3.5, -0.0, 10**30, 10**400, -(2**63), float("nan"), float("inf"), float("-inf")),
    *("", "x", "../../etc/passwd", "\ud800", "0" * 300, [], {}, [[]], [None], {"": {}}, ["1", 2.0], {"a": [1, {}]}),
)
FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class"),
    *("socket.connect", "socket.getaddrinfo", "shutil.rmtree", "os.remove", "os.rename", "os.symlink"),
)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """`content` with some bytes flipped, cut off, taken out, doubled, put in or set to one value."""
    at = int(rng.integers(len(content)))
    length = min(int(rng.integers(1, 40)), len(content) - at)
    part = content[at : at + length]
    kind = int(rng.integers(6))
    if kind == 0:
        changed = bytearray(content)
        for place in rng.integers(len(content), size=int(rng.integers(1, 9))).tolist():
            changed[place] ^= int(rng.integers(1, 256))
        return bytes(changed)
    if kind == 1:
        return content[:at]
    middle = (b"", part + part, part + rng.bytes(length), bytes([int(rng.choice([0, 1, 127, 128, 255]))]) * length)
    return content[:at] + middle[kind - 2] + content[at + length :]


def strange_json(value: Any, rng: np.random.Generator) -> str:
    """JSON of `value` with one to three parts of it replaced, taken out, renamed or added."""
    changed = copy.deepcopy(value)
    for _ in range(int(rng.integers(1, 4))):
        changed = _strange(changed, rng)
    return json.dumps(changed)


def _strange(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return copy.deepcopy(STRANGE[int(rng.integers(len(STRANGE)))])
    kind = int(rng.integers(6))
    place: Any = int(rng.integers(len(value)))
    if isinstance(value, dict):
        place = sorted(value)[place]
        if kind == 1:
            value[f"{place}x"] = value.pop(place)
            return value
    elif kind == 1:
        value.insert(place, value[place])
        return value
    if kind == 0:
        del value[place]
    else:
        value[place] = _strange(value[place], rng)
    return value


class _Watch:
    """What Python opened and started since it was told to look; an audit hook stays for the life of a process."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.started: list[str] = []
        self.looks = False
        self._is_hooked = False

    def begin(self) -> None:
        if not self._is_hooked:
            sys.addaudithook(self._see)
            self._is_hooked = True
        self.opened, self.started, self.looks = [], [], True

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.looks:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            self.opened.append(os.fsdecode(arguments[0]))
        elif event in FORBIDDEN:
            self.started.append(event)


_WATCH = _Watch()


@contextmanager
def reads_only(folder: Path) -> Iterator[None]:
    """Fail where the block opens a file outside `folder` (modules aside), starts a process or unpickles anything.

    What compiled libraries open by themselves is not seen.
    """
    _WATCH.begin()
    try:
        yield
    finally:
        _WATCH.looks = False
    home = folder.resolve()
    outside = [path for path in _WATCH.opened if not (_is_module(path) or Path(path).resolve().is_relative_to(home))]
    assert not outside, outside
    assert not _WATCH.started, _WATCH.started


def is_read(read: Callable[[], object], folder: Path) -> bool:
    """Whether `read` read something; an error of treewise is the other thing that may happen."""
    with reads_only(folder):
        try:
            read()
        except TreewiseError as error:
            assert str(error)
            return False
    return True


def _is_module(path: str) -> bool:
    return path.endswith((".py", ".pyc", ".so")) or "__pycache__" in path or path.startswith("/proc/")
