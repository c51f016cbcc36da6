"""`treewise tables`: the example tables, alone and beside our own traces."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.training.worlds import COST
from tests.treewise.trace_commands import checked, run
from treewise import cli
from treewise.cli._parts import in_parts
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
@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
def test_no_screen_is_too_narrow_for_names_and_figures(table: ExampleTable, width: int) -> None:
    whole = derived_table(table)
    parts = list(in_parts(whole, width))
    shown: dict[str, list[str]] = {}
    for part in parts:
        screen = Console(width=width, file=StringIO(), record=True)
        screen.print(part)
        lines = screen.export_text().splitlines()[len(lines_of(part, width)) :]
        assert all(line[0] + line[-1] in ("┏┓", "┃┃", "┡┩", "││", "└┘") and len(line) <= width for line in lines)
        folded = [[cell.strip() for cell in line[1:-1].split("│")] for line in lines if line.startswith("│")]
        for column, cells in zip(part.columns, zip(*folded, strict=True), strict=True):
            shown[str(column.header)] = " ".join(cells).split()
    assert (len(parts) == 1) == (width == 100)
    for column in whole.columns[1:]:
        assert shown[str(column.header)] == " ".join(map(str, column.cells)).split()
    assert "chain of 5" in " ".join(shown["strategy"])


def lines_of(part: Table, width: int) -> list[str]:
    """Those of the title."""
    screen = Console(width=width, file=StringIO(), record=True)
    screen.print(Text(str(part.title or ""), justify="left"), end="")
    return screen.export_text().splitlines()


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
