"""The loops in `examples/` run without torch, say the same text with and without a policy, and gain speed by it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.policy.models import tiny_bundle

EXAMPLES = ROOT / "examples"
MARK = re.compile(r"#\s*treewise$")
RUN = """
import runpy, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "onnxruntime", "lightgbm", "sklearn", "pyarrow"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def output_of(name: str, *arguments: str) -> str:
    """What the example prints, run where no heavy package can be imported."""
    command = [sys.executable, "-W", "error", "-c", RUN, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=EXAMPLES)
    assert done.stderr == ""
    return done.stdout


def marked_lines(name: str) -> list[str]:
    """The lines of an example that mention treewise or what comes from it, and are marked so."""
    return [line for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines() if MARK.search(line)]


def tokens_per_round(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+) tokens/round", output)]


def test_the_tree_loop_gains_rounds_and_keeps_its_text() -> None:
    output = output_of("tree_loop.py")
    assert "texts are equal: True" in output
    own, mine = tokens_per_round(output)
    assert mine > own > 1.5


@pytest.mark.parametrize("policy", ["plain", "chain:4", "entropy"])
def test_the_tree_loop_takes_any_policy(policy: str) -> None:
    output = output_of("tree_loop.py", policy)
    assert "texts are equal: True" in output
    assert (tokens_per_round(output)[1] == 1.0) == (policy == "plain")


def test_both_loops_take_a_learned_bundle(tmp_path: Path) -> None:
    folder = tiny_bundle().save(tmp_path / "bundle")
    output = output_of("tree_loop.py", f"learned:{folder}")
    assert "texts are equal: True" in output and tokens_per_round(output)[1] > 1.5
    assert output_of("chain_loop.py", f"learned:{folder}").count("texts are equal: True") == 2


def test_the_chain_loop_gains_throughput_and_keeps_its_text() -> None:
    output = output_of("chain_loop.py")
    assert output.count("texts are equal: True") == 2
    for draft in ("good draft", "poor draft"):
        (own, mine) = re.findall(rf"{draft}: ([\d.]+) tokens/ms at length 4, ([\d.]+) with the policy", output)[0]
        assert float(mine) > float(own)


@pytest.mark.parametrize("name", ["tree_loop.py", "chain_loop.py"])
def test_at_most_ten_lines_are_ours(name: str) -> None:
    marked = marked_lines(name)
    assert 4 <= len(marked) <= 10
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    unmarked = [line for line in source.splitlines() if not MARK.search(line)]
    code = "\n".join(unmarked).split('"""', 2)[2]
    assert not re.search(r"treewise|CostProfile|\w*ontroller\.|ChainSignals", code)
    assert len(source.splitlines()) <= 140


@pytest.mark.parametrize(
    ("name", "arguments"), [("tree_loop.py", ([5, 5], 30)), ("chain_loop.py", ([[1, 2]], 30, 0.1))]
)
def test_the_loop_stands_without_the_marked_lines(name: str, arguments: tuple[Any, ...]) -> None:
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    stripped = "\n".join(line for line in source.splitlines() if not MARK.search(line))
    alone: dict[str, Any] = {"__name__": "alone"}
    whole: dict[str, Any] = {"__name__": "whole"}
    exec(compile(stripped, name, "exec"), alone)
    exec(compile(source, name, "exec"), whole)
    text, spent = alone["decode"](*arguments)
    assert (text, spent) == whole["decode"](*arguments)
    assert len(text[0] if isinstance(text[0], list) else text) == 30
