"""The wheel holds every module and every data file, under the names they are imported by."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.layout import ROOMS, ROOT, modules, pyproject

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
LEFT_OUT = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The file names in a wheel built from a copy, so that no stale `build/` of the checkout is picked up."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ROOMS.values():
        shutil.copytree(folder, copy / folder.name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "LICENSE", "NOTICE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-c", BUILD, str(copy)], cwd=copy, check=True, capture_output=True, timeout=300)
    (wheel,) = copy.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def packed_name(room: str, folder: Path, path: Path) -> str:
    """Where a room's file stands in the wheel."""
    return f"{room.replace('.', '/')}/{path.relative_to(folder).as_posix()}"


def test_every_module_is_packed(wheel_names: set[str]) -> None:
    expected = {packed_name(module.room, ROOMS[module.room], module.path) for module in modules()}
    assert {name for name in wheel_names if name.endswith(".py")} == expected


def test_every_data_file_is_packed(wheel_names: set[str]) -> None:
    expected = {
        packed_name(room, folder, path)
        for room, folder in ROOMS.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts  # numba keeps its cache there
    }
    assert {f"{room.replace('.', '/')}/py.typed" for room in ROOMS} <= expected
    assert expected <= wheel_names


def test_licence_and_notice_travel_along(wheel_names: set[str]) -> None:
    version = pyproject()["project"]["version"]
    licences = f"treewise-{version}.dist-info/licenses"
    assert {f"{licences}/LICENSE", f"{licences}/NOTICE"} <= wheel_names
