"""`treewise survey`: from a trace, from a pair and prompts, its tables, its JSON and its page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.treewise.test_html_report import Page
from tests.treewise.tiny import DRAFT, leave
from tests.treewise.trace_commands import checked
from treewise.cli.survey import whole_numbers
from treewise.data.errors import ParameterError

GRID = ["--widths", "2,3", "--depths", "3-4"]
FIXED = ["chain:3", "chain:4", "static:2x3", "static:2x4", "static:3x3", "static:3x4", "entropy"]


@pytest.fixture
def of_trace(traces: Path, home: Path) -> list[str]:
    """The command on a trace, with a cache of its own."""
    assert not home.exists()
    return ["survey", "--trace", str(traces), *GRID]


def test_a_trace_needs_no_model(
    of_trace: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.engine.pair.load_pair", lambda *a, **k: pytest.fail("a pair was loaded"))
    assert leave([*of_trace, "--policy", "plain", "--json"]) == 0
    printed = capsys.readouterr()
    value = checked("survey", printed.out)
    assert [task["task"] for task in value["tasks"]] == ["", "chat", "copy"]
    assert [task["kind"] for task in value["tasks"]] == ["", "chat", ""]
    assert [task["prompts"] for task in value["tasks"]] == [10, 5, 5]
    assert value["grid"] == {"widths": [1, 2, 3], "depths": [3, 4], "sources": "all"}
    assert [row["policy"] for row in value["rows"]] == [*FIXED, "plain"] * 3
    assert [(row["width"], row["depth"]) for row in value["rows"][1:3]] == [(1, 4), (2, 3)]
    plain = value["rows"][7]
    assert (plain["width"], plain["on_path"]["value"], plain["speedup"]["value"]) == (None, None, 1.0)
    assert sum(length["value"] for length in value["rows"][0]["lengths"]) == pytest.approx(1.0, abs=1e-4)
    assert value["milliseconds"]["name"] == "example-a100-70b"
    assert not value["milliseconds"]["verified"]
    assert "an example that nobody here measured" in printed.err


def test_tables_fit_and_name_both_origins(
    of_trace: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert leave([*of_trace, "--heat", "speedup", "--depths", "3,11", "--policy", "topn:12x3,sources=free"]) == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 100
    for words in (
        "acceptance from trace dense of pair",
        "milliseconds from profile example-a100-70b",
        "all tasks: 10 prompts",
        "% of verifications by accepted length",
        "speed-up by width and depth",
        "topn:12x3,sources=free",
    ):
        assert words in output
    rows = [line.split() for line in output.splitlines() if re.match(r"3 +\d", line)]
    assert len(rows) == 1  # three maps of two columns stand side by side
    assert [(float(row[1]) > 0.0, row[2]) for row in (rows[0][at : at + 3] for at in (0, 3, 6))] == [(True, "-")] * 3
    assert "not covered: chain:11, static:2x11, static:3x11, which may ask for nodes of depth 11" in flat(output)


def test_a_narrow_screen_loses_no_figure(
    of_trace: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures() -> Counter[str]:
        assert leave([*of_trace, "--heat", "calls_saved", "--depths", "3-8"]) == 0
        output = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        lines = output.splitlines()
        assert max(map(len, lines[: lines.index(next(one for one in lines if "acceptance from" in one))])) <= columns
        return Counter(re.findall(r"\d[\d.,]*", output))

    columns = 100
    wide = figures()
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    for columns in (34, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert not wide - figures()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_second_run_replays_nothing(
    of_trace: list[str], home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leave([*of_trace, "--json"]) == 0
    first = capsys.readouterr().out
    (kept,) = (home / "survey").iterdir()
    monkeypatch.setattr("treewise.training.survey_counts.survey_counts", lambda *a: pytest.fail("replayed again"))
    assert leave([*of_trace, "--json"]) == 0
    assert capsys.readouterr().out == first
    lines = kept.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(FIXED)
    kept.write_text("\n".join([*lines[:-1], lines[-1][:40]]), encoding="utf-8")  # as a killed run leaves it
    with pytest.raises(pytest.fail.Exception, match="replayed again"):
        leave([*of_trace, "--json"])


def test_another_choice_of_prompts_is_kept_apart(
    of_trace: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave([*of_trace, "--json"]) == 0
    capsys.readouterr()
    assert leave([*of_trace, "--task", "copy", "--limit", "2", "--json"]) == 0
    value = checked("survey", capsys.readouterr().out)
    assert [(task["task"], task["prompts"]) for task in value["tasks"]] == [("", 2), ("copy", 2)]
    assert len(list((home / "survey").iterdir())) == 2


@pytest.mark.usefixtures("quickly")
def test_a_pair_is_surveyed_and_its_trace_kept(
    tiny: Path, prompts: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [
        *("survey", "--prompts", str(prompts), "--target", str(tiny), "--draft", DRAFT, "--threads", "1"),
        *("--limit", "3", "--max-new-tokens", "8", "--widths", "2,6", "--depths", "3", "--json"),
    ]
    assert leave(arguments) == 0
    value = checked("survey", capsys.readouterr().out)
    assert value["tasks"][0]["prompts"] == 3
    assert value["envelopes"][0]["draft_width"] == 6  # an envelope that covers the grid
    assert value["uncovered"] == []
    assert value["acceptance"] == [f"acceptance from trace tiny.jsonl of pair {tiny}+{DRAFT}"]
    assert value["milliseconds"]["verified"]
    assert {path.name.partition("-")[0] for path in (home / "survey").iterdir()} == {"trace", "counts"}
    monkeypatch.setattr("treewise.engine.collect.grow_dense", lambda *a, **k: pytest.fail("collected again"))
    assert leave(arguments) == 0
    assert checked("survey", capsys.readouterr().out) == value


def test_the_page(of_trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "survey.html"
    assert leave([*of_trace, "--depths", "3,11", "--html", str(target)]) == 0
    assert f"wrote {target}" in capsys.readouterr().err.replace("\n", "")
    text = target.read_text(encoding="utf-8")
    read = Page(text)
    assert read.faults == []
    assert [values["id"] for values in read.all("section")] == ["map", "lengths", "trees", "figures"]
    ids = [values["id"] for _, values in read.elements if "id" in values]
    assert len(ids) == len(set(ids))
    links = {values["href"].removeprefix("#") for tag, values in read.elements if tag in ("a", "use")}
    assert links <= set(ids)
    for word in ("fetch(", "XMLHttpRequest", "@import", "http://", "https://"):
        assert word not in text
    assert all(tag not in ("img", "iframe", "link", "object") for tag, _ in read.elements)
    assert len(read.all("svg")) == 2 * len(read.all("figure")) == 6
    assert text.count("<caption>") == 4 * 3  # four figures for all tasks and for each of two
    assert text.count('aria-label="not covered"') == 12 * 3  # depth 11, three widths
    for words in ("acceptance from trace dense", "milliseconds from profile example-a100-70b", "10 prompts", "chain:3"):
        assert words in read.text
    styles = " ".join(values.get("style", "") for _, values in read.elements)
    assert re.findall(r"#[0-9a-f]{6}", styles) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompts", "own:judge"], "survey must be of --prompts or of --trace, got both"),
        (["--seed", "3"], "seed must be left out with --trace, which settles it, got 3"),
        (["--draft", "none"], "draft must be left out with --trace, which settles it, got 'none'"),
        (["--policy", "nope"], "policy must be one of"),
        (["--policy", "plain", "--policy", "plain"], "policies must be each named once"),
        (["--task", "poem"], "task must be one of chat, copy, got 'poem'"),
        (["--widths", "1-3"], "widths must be between 2 and 64"),
        (["--widths", "two"], "widths must be whole numbers up to 64, such as 2-5 or 2,4, got 'two'"),
        (["--widths", "2" * 5000], "widths must be whole numbers up to 64, such as 2-5 or 2,4, got '222"),
        (["--sources", "moon"], "sources must be one of"),
        (["--cost", "nowhere"], "cost must be a profile file or one of"),
        (["--html", "."], "html must be a file"),
    ],
)
def test_refusals_are_one_line(
    of_trace: list[str], capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert leave([*of_trace, *options]) == 2
    assert message in flat(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "numbers"), [("2-5", (2, 3, 4, 5)), ("4, 2", (2, 4)), ("3-4,8", (3, 4, 8)), ("7", (7,))]
)
def test_ranges_of_whole_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert whole_numbers("depths", text) == numbers


@pytest.mark.parametrize("text", ["", "-", "5-2", "3-", "65", "2.5", "-3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="depths must be whole numbers up to 64"):
        whole_numbers("depths", text)
