"""`treewise ab` and `treewise tune`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.training.worlds import COST
from tests.treewise.trace_commands import EXAMPLE, checked, run, write_live
from treewise import cli
from treewise.cli import ab as cli_ab
from treewise.cli._options import workers_for
from treewise.cli.ab import share, split_policies
from treewise.data.errors import PolicySpecError
from treewise.data.trace_schema import TraceShard
from treewise.training import verdict
from treewise.training.logged_trace import open_trace
from treewise.training.workers import run_parts


def test_ab_json_fits_its_schema(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ab", str(dense_folder), "--cost", EXAMPLE, "--policies", "topn:8x2,sources=draft,plain", "--json"]
    value = checked("ab", run(arguments, capsys))
    assert value["policies"] == ["topn:8x2,sources=draft", "plain"]
    assert value["acceptance"] == ["acceptance from trace dense of pair world+law"]
    assert [(row["policy"], row["task"]) for row in value["rows"]][:3] == [
        ("topn:8x2,sources=draft", ""), ("plain", ""), ("oracle", ""),
    ]  # fmt: skip
    assert {row["prompts"] for row in value["rows"] if row["task"] == "copy"} == {2}
    assert all(row["speedup"]["low"] is None for row in value["rows"] if row["task"] == "chat")  # one prompt


def test_ab_csv_has_a_line_a_row(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ab", str(dense_folder), "--cost", EXAMPLE, "--policy", "chain:2", "--task", "copy", "--csv"]
    arguments.append("--depth-oracles")
    rows = list(csv.DictReader(io.StringIO(run(arguments, capsys))))
    assert [(row["policy"], row["task"], row["prompts"]) for row in rows] == [
        ("chain:2", "", "2"), ("oracle", "", "2"), ("chain:2", "copy", "2"), ("oracle", "copy", "2"),
        ("depth oracle of chain:2", "", "2"), ("depth oracle of chain:2", "copy", "2"),
    ]  # fmt: skip
    assert all("unverified" in row["milliseconds"] for row in rows)


def test_ab_table_names_both_origins(
    dense_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    COST.save(tmp_path / "cost.json")
    costs = ["--cost", EXAMPLE, "--cost", str(tmp_path / "cost.json")]
    output = run(["ab", str(dense_folder), *costs, "--policies", "chain:2 plain;topn:4x1"], capsys)
    tables = [line for line in output.splitlines() if line[:1] in "│┃┏┡└"]
    assert max(len(line) for line in tables) <= 100
    assert output.count("acceptance from trace dense of pair world+law") == 2
    assert "milliseconds from profile world" in output
    assert output.count("oracle (upper bound)") == 2
    for spec in ("chain:2", "plain", "topn:4x1"):
        assert spec in output


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("plain,chain:5", ["plain", "chain:5"]),
        ("topn:8x2,sources=draft,plain", ["topn:8x2,sources=draft", "plain"]),
        ("entropy,low_bits=2.0,high_bits=3.0 plain", ["entropy:low_bits=2.0,high_bits=3.0", "plain"]),
        ("plain; learned:a/b, chain:2", ["plain", "learned:a/b", "chain:2"]),
        ("", []),
    ],
)
def test_policies_may_be_joined_in_several_ways(text: str, specs: list[str]) -> None:
    assert split_policies(text) == specs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "nope"], "policy must be one of"),
        ([], "policies must be named with --policies or --policy, got none"),
        (["--policy", "plain", "--json", "--csv"], "output must be --json or --csv, got both"),
        (["--policy", "chain:6"], "may ask for nodes of depth 6 where the log ends at 4"),
        (["--policy", "plain", "--task", "poem"], "task must be one of chat, copy, got 'poem'"),
        (["--policies", "plain,plain"], "policies must be each named once"),
        (
            ["--policies", "plain,chain:2", "--plan", "0"],
            "plan must be a share above 0 and below 1, such as 3% or 0.03",
        ),
        (["--policies", "plain,chain:2", "--plan", "3"], "such as 3% or 0.03, got '3'"),
        (["--policies", "plain,chain:2", "--margin", "much"], "margin must be a share above 0 and below 1"),
        (["--policies", "plain,chain:2", "--plan", "3%", "--csv"], "output must be --json or a table where --plan"),
        (["--policy", "plain", "--plan", "3%"], "policies must be at least two where --plan is asked, got 1"),
        (["--policy", "plain", "--served", "2", "--csv"], "csv must be left out with --served, got --csv"),
        (["--policy", "plain", "--served", "2", "--as-recorded"], "as_recorded must be left out with --served"),
        (["--policies", "plain,chain:2", "--served", "2", "--plan", "3%"], "plan must be left out with --served"),
        (["--policy", "plain", "--served", "2", "--margin", "5%"], "margin must be left out with --served"),
        (["--policy", "chain:6", "--served", "2"], "may ask for nodes of depth 6 where the log ends at 4"),
    ],
)
def test_ab_refuses_in_one_line(
    dense_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert cli.main(["ab", str(dense_folder), "--cost", EXAMPLE, *options]) == cli.EXIT_ERROR
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "plain,nope"], "policy must be one of"),
        (["--policy", "plain", "--cost", "nowhere"], "cost must be a profile file or one of"),
    ],
)
def test_bad_arguments_are_refused_before_traces_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert cli.main(["ab", str(tmp_path / "missing"), "--cost", EXAMPLE, *options]) == cli.EXIT_ERROR
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("text", "value"), [("3%", 0.03), ("3 %", 0.03), ("0.03", 0.03), (" 99.5% ", 0.995)])
def test_a_share_may_be_written_in_two_ways(text: str, value: float) -> None:
    assert share("plan", text) == pytest.approx(value)


def test_the_margin_of_the_command_is_that_of_verdicts() -> None:
    assert share("margin", cli_ab.MARGIN) == verdict.MARGIN
    assert set(cli_ab.MARKS) == set(get_args(verdict.Kind))


def test_a_plan_says_how_many_prompts(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ab", str(dense_folder), "--cost", EXAMPLE, "--policies", "plain,chain:2,topn:4x1", "--plan", "3%"]
    value = checked("ab", run([*arguments, "--json"], capsys))
    assert (value["plan"]["difference"], value["plan"]["power"]) == (0.03, 0.8)
    rows = {(row["policy"], row["task"]): row for row in value["plan"]["rows"]}
    assert rows["chain:2", "chat"]["prompts_needed"] is None  # one prompt has no spread
    needed = rows["chain:2", ""]["prompts_needed"]
    output = run(arguments, capsys)
    assert "prompts that would show 3.0 % against plain" in " ".join(output.split())
    (line,) = [line for line in output.splitlines() if "chain:2" in line and " all " in line]
    assert f"{needed:,}" in line


def test_the_tables_say_verdicts_bounds_and_break_even(
    dense_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    arguments = ["ab", str(dense_folder), "--cost", EXAMPLE, "--policies", "plain,chain:2,frontier"]
    with pytest.raises(SystemExit) as leaving:
        cli.main([*arguments, "--tuned-on", str(dense_folder), "--depth-oracles"])
    captured = capsys.readouterr()
    assert not leaving.value.code, captured.err
    titles = [line for line in captured.out.splitlines() if line.startswith("modelled, ")]
    assert len(titles) == 4 and all(EXAMPLE in title for title in titles)  # whole, verdicts, by task, break-even
    assert captured.out.count("undecided: 3 prompts are too few for any verdict") == 2
    assert "frontier *" in captured.out and "chain:2 *" not in captured.out
    for spec in ("plain", "chain:2", "frontier"):
        assert f"depth oracle of {spec}" in captured.out
    errors = " ".join(captured.err.split())
    assert "warning: traces hold 3 prompts: below 20 the intervals are too narrow" in errors
    assert "warning: 3 of 3 judged prompts were tuned on as well" in errors


def test_json_holds_judgements_that_fit_their_intervals(
    dense_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["ab", str(dense_folder), "--cost", EXAMPLE, "--policies", "plain,chain:2,frontier", "--margin", "5%"]
    value = checked("ab", run([*arguments, "--depth-oracles", "--json"], capsys))
    assert value["margin"] == 0.05
    judged = [row for row in value["rows"] if row["judgement"]]
    assert {row["policy"] for row in judged} == {"chain:2", "frontier"}
    assert {row["judgement"]["comparisons"] for row in judged if row["task"] == ""} == {2}
    assert [(found["policy"], found["held"]) for found in value["break_even"]] == [
        ("chain:2", []), ("frontier", ["frontier"]),
    ]  # fmt: skip
    assert len(value["depth_oracles"]) == 3 * 3
    assert checked("ab", run([*arguments, "--json"], capsys)) == value  # few tokens: by default too
    without = checked("ab", run([*arguments, "--no-depth-oracles", "--json"], capsys))
    assert without["depth_oracles"] == [] and without["rows"] == value["rows"]
    monkeypatch.setattr("treewise.training.ab.DEPTH_ORACLE_TOKENS", 100)
    assert checked("ab", run([*arguments, "--json"], capsys)) == without


def test_an_empty_part_is_an_error() -> None:
    with pytest.raises(PolicySpecError, match="joined by commas"):
        split_policies("plain,,chain:2")


def test_tune_json_fits_its_schema(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tune", str(dense_folder), "--cost", EXAMPLE, "--family", "chain", "--task", "chat"]
    value = checked("tune", run([*arguments, "--json"], capsys))
    (winner,) = [row for row in value["settings"] if row["is_winner"]]
    assert winner["speedup"] == max(row["speedup"] for row in value["settings"])
    assert winner["spec"] in run(arguments, capsys)


def test_policies_are_served_side_by_side(dense_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "ab",
        str(dense_folder),
        "--cost",
        EXAMPLE,
        "--policies",
        "topn:2x2 topn:2x2,budget=batch",
        "--served",
        "2",
    ]
    value = checked("ab_served", run([*asked, "--json"], capsys))
    equal, shared = value["rows"]
    assert value["batch"] == 2 and value["passes"] == 11 and equal["requests"] == 33  # of three requests
    assert equal["ratio"] is None and shared["ratio"]["low"] <= shared["ratio"]["value"] <= shared["ratio"]["high"]
    assert value["warnings"] and "3 prompts" in value["warnings"][0]
    words = run(asked, capsys)
    assert "2 requests side by side, 3 prompts" in words and "Figures are those of full batches" in words
    assert f"{shared['ratio']['value']:.3f}" in words


def test_live_traces_are_not_served(
    live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_live(tmp_path / "live", live_shards)
    asked = ["ab", str(folder), "--cost", EXAMPLE, "--policies", "chain:3", "--served", "2"]
    assert cli.main(asked) == cli.EXIT_ERROR
    assert "trace live must be dense to be served in batches, got a live one" in capsys.readouterr().err


def test_a_live_trace_of_another_policy_is_estimated(
    live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_live(tmp_path / "live", live_shards)
    asked = ["ab", str(folder), "--cost", EXAMPLE, "--policies", "chain:3 topn:8x2"]
    value = checked("ab_estimate", run([*asked, "--json"], capsys))
    assert value["exact"] is False and value["writers"] == ["chain:3"]
    assert {row["estimator"] for row in value["rows"]} == {"direct method"}  # nobody was drawn
    words = run(asked, capsys)
    assert "estimate, exact: false, no verdict" in words and "the direct method" in " ".join(words.split())
    assert "Holm" not in words and "better" not in words
    assert max(map(len, words.splitlines())) <= 100 or "acceptance from" in max(words.splitlines(), key=len)
    lines = list(csv.DictReader(io.StringIO(run([*asked, "--csv"], capsys))))
    assert len(lines) == len(value["rows"]) and lines[0]["exact"] == "False"
    own = checked("ab", run([*asked[:-1], "chain:3", "--json"], capsys))
    assert own["exact"] is True


def test_an_estimate_is_shared_among_workers_and_does_not_depend_on_them(
    live_shards: list[TraceShard],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def counted(job: Any, parts: Sequence[Any], workers: int, advance: Any = None) -> list[Any]:
        taken.append(workers)
        return run_parts(job, parts, workers, advance)

    monkeypatch.setattr("treewise.training.estimate.run_parts", counted)
    folder = write_live(tmp_path / "live", live_shards)
    asked = ["ab", str(folder), "--cost", EXAMPLE, "--policies", "chain:3 topn:8x2", "--json", "--workers"]
    alone, shared = (run([*asked, str(workers)], capsys) for workers in (1, 2))
    assert taken == [1, 2]
    assert alone == shared


@pytest.mark.parametrize("option", [["--plan", "3%"], ["--html", "page.html"], ["--as-recorded"]])
def test_an_estimate_takes_no_option_of_a_verdict(
    option: list[str], live_shards: list[TraceShard], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_live(tmp_path / "live", live_shards)
    try:
        status: object = cli.main(["ab", str(folder), "--cost", EXAMPLE, "--policies", "chain:3 plain", *option])
    except SystemExit as leaving:
        status = leaving.code
    assert status == 2
    name = option[0].removeprefix("--").replace("-", "_")
    assert f"{name} must be left out where policies did not write the live trace" in capsys.readouterr().err


def test_workers_are_as_many_as_asked_for_or_as_there_is_work_for(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treewise.training.workers.usable_cores", lambda: 4)
    trace = open_trace(traces)
    assert workers_for(3, [trace], 1) == 3
    assert workers_for(0, [trace], 1) == 1
    assert workers_for(0, [trace], 1_000_000) == 4
