"""The child process of `treewise.code_checks`: runs an answer's code and its tests behind limits; stdlib alone.

It reads one job from stdin and writes one verdict to stdout. What it refuses keeps accidents from doing harm; it is no
jail for code that means to break out.
"""

from __future__ import annotations

import _thread
import json
import os
import resource
import signal
import sys
from types import ModuleType
from typing import Any

MAX_FILES = 32  # opened for writing
_DETAIL = 200  # characters of an error that are told
_PROCESSES = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.killpg",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "resource.prlimit",
    "resource.setrlimit",  # root may raise a limit again
    "signal.pthread_kill",
    "subprocess.Popen",
)
_OUTSIDE = ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.send", "ctypes.")
# Event -> places of a path and of the folder it is below, as an open file; None: the event names no such folder.
_PATHS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.setxattr": ((0, None),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "shutil.chown": ((0, None),),
    "shutil.move": ((0, None), (1, None)),
    "shutil.rmtree": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Fence:
    """An audit hook that refuses processes, the network, and writing outside `folder`.

    What was refused is kept, because code may catch the error.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._num_files = 0
        self.refused = ""

    def __call__(self, event: str, values: tuple[Any, ...]) -> None:
        """See `sys.addaudithook`. Raises `PermissionError`."""
        if event == "open":
            if isinstance(values[2], int) and values[2] & _WRITES and values[0] != os.devnull:
                self._num_files += 1
                if self._num_files > MAX_FILES or not self._is_inside(values[0]):
                    self.refuse("open", values[0])
        elif event in _PROCESSES or event.startswith(_OUTSIDE):
            self.refuse(event)
        else:
            for path, below in _PATHS.get(event, ()):
                if not self._is_inside(values[path], -1 if below is None else values[below]):
                    self.refuse(event, values[path])

    def refuse(self, event: str, what: object = "") -> None:
        """Keep what was asked for and raise `PermissionError`."""
        self.refused = self.refused or (f"{event} {what!r}" if what else event)[:_DETAIL]
        raise PermissionError(f"refused: {event}")

    def start_no_thread(self, *_: object) -> None:
        """What stands in for `_thread.start_new_thread`, of which hooks are not told."""
        self.refuse("a thread")

    def _is_inside(self, path: object, below: int = -1) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a file that is open, and was looked at then
        name = os.fsdecode(path)
        if below >= 0 and not name.startswith(os.sep):
            name = f"/proc/self/fd/{below}/{name}"  # where there is no /proc it is not inside
        whole = os.path.realpath(name)
        return whole == self._folder or whole.startswith(self._folder + os.sep)


def limit(job: dict[str, Any]) -> None:
    """Set the limits of this process. Raises `OSError` or `ValueError` where the system does not know one."""
    seconds = int(job["seconds"])
    limits = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),  # the first by SIGXCPU, which tells it from other ends
        resource.RLIMIT_AS: (int(job["memory_bytes"]),) * 2,
        resource.RLIMIT_FSIZE: (int(job["file_bytes"]),) * 2,
        resource.RLIMIT_NOFILE: (64, 64),
        resource.RLIMIT_NPROC: (0, 0),  # root is not held by it: the fence is
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, wanted in limits.items():
        highest = resource.getrlimit(name)[1]
        soft, hard = (value if highest == resource.RLIM_INFINITY else min(value, highest) for value in wanted)
        resource.setrlimit(name, (soft, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it: the code could go on after a file too big


def verdict(job: dict[str, Any]) -> tuple[str, str]:
    """Outcome and error of the code and then its tests, run as one module.

    Functions named `test...` that the tests define are called, for those that only define them would always pass.
    """
    module = ModuleType("answer")
    sys.modules["answer"] = module  # dataclasses look their module up
    space = module.__dict__
    fence = Fence(job["folder"])
    outcome, error = "passed", ""
    for name in ("start_new_thread", "start_joinable_thread"):
        setattr(_thread, name, fence.start_no_thread)
    sys.addaudithook(fence)
    try:
        exec(compile(job["code"], "answer", "exec"), space)
        before = set(space)
        exec(compile(job["tests"], "tests", "exec"), space)
        for name in [name for name in space if name.startswith("test") and name not in before]:
            if callable(space[name]):
                space[name]()
    except BaseException as raised:  # the code may leave by SystemExit, which is no pass either
        outcome, error = "failed", f"{type(raised).__name__}: {raised}"[:_DETAIL]
    return ("refused", fence.refused) if fence.refused else (outcome, error)


def main() -> None:
    """Run the job on stdin."""
    job = json.load(sys.stdin)
    told = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    try:
        limit(job)
    except (OSError, ValueError) as error:
        answer = ("unlimited", str(error))
    else:
        answer = verdict(job)
    os.write(told, json.dumps(answer).encode())
    os._exit(0)  # nothing that the code left behind runs after its verdict


if __name__ == "__main__":
    main()
