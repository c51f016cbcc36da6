"""Code in answers, run against the tests that its prompt brings: one process each, behind limits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from treewise.data.errors import ParameterError, require

PASSED, FAILED, REFUSED, TIME, MEMORY, FILE, CRASHED = OUTCOMES = (
    "passed",
    "failed",  # an error or a test that does not hold
    "refused",  # it asked for a process, a thread, the network, or to write outside its folder
    "time",
    "memory",
    "file",  # one larger than is allowed
    "crashed",  # it ended without a verdict
)
_GRACE_SECONDS = 2.0  # for the start of the process, on top of the code's own time
_TOLD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """What one run may use."""

    seconds: int = 5  # of the processor and, with a grace for the start, of the clock
    memory_bytes: int = 512 << 20  # of address space
    file_bytes: int = 1 << 20  # of each file; there may be 32

    def __post_init__(self) -> None:
        require(self.seconds >= 1, "seconds", ">= 1", self.seconds)
        require(self.memory_bytes >= 64 << 20, "memory_bytes", f">= {64 << 20}", self.memory_bytes)
        require(self.file_bytes >= 1, "file_bytes", ">= 1", self.file_bytes)


@dataclass(frozen=True, slots=True)
class CodeResult:
    """How a run ended."""

    outcome: str  # of `OUTCOMES`
    detail: str = ""  # the error, or what was refused

    @property
    def is_pass(self) -> bool:
        """Whether every test holds."""
        return self.outcome == PASSED


def run_tests(code: str, tests: str, limits: CodeLimits | None = None) -> CodeResult:
    """Run `code` and then `tests` in a process of their own; whatever is no pass is a fail.

    The process is isolated Python (`-I -S`: the standard library alone) in an empty folder of its own, with no
    environment. It may have no further process and no thread, and neither use the network nor write outside its folder.
    This stops accidents, not attacks: for code that nobody trusts, run treewise in a container.

    Raises:
        ParameterError: the system has no such limits (Windows, and the memory of macOS).
    """
    limits = limits or CodeLimits()
    known = find_spec("resource") is not None
    require(known, "system", "a POSIX system, whose processes can be limited", sys.platform)
    fence = Path(__file__).with_name("code_fence.py")
    with tempfile.TemporaryDirectory(prefix="treewise-code-", ignore_cleanup_errors=True) as folder:
        job = {
            "code": code,
            "tests": tests,
            "folder": folder,
            "seconds": limits.seconds,
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(fence)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"HOME": folder, "TMPDIR": folder},
            start_new_session=True,  # so that whatever it starts ends with it
        )
        try:
            told, _ = process.communicate(json.dumps(job).encode(), limits.seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return CodeResult(TIME)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return _result(told, process.returncode)


def _result(told: bytes, status: int) -> CodeResult:
    """What the child's last words and its exit status mean."""
    by_signal = {-signal.SIGXCPU: TIME, -signal.SIGXFSZ: FILE}
    if status in by_signal:
        return CodeResult(by_signal[status])
    try:
        outcome, detail = json.loads(told[:_TOLD_BYTES])
    except (TypeError, ValueError):
        return CodeResult(CRASHED, f"exit status {status}")
    if outcome == "unlimited":
        raise ParameterError(f"code must be run on a system with limits on processes, got {detail!r}")
    if outcome == FAILED and detail.startswith("MemoryError"):
        return CodeResult(MEMORY)
    return CodeResult(outcome, detail) if outcome in OUTCOMES else CodeResult(CRASHED, f"exit status {status}")
