"""Attribution: four quadrants by hand, and its two axes."""

from __future__ import annotations

import math

import pytest

from tests.training.judged import judged_trace
from tests.training.made_texts import Place, made_trace
from tests.training.worlds import World, dense_trace
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, TraceError
from treewise.policy.hook import FREE
from treewise.training.attribution import (
    AGREEMENT_EDGES,
    ENTROPY_EDGES,
    QUADRANTS,
    AttributionSettings,
    attribute,
    band_names,
)

RIGHT, WRONG = Place(0.5, True, 3), Place(0.5, False, 0)
SETTINGS = AttributionSettings(window_tokens=2, least_tokens=2)


def test_quadrants_by_hand() -> None:
    # Agreement looks at the two guesses before: known from the third position on, the last token's entropy is unknown.
    good = [RIGHT, RIGHT, Place(0.5, True, 2), Place(5.0, False, 1), RIGHT]
    bad = [WRONG, WRONG, Place(5.0, False, 0), Place(0.5, True, 1), Place(0.5, False, 2), WRONG]
    found = attribute([made_trace([("good", "chat", good), ("bad", "code", bad)])], SETTINGS)
    cells = {cell.name: cell for cell in found.of_task()}
    # good: place 2 has agreement 1 and is sure, place 3 has agreement 1 and is unsure;
    # bad: place 2 has agreement 0 and is unsure, 3 agreement 0 and sure, 4 agreement 1/2 and sure.
    assert [cells[quadrant.name].positions for quadrant in QUADRANTS] == [2, 1, 1, 1]
    assert [cells[quadrant.name].share.value for quadrant in QUADRANTS] == pytest.approx([0.4, 0.2, 0.2, 0.2])
    agree = cells["sure, agree"]
    assert (agree.first.value, agree.width.value, agree.run.value) == (0.5, 1.0, 2.0)
    assert (cells["sure, differ"].first.value, cells["sure, differ"].run.value) == (1.0, 1.0)
    assert (cells["unsure, agree"].first.value, cells["unsure, agree"].width.value) == (0.0, 1.0)
    assert (cells["unsure, differ"].width.value, cells["unsure, differ"].any_source.value) == (0.0, 0.0)
    assert found.tasks == ["chat", "code"]
    assert [cell.positions for cell in found.of_task("chat")] == [1, 0, 1, 0]
    empty = found.of_task("chat")[1]
    assert empty.share.value == 0.0
    assert math.isnan(empty.first.value)
    assert empty.to_json()["first"] == {"value": None, "low": None, "high": None}


def test_agreement_never_holds_the_outcome_or_another_text() -> None:
    """The first text ends right, the second begins: its first positions know nothing of that."""
    texts = [("a", "chat", [RIGHT] * 4), ("b", "chat", [WRONG] * 5)]
    found = attribute([made_trace(texts)], SETTINGS)
    assert [cell.positions for cell in found.of_task()] == [1, 2, 0, 0]


def test_bands_hold_every_known_position_once() -> None:
    found = attribute([judged_trace()])
    total = sum(cell.positions for cell in found.of_task())
    assert total > 0
    for cells, edges in ((found.by_entropy, ENTROPY_EDGES), (found.by_agreement, AGREEMENT_EDGES)):
        assert len(cells) == len(edges) + 1
        assert sum(cell.positions for cell in cells) == total
        assert sum(cell.share.value for cell in cells) == pytest.approx(1.0)
    assert band_names((1.0, 2.0), " bits") == ["below 1 bits", "1 to 2 bits", "2 bits and more"]


def test_intervals_are_by_prompt_and_hold_their_value() -> None:
    found = attribute([judged_trace()])
    for cell in found.of_task():
        if cell.positions > 20:
            assert cell.share.low <= cell.share.value <= cell.share.high
    one = attribute([made_trace([("a", "chat", [RIGHT] * 6)])], SETTINGS)
    assert math.isnan(one.of_task()[0].share.low)


def test_what_cannot_be_attributed_is_an_error() -> None:
    with pytest.raises(TraceError, match="must hold a draft"):
        world = World(seed=3, num_texts=2, answer_tokens=12)
        attribute([dense_trace(world, Envelope(max_depth=4, draft_width=3), sources=FREE)])
    with pytest.raises(TraceError, match="longer than 5 tokens"):
        attribute([made_trace([("a", "chat", [RIGHT] * 3)])])
    with pytest.raises(ParameterError, match="agreement must be between 0 and 1"):
        AttributionSettings(agreement=1.0)
