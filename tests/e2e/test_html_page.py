"""The report page in a real browser: both themes, both widths, the keyboard, and no request to anyone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chromium import Browser, requires_chromium
from tests.treewise.pages import RIVALS, make_page

pytestmark = requires_chromium

WIDE, NARROW = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield found
    found.close()


@pytest.fixture
def page(browser: Browser, path: Path) -> Browser:
    """The page, freshly loaded on a light desktop."""
    browser.prefer("light")
    browser.size(*WIDE)
    browser.open(path)
    return browser


def facts(page: Browser) -> list[str]:
    found: list[str] = page.value("[...document.querySelectorAll('.facts')].map(one => one.textContent)")
    return found


def chosen(page: Browser) -> str:
    """Id of the row that is selected."""
    found: list[str] = page.value("[...document.querySelectorAll('[aria-selected=true]')].map(one => one.id)")
    (only,) = found
    return only


def focus(page: Browser, pane: int = 0) -> None:
    page.value(f"document.querySelectorAll('[role=tree]')[{pane}].focus()")


def test_the_page_asks_for_itself_alone(page: Browser, path: Path) -> None:
    assert set(page.requested()) <= {path.as_uri(), "about:blank"}
    assert page.complaints() == []


def test_the_theme_follows_the_system_and_the_button_wins(page: Browser) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    bar = "getComputedStyle(document.querySelector('figure svg path[style*=\"--s0\"]')).fill"
    light, light_bar = page.value(paper), page.value(bar)
    page.prefer("dark")
    dark, dark_bar = page.value(paper), page.value(bar)
    assert dark != light
    assert dark_bar != light_bar
    button = "document.getElementById('theme')"
    assert page.value(f"{button}.getAttribute('aria-label')") == "switch to the light theme"
    page.value(f"{button}.click()")
    assert page.value(paper) == light
    page.value(f"{button}.click()")
    assert page.value(paper) == dark
    page.prefer("light")
    assert page.value(paper) == dark  # as chosen


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_wider_than_the_window(page: Browser, size: tuple[int, int]) -> None:
    page.size(*size)
    width = page.value("document.documentElement.clientWidth")
    assert page.value("document.documentElement.scrollWidth") == width
    sticking_out = page.value(
        "[...document.querySelectorAll('h1, h2, p, li, figure, .pane, .controls, details')]"
        f".filter(one => one.getBoundingClientRect().right > {width} + 0.5).map(one => one.outerHTML.slice(0, 90))"
    )
    assert sticking_out == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_charts_are_readable(page: Browser, size: tuple[int, int]) -> None:
    page.size(*size)
    shown = page.value("[...document.querySelectorAll('figure svg')].filter(one => one.clientWidth > 0).length")
    assert shown == page.value("document.querySelectorAll('figure').length") > 10
    pixels = page.value(
        "Math.min(...[...document.querySelectorAll('figure svg text')].filter(one => one.closest('svg').clientWidth)"
        ".map(one => { const to = one.getScreenCTM();"
        "return parseFloat(getComputedStyle(one).fontSize) * Math.hypot(to.a, to.b); }))"
    )
    assert pixels >= 8.9
    smallest = page.value(
        "Math.min(...[...document.querySelectorAll('main *')].filter(one => !one.closest('svg') && one.clientWidth)"
        ".map(one => parseFloat(getComputedStyle(one).fontSize)))"
    )
    assert smallest >= 11.5


def test_two_trees_stand_side_by_side_and_one_above_the_other(page: Browser) -> None:
    boxes = "[...document.querySelectorAll('.pane')].map(one => one.getBoundingClientRect()).map(one => [one.x, one.y])"
    left, right = page.value(boxes)
    assert left[1] == right[1]
    assert left[0] < right[0]
    page.size(*NARROW)
    upper, lower = page.value(boxes)
    assert upper[0] == lower[0]
    assert upper[1] < lower[1]


def test_the_rows_are_the_trees(page: Browser) -> None:
    data = page.value("JSON.parse(document.getElementById('trees-data').textContent)")
    position = int(page.value("document.getElementById('round').value"))
    for pane, policy in ((0, 0), (1, 1)):
        tree: dict[str, Any] = [tree for tree in data["requests"][0]["trees"][policy] if tree["position"] <= position][
            -1
        ]
        rows = page.value(f"document.querySelectorAll('.pane')[{pane}].querySelectorAll('[role=treeitem]').length")
        assert rows == len(tree["parent"])
        verified = sum(fate < 2 for fate in tree["fate"]) - 1
        assert f"committed {tree['committed']}, verified {verified} of" in facts(page)[pane]
    page.value("document.getElementById('cuts').click()")
    kept = page.value("document.querySelectorAll('.pane')[0].querySelectorAll('[role=treeitem]').length")
    assert kept == sum(
        fate < 2 for fate in [t for t in data["requests"][0]["trees"][0] if t["position"] <= position][-1]["fate"]
    )


def test_tokens_are_text_and_never_elements(page: Browser) -> None:
    assert page.value("document.querySelectorAll('#panes b, #panes img, #context img').length") == 0
    shown = page.value("document.getElementById('panes').textContent")
    assert "<b>bold</b>" in shown
    assert "U+2028" in page.value(
        "document.getElementById('panes').textContent + document.getElementById('context').textContent"
    )


def test_the_keyboard_moves_nodes_rounds_prompts_and_panes(page: Browser) -> None:
    focus(page)
    first = chosen(page)
    assert first == "row-0-0"
    root_words = page.value("document.getElementById('said').textContent")
    page.press("j")
    second = chosen(page)
    assert second != first
    assert page.value("document.activeElement.getAttribute('aria-activedescendant')") == second
    assert page.value("document.getElementById('said').textContent") != root_words
    page.press("ArrowDown")
    assert chosen(page) not in (first, second)
    page.press("k")
    page.press("ArrowUp")
    assert chosen(page) == first
    page.press("k")
    assert chosen(page) == first  # the end of the tree

    place = "document.getElementById('round').selectedIndex"
    at = page.value(place)
    page.press("ArrowLeft")
    assert page.value(place) == max(0, at - 1)
    page.press("ArrowRight")
    page.press("ArrowRight")
    count = page.value("document.getElementById('round').options.length")
    assert page.value(place) == min(count - 1, max(0, at - 1) + 2)

    page.press("n")
    assert page.value("document.getElementById('prompt').selectedIndex") == 1
    assert page.value(place) == 0
    page.press("n")
    assert page.value("document.getElementById('prompt').selectedIndex") == 1  # there are two
    page.press("p")
    assert page.value("document.getElementById('prompt').selectedIndex") == 0

    page.press("o")
    assert chosen(page).startswith("row-1-")
    page.press("j")
    assert chosen(page).startswith("row-1-")
    assert page.complaints() == []


def test_another_policy_can_be_chosen_on_either_side(page: Browser) -> None:
    before = facts(page)
    for pane, name in ((1, "plain"), (0, "chain:3")):
        place = 1 + RIVALS.index(name)
        page.value(
            f"(() => {{ const one = document.querySelectorAll('.pane select')[{pane}]; one.value = {place};"
            "one.dispatchEvent(new Event('change')); })()"
        )
        label = page.value(f"document.querySelectorAll('[role=tree]')[{pane}].getAttribute('aria-label')")
        assert label == f"tree of {name}"
    assert facts(page)[1] != before[1]
    assert "verified 0 of 0 offered" in facts(page)[1]


def test_a_round_that_began_earlier_says_so(page: Browser) -> None:
    page.value(
        "(() => { const [one, other] = document.querySelectorAll('.pane select');"
        f"one.value = {1 + RIVALS.index('plain')}; one.dispatchEvent(new Event('change'));"
        "other.value = 0; other.dispatchEvent(new Event('change'));"
        "document.getElementById('prompt').dispatchEvent(new Event('change')); })()"
    )
    seen = []
    for _ in range(12):
        seen.append(facts(page)[1])
        page.value("document.getElementById('on').click()")
    assert "same root" in seen[0]
    assert any("before the chosen root" in line for line in seen)


def test_controls_have_names(page: Browser) -> None:
    nameless = page.value(
        "[...document.querySelectorAll('button, select, input, [role=tree], [role=treeitem], svg')]"
        ".filter(one => !one.getAttribute('aria-label') && !one.textContent.trim() && !one.closest('label'))"
        ".map(one => one.outerHTML.slice(0, 90))"
    )
    assert nameless == []
    levels = page.value("[...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
