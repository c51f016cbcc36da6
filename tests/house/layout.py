"""Where the rooms and their modules stand on disk; read by the tests of the house."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# Room name -> folder, lowest floor first.
ROOMS = {
    "treewise.data": ROOT / "data",
    "treewise.policy": ROOT / "policy",
    "treewise.engine": ROOT / "engine",
    "treewise.training": ROOT / "training",
    "treewise": ROOT / "treewise",
}

NOT_SOURCE = frozenset({".git", ".typing", ".venv", "build", "dist", "docs", "tests"})


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its import name, its room and its path."""

    name: str
    room: str
    path: Path


def pyproject() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_folders() -> set[str]:
    """Folders that hold an `__init__.py`, relative to the root, in POSIX form; tests and build results left out."""
    found = (path.parent.relative_to(ROOT) for path in ROOT.glob("*/**/__init__.py"))
    return {folder.as_posix() for folder in found if folder.parts[0] not in NOT_SOURCE}


def modules() -> list[Module]:
    """Every module of every room, sorted by name."""
    found = []
    for room, folder in ROOMS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            dotted = ".".join((room, *parts)).removesuffix(".__init__")
            found.append(Module(dotted, room, path))
    return sorted(found, key=lambda module: module.name)
