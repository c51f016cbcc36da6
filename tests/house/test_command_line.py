"""The front door's promises: one line per error, a version, and nothing slow before a command runs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
import typer

import treewise
from tests.house.layout import ROOT
from treewise import cli
from treewise.data.errors import ParameterError


@pytest.fixture
def failing_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line with the one command `fail KIND`, which raises."""

    def fail(kind: str) -> None:
        if kind == "ours":
            raise ParameterError("depth must be >= 1,\ngot [0]")
        if kind == "disk":
            raise OSError(28, "No space left on device", "out/bundle.json")
        raise ZeroDivisionError("a fault")

    module = ModuleType("treewise.cli.fail")
    module.register = lambda app: app.command()(fail)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "treewise.cli.fail", module)
    monkeypatch.setattr(cli, "COMMANDS", ("fail",))
    monkeypatch.delenv(cli.TRACEBACK_VARIABLE, raising=False)


@pytest.mark.usefixtures("failing_command")
def test_our_errors_are_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fail", "ours"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: depth must be >= 1, got [0]\n"


@pytest.mark.usefixtures("failing_command")
def test_the_disks_errors_are_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fail", "disk"]) == 2
    assert capsys.readouterr().err == "error: out/bundle.json: No space left on device\n"


@pytest.mark.usefixtures("failing_command")
def test_our_errors_keep_their_traceback_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.TRACEBACK_VARIABLE, "1")
    with pytest.raises(ParameterError, match="depth must be"):
        cli.main(["fail", "ours"])


@pytest.mark.usefixtures("failing_command")
def test_faults_are_never_hidden() -> None:
    with pytest.raises(ZeroDivisionError, match="a fault"):
        cli.main(["fail", "theirs"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"treewise {treewise.__version__}\n"


def test_an_unknown_option_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--verison"])
    assert leaving.value.code == 2
    assert "--verison" in capsys.readouterr().err


def test_every_command_module_is_listed_and_registers() -> None:
    folder = ROOT / "treewise" / "cli"
    on_disk = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert on_disk == set(cli.COMMANDS)
    assert len(cli.COMMANDS) == len(on_disk)
    app = cli.build_app()
    assert isinstance(app, typer.Typer)
    assert len(app.registered_commands) + len(app.registered_groups) >= len(cli.COMMANDS)


def test_nothing_slow_is_loaded_before_a_command_runs() -> None:
    code = "import sys; from treewise.cli import build_app; build_app(); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    assert not loaded & {"torch", "transformers", "lightgbm", "onnx", "onnxruntime", "sklearn"}


def test_python_dash_m_is_the_same_command() -> None:
    command = [sys.executable, "-m", "treewise", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == f"treewise {treewise.__version__}\n"
