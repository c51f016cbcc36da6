"""The survey's page in a real browser: both themes, both widths, and no request to anyone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chromium import Browser, requires_chromium
from tests.training.worlds import COST, World, dense_trace
from treewise.data.envelope import Envelope
from treewise.survey_page import write_survey_page
from treewise.training.survey import survey
from treewise.training.survey_grid import SurveyGrid

pytestmark = requires_chromium


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = dense_trace(World(seed=5, num_texts=4, answer_tokens=24), Envelope(max_depth=6, draft_width=4))
    found = survey([trace], COST, ["topn:12x3"], SurveyGrid(widths=(2, 3, 5), depths=(3, 4, 5, 6, 7, 8)))
    return write_survey_page(tmp_path_factory.mktemp("page") / "survey.html", found)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield found
    found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height", "shown"), [(1280, 900, "w"), (390, 844, "n")])
def test_nothing_overflows_and_cells_can_be_read(
    browser: Browser, path: Path, scheme: str, width: int, height: int, shown: str
) -> None:
    browser.prefer(scheme)
    browser.size(width, height)
    browser.open(path)
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    drawn = "[...document.querySelectorAll('figure .{} svg')].every(one => one.getBoundingClientRect().width > 100)"
    assert browser.value(drawn.format(shown))
    assert browser.value("document.querySelectorAll('.heats table').length") == 4 * 3  # all tasks, and each of two
    assert browser.value("document.querySelectorAll('details:not([open]) .heats table').length") == 2 * 3
    wide = "[...document.querySelectorAll('.heats table')].every(one => one.scrollWidth <= window.innerWidth)"
    assert browser.value(wide)
    tints = (
        "new Set([...document.querySelectorAll('.heats td')].map(one => getComputedStyle(one).backgroundColor)).size"
    )
    assert browser.value(tints) > 4
    assert set(browser.requested()) <= {path.as_uri(), "about:blank"}
    assert browser.complaints() == []


def test_the_theme_can_be_chosen_and_figures_unfold(browser: Browser, path: Path) -> None:
    browser.prefer("light")
    browser.size(1280, 900)
    browser.open(path)
    paper = "getComputedStyle(document.body).backgroundColor"
    before = browser.value(paper)
    browser.value("document.getElementById('theme').click()")
    assert browser.value(paper) != before
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.value("[...document.querySelectorAll('details table')].every(one => one.offsetHeight > 0)")
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
