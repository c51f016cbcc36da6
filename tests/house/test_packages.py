"""The package list, the disk and what Python imports are the same thing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import treewise
from tests.house.layout import ROOMS, Module, modules, package_folders, pyproject

MAX_MODULE_LINES = 350


def in_fresh_interpreter(code: str, cwd: Path) -> str:
    """Standard output of `code` in a new interpreter started in `cwd`."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=cwd, check=True, capture_output=True, text=True, timeout=120
    ).stdout


def test_every_package_on_disk_is_listed_and_mapped() -> None:
    setup = pyproject()["tool"]["setuptools"]
    mapping: dict[str, str] = setup["package-dir"]
    assert setup["packages"] == sorted(setup["packages"])
    assert set(setup["packages"]) == set(mapping)
    assert set(mapping.values()) == package_folders()
    for package, folder in mapping.items():
        first, *rest = folder.split("/")
        room = first if first == "treewise" else f"treewise.{first}"
        assert package == ".".join((room, *rest))


def test_every_room_is_typed_and_says_what_it_is() -> None:
    package_data = pyproject()["tool"]["setuptools"]["package-data"]
    for room, folder in ROOMS.items():
        assert (folder / "py.typed").is_file(), room
        assert "py.typed" in package_data[room], room
        assert importlib.import_module(room).__doc__, room


def test_the_rooms_loaded_are_this_checkouts(tmp_path: Path) -> None:
    code = f"import importlib, json; print(json.dumps([importlib.import_module(r).__file__ for r in {list(ROOMS)!r}]))"
    files = json.loads(in_fresh_interpreter(code, tmp_path))
    assert [Path(file).resolve().parent for file in files] == list(ROOMS.values())


def test_the_version_is_written_the_same_twice() -> None:
    assert treewise.__version__ == pyproject()["project"]["version"]


@pytest.mark.parametrize("name", [module.name for module in modules()])
def test_module_imports(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_policy_and_data_do_without_torch(tmp_path: Path) -> None:
    lower = [module.name for module in modules() if module.room in ("treewise.data", "treewise.policy")]
    assert "treewise.policy" in lower
    code = f"import importlib, sys; [importlib.import_module(n) for n in {lower!r}]; print(*sorted(sys.modules))"
    loaded = set(in_fresh_interpreter(code, tmp_path).split())
    assert "treewise.policy" in loaded
    assert not loaded & {"torch", "transformers", "lightgbm", "onnxruntime", "treewise.engine", "treewise.training"}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_modules_stay_short(module: Module) -> None:
    assert len(module.path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES
