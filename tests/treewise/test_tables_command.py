"""`treewise tables`: the example tables, alone and beside our own traces."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.training.worlds import COST
from tests.treewise.test_ab_command import checked, run
from treewise import cli
from treewise.cli.tables import derived_table, words_of
from treewise.data.example_tables import A100_70B, H800_67B, ExampleTable


def test_the_tables_alone(capsys: pytest.CaptureFixture[str]) -> None:
    value = checked("tables", run(["tables", "--derive-only", "--json"], capsys))
    assert value["replayed"] == []
    first, second = value["tables"]
    assert [row["drafting_ms"]["value"] for row in first["rows"]][1:3] == [2.742308, 7.316667]
    assert (first["plain_is_given"], second["plain_is_given"]) == (True, False)
    assert [row["expected_speedup"] is None for row in second["rows"]] == [True] * 4 + [False] * 2


def test_every_table_says_that_nobody_measured_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(["tables", "--derive-only"], capsys)
    assert printed.count("unverified: nobody here measured them") == 2
    assert max(len(line) for line in printed.splitlines() if line[:1] in "│┃┏┡└") <= 100
    assert "Rows that cannot be together: no one price of a draft pass fits" in printed
    assert "It can be 9.26, where some row's drafting is nothing, to 12.40 ms" in " ".join(words_of(H800_67B))


@pytest.mark.parametrize("table", [A100_70B, H800_67B])
def test_eighty_columns_hold_names_and_figures(table: ExampleTable) -> None:
    screen = Console(width=80, file=StringIO(), record=True)
    screen.print(derived_table(table))
    lines = screen.export_text().splitlines()
    assert all(line[0] + line[-1] in ("┏┓", "┃┃", "┡┩", "││", "└┘") for line in lines[1:])
    names = " ".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert "chain of 5" in " ".join(names.split())
    assert "…" not in "".join(lines)


def test_beside_ones_own_trace(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    COST.save(tmp_path / "cost.json")
    arguments = ["tables", "--trace", str(traces), "--cost", str(tmp_path / "cost.json")]
    value = checked("tables", run([*arguments, "--json"], capsys))
    assert [origin["name"] for origin in value["profiles"]] == ["example-a100-70b", "example-h800-67b", "world"]
    assert {row["strategy"] for row in value["replayed"] if row["profile"] == "example-h800-67b"} == {
        "plain", "chain of 5", "tree of 16", "path oracle",
    }  # fmt: skip
    assert {row["sources"] for row in value["replayed"] if row["strategy"] == "chain of 5"} == {"draft", "all"}
    plain = [row["speedup"]["value"] for row in value["replayed"] if row["strategy"] == "plain"]
    assert plain == [1.0] * 3
    assert cli.main([*arguments, "--bundle", str(tmp_path / "none")]) == 2
    printed = run(arguments, capsys)
    assert "replayed under world" in printed
    assert max(len(line) for line in printed.splitlines() if line[:1] in "│┃┏┡└") <= 100


def test_options_that_do_not_go_together(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "--derive-only", "--trace", str(traces)]) == 2
    assert f"must be left out with --derive-only, got {traces}" in capsys.readouterr().err
    assert cli.main(["tables", "--trace", str(traces), "--cost", "example-a100-70b"]) == 2
    assert "names that differ from the tables'" in capsys.readouterr().err
