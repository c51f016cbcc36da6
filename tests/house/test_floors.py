"""Lower rooms never import higher ones, and each room imports only the third parties it may."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from tests.house.imports import Import, imports_of
from tests.house.layout import ROOMS, Module, modules


@dataclass(frozen=True, slots=True)
class Floor:
    """What a room may import at import time, and what else inside functions; the room itself and stdlib are free."""

    always: frozenset[str]
    lazily: frozenset[str] = frozenset()


TORCH_PARTIES = frozenset(
    {"accelerate", "gguf", "huggingface_hub", "safetensors", "tokenizers", "torch", "transformers"}
)
SERVING_PARTIES = frozenset({"sglang"})  # there already where an adapter asks for it
TRAIN_PARTIES = frozenset({"lightgbm", "onnx", "onnxruntime", "rouge_score", "scipy", "sklearn"})

FLOORS = {
    "treewise.data": Floor(frozenset({"numpy", "pyarrow"})),
    "treewise.policy": Floor(frozenset({"numpy", "treewise.data"}), frozenset({"lightgbm", "onnxruntime"})),
    "treewise.engine": Floor(
        frozenset({"numpy", "pyarrow", "treewise.data", "treewise.policy"}) | TORCH_PARTIES,
        SERVING_PARTIES,
    ),
    "treewise.training": Floor(
        frozenset({"numpy", "pyarrow", "treewise.data", "treewise.policy"}) | TRAIN_PARTIES,
    ),
    # The front door may import everything, and pays for what is slow only when a command runs.
    "treewise": Floor(
        frozenset({"click", "numpy", "rich", "treewise.data", "treewise.policy", "typer"}),
        frozenset({"matplotlib", "prometheus_client", "pyarrow", "treewise.engine", "treewise.training"})
        | TORCH_PARTIES
        | TRAIN_PARTIES,
    ),
}

# Modules of machine code, which are imported only where numba is installed; nothing else may import it.
COMPILED = "compiled"
MAY_COMPILE = ("treewise.policy", "treewise.training")

# Distillation and collection run models; no other part of training may.
RUNS_MODELS = ("collect", "distill")


def floor_of(module: Module) -> Floor:
    floor = FLOORS[module.room]
    if module.room == "treewise.training" and module.path.stem.startswith(RUNS_MODELS):
        return Floor(floor.always | TORCH_PARTIES | {"treewise.engine"}, floor.lazily)
    if module.room in MAY_COMPILE and module.path.stem.startswith(COMPILED):
        return Floor(floor.always | {"numba"}, floor.lazily)
    return floor


def owner(name: str) -> str:
    """The room of a name of this project, else its top-level package."""
    top, _, rest = name.partition(".")
    if top != "treewise":
        return top
    room = f"treewise.{rest.partition('.')[0]}"
    return room if room in ROOMS else "treewise"


def breaches(module: Module, found: list[Import]) -> list[str]:
    """One line for each import that `module` may not make."""
    floor = floor_of(module)
    lines = []
    for item in found:
        name = owner(item.name)
        free = name == module.room or name in sys.stdlib_module_names
        if free or name in floor.always or (item.lazy and name in floor.lazily):
            continue
        why = "only inside a function" if name in floor.lazily else "never"
        lines.append(f"{module.name}:{item.line} imports {item.name}: {module.room} may {why}")
    return lines


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_module_keeps_to_its_floor(module: Module) -> None:
    assert breaches(module, imports_of(module.path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("room", "source", "allowed"),
    [
        ("treewise.data", "import pyarrow.parquet", True),
        ("treewise.data", "from treewise.policy.hook import Level", False),
        ("treewise.data", "from treewise import policy", False),
        ("treewise.data", "from treewise import __version__", False),
        ("treewise.data", "import rich", False),
        ("treewise.policy", "from treewise.data.errors import require", True),
        ("treewise.policy", "import torch", False),
        ("treewise.policy", "def f():\n    import torch", False),
        ("treewise.policy", "import onnxruntime", False),
        ("treewise.policy", "def f():\n    import onnxruntime", True),
        ("treewise.policy", "def f():\n    importlib.import_module('lightgbm')", True),
        ("treewise.policy", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lightgbm", True),
        ("treewise.policy", "import policy", False),
        ("treewise.policy", "from .hook import Level", False),
        ("treewise.engine", "from treewise.cli import main", False),
        ("treewise.engine", "import treewise.training.replay", False),
        ("treewise.engine", "import sglang", False),
        ("treewise.engine", "def f():\n    importlib.import_module('sglang.srt.plugins')", True),
        ("treewise.training", "import torch", False),
        ("treewise", "import torch", False),
        ("treewise", "def f():\n    from treewise.engine import loop", True),
    ],
)
def test_the_rule_itself(room: str, source: str, allowed: bool) -> None:
    module = Module(f"{room}.example", room, ROOMS[room] / "example.py")
    assert (breaches(module, imports_of(source)) == []) is allowed


def test_only_distillation_and_collection_run_models() -> None:
    folder = ROOMS["treewise.training"]
    source = imports_of("import torch\nfrom treewise.engine.pair import Pair")
    assert breaches(Module("treewise.training.distill", "treewise.training", folder / "distill.py"), source) == []
    assert len(breaches(Module("treewise.training.fit", "treewise.training", folder / "fit.py"), source)) == 2


@pytest.mark.parametrize("room", MAY_COMPILE)
def test_only_modules_of_machine_code_import_numba(room: str) -> None:
    folder = ROOMS[room]
    source = imports_of("from numba import njit\ndef f():\n    import numba")
    assert breaches(Module(f"{room}.compiled_rows", room, folder / "compiled_rows.py"), source) == []
    assert len(breaches(Module(f"{room}.learned", room, folder / "learned.py"), source)) == 2


def test_machine_code_is_imported_by_machine_code_or_inside_functions() -> None:
    """So that everything else works without numba."""
    for module in modules():
        for item in imports_of(module.path.read_text(encoding="utf-8")):
            if item.name.startswith(tuple(f"{room}.{COMPILED}" for room in MAY_COMPILE)):
                assert item.lazy or module.path.stem.startswith(COMPILED), f"{module.name}:{item.line}"
