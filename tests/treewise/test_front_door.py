"""The public names: complete, sorted, light to import, and enough for a first program."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import treewise
from tests.house.layout import ROOT
from tests.treewise.tiny import DRAFT

SOURCE = ROOT / "treewise" / "__init__.py"


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert list(treewise.__all__) == sorted(set(treewise.__all__))
    for name in treewise.__all__:
        assert getattr(treewise, name) is not None
        assert name in dir(treewise)


def test_all_is_complete() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treewise."):
            homes.update({alias.name: str(node.module) for alias in node.names})
    assert homes == treewise._MODULE_OF
    assert set(treewise.__all__) == {*homes, "__version__"}


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'treewise' has no attribute 'Helper'"):
        _ = treewise.Helper


def test_importing_and_parsing_a_policy_needs_no_torch() -> None:
    code = (
        "import sys, treewise; light = set(sys.modules); treewise.parse_policy('entropy'); treewise.CostProfile; "
        "print('numpy' in light, *[name for name in ('torch', 'transformers', 'lightgbm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False"]


@pytest.mark.usefixtures("home", "quickly")
def test_a_first_program(tiny: Path) -> None:
    pair = treewise.load_pair(str(tiny), DRAFT)
    cost = treewise.find_cost(pair)
    texts = set()
    for spec in ("entropy", "plain"):
        engine = treewise.Engine(pair, treewise.parse_policy(spec), cost)
        answer = engine.generate(treewise.encode_prompt(pair, "red green blue"), max_new_tokens=12)
        texts.add(pair.tokenizer.decode(list(answer.tokens)))
        assert answer.tokens_per_second > 0
    assert len(texts) == 1
