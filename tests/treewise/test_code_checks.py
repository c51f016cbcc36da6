"""Code of answers runs behind limits: what runs away, multiplies or grows is stopped, and is no pass."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from treewise.code_checks import CodeLimits, CodeResult, run_tests
from treewise.data.errors import ParameterError

QUICK = CodeLimits(seconds=1)
ROOMY = CodeLimits(seconds=20)  # for what must not fail on a busy machine


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def f(x):\n    return 2 * x", "assert f(2) == 4\nassert f(0) == 0"),
        ("def f(): return 1", "def test_f():\n    assert f() == 1"),
        (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int",
            "assert A(3) == A(3)",
        ),
        ("import asyncio\nasync def f(): return 3", "assert asyncio.run(f()) == 3"),
        ("if __name__ == '__main__':\n    raise SystemExit", ""),
        (
            "import os, shutil, tempfile\nopen('a', 'w').write('x')\nos.mkdir('b')\nshutil.rmtree('b')",
            "with tempfile.TemporaryDirectory() as d:\n    open(d + '/a', 'w').close()\nassert os.listdir() == ['a']",
        ),
        ("import os, sys", "assert 'PATH' not in os.environ and sys.flags.isolated"),
        ("print('x' * 1_000_000)", ""),
    ],
)
def test_code_that_does_what_its_tests_say_passes(code: str, tests: str) -> None:
    found = run_tests(code, tests, ROOMY)
    assert found == CodeResult("passed")
    assert found.is_pass


@pytest.mark.parametrize(
    ("code", "tests", "outcome", "detail"),
    [
        ("def f(x):\n    return 3 * x", "assert f(2) == 4, 'six'", "failed", "AssertionError: six"),
        ("def f(): return 1", "def test_f():\n    assert f() == 2", "failed", "AssertionError"),
        ("def f(:", "assert True", "failed", "SyntaxError"),
        ("x = '\ud800'", "", "failed", "UnicodeEncodeError"),
        ("def f(): return f()\nf()", "", "failed", "RecursionError"),
        ("import sys\nsys.exit(0)", "assert False", "failed", "SystemExit"),
        ("import os\nos._exit(0)", "assert False", "crashed", "exit status 0"),
        ("x = bytearray(10**10)", "", "memory", ""),
        ("x = []\nwhile True: x.append(bytearray(10**7))", "", "memory", ""),
        ("open('x', 'w').write('a' * 5_000_000)", "", "file", ""),
        ("try:\n    open('x', 'w').write('a' * 5_000_000)\nexcept OSError: pass", "", "file", ""),
        ("for n in range(100): open(str(n), 'w').close()", "", "refused", "open '32'"),
        ("import os\nos.fork()", "", "refused", "os.fork"),
        ("import os\ntry:\n    os.fork()\nexcept OSError: pass", "", "refused", "os.fork"),
        ("import subprocess\nsubprocess.run(['true'])", "", "refused", "subprocess.Popen"),
        ("import os\nos.system('true')", "", "refused", "os.system"),
        ("import threading\nthreading.Thread(target=print).start()", "", "refused", "a thread"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGTERM)", "", "refused", "os.kill"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "", "refused", "socket."),
        ("import ctypes\nctypes.string_at(0)", "", "refused", "ctypes."),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
            "",
            "refused",
            "resource.setrlimit",
        ),
    ],
)
def test_what_is_no_pass_says_why(code: str, tests: str, outcome: str, detail: str) -> None:
    found = run_tests(code, tests, ROOMY)
    assert found.outcome == outcome
    assert detail in found.detail
    assert not found.is_pass


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass",
    ],
    ids=["busy", "asleep", "fork bomb", "stubborn"],
)
def test_a_runaway_is_stopped_in_time(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.code_checks._GRACE_SECONDS", 0.5)
    began = time.monotonic()
    assert run_tests(code, "", QUICK).outcome == "time"
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    "code",
    [
        "open({path!r}, 'w')",
        "import os\nos.remove({path!r})",
        "import shutil\nshutil.rmtree({folder!r})",
        "import os\nos.remove('kept', dir_fd=os.open({folder!r}, os.O_RDONLY))",
        "import os\nos.rename({path!r}, 'mine')",
        "import os\nos.link({path!r}, 'mine')",
        "import os\nos.symlink({path!r}, 'mine')\nopen('mine', 'w')",
        "import sqlite3\nsqlite3.connect({path!r} + '.db')",
    ],
)
def test_nothing_outside_its_folder_is_written(code: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as it was", encoding="utf-8")
    assert run_tests(code.format(path=str(kept), folder=str(tmp_path)), "", ROOMY).outcome == "refused"
    assert kept.read_text(encoding="utf-8") == "as it was"
    assert list(tmp_path.iterdir()) == [kept]


def test_its_folder_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_tests("open('a', 'w').write('x')", "", ROOMY).is_pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0}, "seconds must be >= 1, got 0"),
        ({"memory_bytes": 1}, "memory_bytes must be >= 67108864, got 1"),
        ({"file_bytes": 0}, "file_bytes must be >= 1, got 0"),
    ],
)
def test_limits_have_rules(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        CodeLimits(**changes)


def test_a_system_without_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.code_checks.find_spec", lambda name: None)
    with pytest.raises(ParameterError, match="system must be a POSIX system"):
        run_tests("", "")
