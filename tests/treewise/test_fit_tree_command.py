"""`treewise fit-tree`, and the tuning of the trees that follow from its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treewise.test_traces_command import run
from tests.treewise.trace_commands import EXAMPLE, checked, write_live
from treewise import cli
from treewise.data.cost import CostProfile
from treewise.data.trace_schema import TraceShard
from treewise.policy.hook import DRAFT
from treewise.policy.rank_table import RankTable
from treewise.policy.sequoia import offline_tree
from treewise.training.logged_trace import open_trace


def test_json_says_what_was_stored_and_chosen(
    dense_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tables" / "ranks.json"
    value = checked(
        "fit_tree", run(["fit-tree", str(dense_folder), "-o", str(file), "--cost", EXAMPLE, "--json"], capsys)
    )
    table = RankTable.load(file)
    assert value["table"] == table.to_json()
    assert (table.prompts, value["out"]) == (3, str(file))
    assert table.origin[0].startswith("dense ") and len(table.origin[0].split()[1]) == 64
    (row,) = [row for row in value["trees"] if row["sources"] == "draft"]
    found = offline_tree(table, DRAFT, open_trace(dense_folder).deployment(CostProfile.load(EXAMPLE)))
    assert (row["nodes"], row["depth"]) == (found.tree.num_nodes, int(found.tree.depth.max()))
    assert row["expected_tokens"] == pytest.approx(found.tokens, abs=1e-4)
    assert len(value["trees"]) == len(table.acceptance)


def test_words_name_the_policy_and_both_origins(
    dense_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ranks.json"
    arguments = ["fit-tree", str(dense_folder), "-o", str(file)]
    bare = run(arguments, capsys)
    assert f"sequoia:{file}" in bare and "speed-up" not in bare
    priced = run([*arguments, "--cost", EXAMPLE], capsys)
    assert "speed-up" in priced and "acceptance from trace dense" in priced and EXAMPLE in priced


def test_a_live_trace_is_refused(
    live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_live(tmp_path / "live", live_shards)
    assert cli.main(["fit-tree", str(folder), "-o", str(tmp_path / "ranks.json")]) == 2
    assert "trace live must be dense to fit a rank table, got 'live'" in capsys.readouterr().err
    assert not (tmp_path / "ranks.json").exists()


def test_a_place_for_the_table_is_looked_for_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit-tree", str(tmp_path / "no trace"), "-o", str(tmp_path)]) == 2
    assert "out must be a file, got the folder" in capsys.readouterr().err


def test_sequoia_is_tuned_with_its_table_only(
    dense_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ranks.json"
    run(["fit-tree", str(dense_folder), "-o", str(file)], capsys)
    arguments = ["tune", str(dense_folder), "--cost", EXAMPLE, "--task", "chat", "--family", "sequoia"]
    assert cli.main(arguments) == 2
    assert "ranks must be a file, which sequoia needs, got ''" in capsys.readouterr().err
    value = checked("tune", run([*arguments, "--ranks", str(file), "--json"], capsys))
    assert {row["family"] for row in value["settings"]} == {"sequoia"}
    assert all(row["spec"].startswith(f"sequoia:{file}") for row in value["settings"])
    (winner,) = [row for row in value["settings"] if row["is_winner"]]
    assert winner["speedup"] >= max(row["speedup"] for row in value["settings"])
