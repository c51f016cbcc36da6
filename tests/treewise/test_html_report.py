"""The report page as a file: what it says, that it is whole, and that it asks for nothing."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.treewise.pages import NASTY, RIVALS, SMALL, make_compared, make_page, text_of
from tests.treewise.tiny import leave
from treewise.data.errors import MissingExtraError, ParameterError
from treewise.html_charts import frontier, speedups
from treewise.html_report import Compared, PageSettings, page, write_page
from treewise.html_tree import explorer_data
from treewise.html_verdict import headline
from treewise.token_text import token_text
from treewise.training.explain import Explanation, explain
from treewise.training.logged_trace import open_trace

VOID = {"meta", "link", "input", "br", "img", "hr"}
SECTIONS = ["verdict", "speed", "frontier", "lengths", "use", "calibration", "cost", "features", "trees"]
ASSETS = ROOT / "treewise" / "html_page"


class Page(HTMLParser):
    """A page's elements, its text outside scripts, and whether its tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.data = ""
        self.faults: list[str] = []
        self._open: list[str] = []
        self._in_data = False
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        self._in_data = values.get("type") == "application/json"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"{tag} closed inside {self._open[-1:]}")
        else:
            self._open.pop()
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data
        elif not self._open or self._open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [values for name, values in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return make_compared(tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def data(read: Page) -> Any:
    return json.loads(read.data)


def test_tags_nest_and_ids_are_unique(read: Page) -> None:
    assert read.faults == []
    ids = [values["id"] for _, values in read.elements if "id" in values]
    assert len(ids) == len(set(ids))
    uses = [values["href"] for tag, values in read.elements if tag in ("use", "a")]
    assert uses
    assert {use.removeprefix("#") for use in uses} <= set(ids)


def test_the_page_asks_for_nothing(path: Path, read: Page) -> None:
    for tag, values in read.elements:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form"), tag
        for name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
            assert values.get(name, "#").startswith("#"), (tag, values)
    text = path.read_text(encoding="utf-8")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    for word in ("fetch(", "XMLHttpRequest", "import(", "http://", "https://"):
        assert word not in text, word


def test_the_page_is_small(path: Path) -> None:
    assert path.stat().st_size < 3_000_000
    assert len((ASSETS / "explorer.js").read_text(encoding="utf-8").splitlines()) < 300


def test_sections_come_in_order_verdict_first(read: Page) -> None:
    assert [values["id"] for values in read.all("section")] == SECTIONS
    links = [values["href"] for values in read.all("a")]
    assert [link for link in links if link != "#verdict"] == [f"#{name}" for name in SECTIONS[1:]]


def test_every_chart_has_words_and_a_table(path: Path, read: Page) -> None:
    charts = read.all("figure")
    drawn = read.all("svg")
    assert len(drawn) == 2 * len(charts) > 20
    for values in drawn:
        assert values["role"] == "img"
        assert len(values["aria-label"]) > 10
    text = path.read_text(encoding="utf-8")
    assert len(
        re.findall(r"</figure><details><summary>[^<]+ as a table</summary><div class=\"wide\"><table>", text)
    ) == len(charts)


def test_figures_of_the_report_are_there(compared: Compared, read: Page) -> None:
    for row in compared.report.rows:
        if not row.is_upper_bound:
            assert f"{row.speedup.value:.3f}" in read.text
        if row.task == "" and row.judgement is not None:
            assert row.verdict in read.text
    for line in (*compared.report.acceptance, *compared.report.warnings):
        assert line in read.text
    for words in ("twice <b>", "made up & told so", "learned:policy", "log_prior", "oracle", *RIVALS):
        assert words in read.text


def test_colours_are_variables(read: Page) -> None:
    styles = " ".join(values.get("style", "") for _, values in read.elements)
    assert "var(--s0)" in styles
    assert "var(--ink)" in styles
    assert re.findall(r"#[0-9a-f]{6}", styles) == []


def test_names_are_escaped(read: Page) -> None:
    assert "b" not in {tag for tag, _ in read.elements}
    assert "under twice <b>" in read.text


def test_no_token_ends_the_data(data: Any, read: Page) -> None:
    assert set(NASTY) <= set(data["words"])
    assert not re.search(r"[<>&\u2028]", read.data)


def test_the_explorers_data_is_the_explanation(compared: Compared, data: Any) -> None:
    expected = explain(compared.traces[0], compared.costs[0], compared.contenders, SMALL.prompts, SMALL.rounds)
    assert data["policies"] == ["learned:policy", *RIVALS]
    assert data["scoring"] == [True, False, False, False, False]
    assert len(data["requests"]) == SMALL.prompts
    by_id = {request.prompt_id: request for request in expected.requests}
    for request in data["requests"]:
        theirs = by_id[request["id"]]
        assert [data["words"][word] for word in request["text"]] == [
            text_of(token) for token in (theirs.root_token, *theirs.text)
        ]
        for mine, trees in zip(request["trees"], theirs.trees.values(), strict=True):
            for one, tree in zip(mine, trees, strict=True):
                assert one["fate"] == tree.fate.tolist()
                assert one["parent"] == tree.parent.tolist()
                assert one["survival"] == pytest.approx(tree.survival.tolist(), abs=6e-5)


def test_the_page_is_the_same_every_time(path: Path, tmp_path: Path, compared: Compared) -> None:
    again = write_page(tmp_path / "again.html", [compared], SMALL, text_of)
    # Folders of the two bundles differ, and so may digits where a milliseconds-per-call was measured: none here.
    assert again.read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["again.html"]


def test_prompts_that_do_not_fit_are_left_out(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.html_tree.MAX_BYTES", 10)
    found = explained(compared)
    value = explorer_data(found, ["x"], None)
    assert len(value["requests"]) == 1
    assert value["left_out"] == len(found.requests) - 1 > 0


def test_tokens_without_text_are_ids(compared: Compared) -> None:
    value = explorer_data(explained(compared), ["x"], None)
    assert value["as_text"] is False
    assert all(word.isdecimal() for word in value["words"])


def explained(compared: Compared) -> Explanation:
    return explain(compared.traces[0], compared.costs[0], compared.contenders[-1:], rounds=2)


def test_without_matplotlib_the_extra_is_named(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"treewise\[report\]"):
        page([compared], SMALL)


def test_the_verdict_follows_from_the_judgements(compared: Compared) -> None:
    rows = compared.rows("world")
    said = headline(rows)
    best = max((row for _, row in rows[1:] if row.judgement), key=lambda row: row.speedup.value)
    assert best.judgement is not None
    expected = {"worse": "better", "better": "worse"}.get(best.judgement.verdict.kind, "undecided")
    assert said.standing == expected
    assert best.verdict in said.words
    assert len(said.others) == 1 + len(RIVALS)
    alone = headline(rows[:1])
    assert alone.standing == "undecided"
    assert "plain decoding" in alone.words


@pytest.mark.parametrize("name", ["prompts", "rounds", "counted_prompts"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be >= 1, got 0"):
        PageSettings(**{name: 0})


def test_the_command_writes_the_page(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "page.html"
    arguments = ["ab", str(traces), "--cost", "example-a100-70b", "--policies", "topn:4x2 plain", "--html", str(target)]
    assert leave([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["policies"] == ["topn:4x2", "plain"]
    assert f"wrote {target}" in printed.err.replace("\n", "")
    found = Page(target.read_text(encoding="utf-8"))
    assert found.faults == []
    words = json.loads(found.data)["words"]
    assert max(map(len, words)) >= 1
    assert any(word.isalpha() for word in words)  # the tiny pair's tokenizer lies in its folder


def test_the_command_names_the_extra_before_it_replays(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["ab", str(traces), "--cost", "example-a100-70b", "--policies", "plain", "--html", str(tmp_path / "x")]
    assert leave(arguments) == 2
    assert "treewise[report]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_tokens_have_text_only_where_the_tokenizer_is_the_traces(traces: Path, tmp_path: Path, home: Path) -> None:
    assert not home.exists()
    manifest = open_trace(traces).manifest
    text_of = token_text(manifest)
    assert text_of is not None
    assert [text_of(token) for token in (2, 3)] == ["0", "1"]
    elsewhere = {**manifest.pair, "target": str(tmp_path)}
    for other in (
        replace(manifest, tokenizer_hash="0"),
        replace(manifest, tokens_included=False),
        replace(manifest, pair=elsewhere),  # a folder without a tokenizer
        replace(manifest, pair={**elsewhere, "target": "someone/far-away"}),
        replace(manifest, pair={**elsewhere, "target": "smollm2-135m"}),  # not pulled
    ):
        assert token_text(other) is None


def test_long_names_are_cut_in_charts_and_whole_in_tables(compared: Compared) -> None:
    name = "entropy:" + ",".join(f"setting_{number}={number}.5" for number in range(9))
    rows = [(f"{name}-{number}", row) for number, (_, row) in enumerate(compared.rows("world"))]
    for chart in (speedups("a", [("", rows), ("some-task", rows)]), frontier("b", rows)):
        for svg, room in ((chart.drawing.wide, 40), (chart.drawing.narrow, 22)):
            written = [text for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg) if "…" in text]
            assert len(set(written)) == len(rows)
            assert {len(text) for text in written} == {room}
        assert {row[1 if chart.table.headings[0] == "task" else 0] for row in chart.table.rows} == {n for n, _ in rows}
