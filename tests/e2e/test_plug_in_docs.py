"""The pages on plugging in: every Python block runs, prints what the page says, and every page is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.layout import ROOT

INDEX = ROOT / "docs" / "plug-in.md"
PAGES = [INDEX, *sorted((ROOT / "docs" / "plug-in").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?", re.DOTALL | re.MULTILINE)


def blocks() -> list[tuple[str, str, str | None]]:
    """Name, code and printed text (None where the page shows none) of every block."""
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            found.append((f"{page.stem}-{number}", match["code"], match["output"]))
    return found


@pytest.mark.parametrize(("name", "code", "output"), blocks(), ids=[name for name, _, _ in blocks()])
def test_the_block_runs_and_prints_what_the_page_says(
    name: str,
    code: str,
    output: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": name})
    printed = capsys.readouterr().out
    if output is not None:
        assert printed == output


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_page_has_a_block(page: Path) -> None:
    assert BLOCK.search(page.read_text(encoding="utf-8"))


def test_the_index_names_every_page_and_every_link_leads_somewhere() -> None:
    linked = set(re.findall(r"\]\(plug-in/([\w-]+\.md)", INDEX.read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES[1:]}
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize(
    ("page", "module"), [("sglang", "sglang_policy"), ("vllm", "vllm_proposer"), ("llama-cpp", "llama_cpp_draft")]
)
def test_the_index_and_the_page_name_the_versions_that_were_tried(page: str, module: str) -> None:
    source = (ROOT / "engine" / f"{module}.py").read_text(encoding="utf-8")
    found = re.search(r'^TRIED_VERSIONS = \("([^"]+)",\)$', source, re.MULTILINE)
    assert found is not None
    rows = [row for row in INDEX.read_text(encoding="utf-8").splitlines() if f"plug-in/{page}.md" in row]
    assert rows and all(found[1] in row for row in rows)
    assert found[1] in (ROOT / "docs" / "plug-in" / f"{page}.md").read_text(encoding="utf-8")
