"""What the report page draws with: inline SVG, colours, names and data in scripts."""

from __future__ import annotations

import json
import re

import pytest

from tests.house.layout import ROOT
from treewise.html_panels import cut
from treewise.html_report import short_names
from treewise.html_svg import inline
from treewise.html_tree import dumps

ASSETS = ROOT / "treewise" / "html_page"


def test_an_svg_is_made_inline() -> None:
    svg = (
        '<?xml version="1.0"?>\n<svg xmlns="http://x" viewBox="0 0 10 5" width="9pt">\n <metadata>m</metadata>'
        '<g id="a" clip-path="url(#a)"><use xlink:href="#a" x="1.23456" style="fill: #010203"/>'
        "<text style=\"font: 700 11px 'DejaVu Sans', sans-serif; fill: #020310\">$1$</text></g></svg>"
    )
    assert inline(svg, "n", 'a "label"') == (
        '<svg role="img" aria-label="a &quot;label&quot;" viewBox="0 0 10 5" style="max-width: 10px">\n'
        '<g id="n-a" clip-path="url(#n-a)"><use href="#n-a" x="1.23" style="fill: var(--ink)"/>'
        '<text style="font-size: 11px; fill: var(--s0)">$1$</text></g></svg>'
    )


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_the_paper(theme: int) -> None:
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", style)
    colours = {name: luminance(both[theme]) for name, *both in pairs}
    for surface in ("paper", "card"):
        for name in ("ink", "muted", "good", "warn", "bad", "focus"):
            assert contrast(colours[name], colours[surface]) >= 4.5, (name, surface)
        for name in (f"s{number}" for number in range(8)):
            assert contrast(colours[name], colours[surface]) >= 3.0, (name, surface)


def luminance(colour: str) -> float:
    """Relative luminance, as the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[place : place + 2], 16) / 255.0 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    """Contrast ratio of two luminances."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_json_that_stands_in_a_script() -> None:
    value = {"a": ["</script>", "<!--", "\u2028\u2029&"]}
    assert json.loads(dumps(value)) == value
    assert not set(dumps(value)) & set("<>&\u2028\u2029")


def test_a_bundles_folder_is_not_its_name() -> None:
    assert short_names(["learned:a/b/policy", "chain:3"]) == {
        "learned:a/b/policy": "learned:policy",
        "chain:3": "chain:3",
    }
    same = ["learned:a/policy", "learned:b/policy"]
    assert short_names(same) == {spec: spec for spec in same}


def test_a_name_loses_its_middle() -> None:
    assert cut("learned", 7) == "learned"
    assert cut("abcdefghij", 5) == "ab…ij"
    assert cut("abcdefghij", 6) == "ab…hij"
