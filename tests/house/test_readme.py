"""The README's own code: the policy it shows is one, and its spec strings parse."""

from __future__ import annotations

import re

from tests.house.layout import ROOT
from tests.training.worlds import COST, World, dense_trace
from treewise.data.envelope import Envelope
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import parse_policy, policy_names
from treewise.training.ab import ab

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_policy_of_the_readme_decides_trees() -> None:
    names: dict[str, type] = {}
    exec(compile(BLOCKS[1], "README.md", "exec"), names)
    policy = names["LookupOnly"]()
    assert isinstance(policy, TreePolicy)
    trace = dense_trace(World(seed=3, num_texts=3, answer_tokens=24), Envelope())
    report = ab([trace], [COST], ["plain", policy])
    plain, ours = (row for row in report.select(COST.name) if not row.is_upper_bound)
    assert ours.rounds < plain.rounds


def test_the_specs_of_the_readme_parse() -> None:
    specs = re.findall(r"^\| `([a-z-]+(?::[^`]*)?)` \|", README, re.MULTILINE)
    assert {spec.partition(":")[0] for spec in specs} == set(policy_names())
    for spec in specs:
        if not re.search(r":[A-Z]+(,|$)", spec):  # a folder or a file that is not here
            assert parse_policy(spec).reach.depth >= 0


def test_the_first_program_uses_public_names() -> None:
    import treewise

    found = re.search(r"from treewise import ([^\n]*)", BLOCKS[0])
    assert found is not None
    assert set(re.split(r",\s*", found.group(1))) <= set(treewise.__all__)


def test_the_lines_of_the_plug_in_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "tree_loop.py").read_text(encoding="utf-8")
    marked = {line.split("  # treewise")[0].strip() for line in example.splitlines() if line.endswith("# treewise")}
    shown = README.split("examples/tree_loop.py)):", 1)[1].split("\n`policy` is", 1)[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(lines) >= 7
    assert set(lines) == {line for line in marked if line != "if controller:"}
