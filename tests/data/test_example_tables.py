"""The example tables: what they leave unsaid, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treewise.data.cost import BUILTIN
from treewise.data.example_tables import (
    A100_70B,
    H800_67B,
    TABLES,
    ExampleRow,
    ExampleTable,
    Span,
    contradictions,
    faults,
    level_match,
)


def row_of(table: ExampleTable, strategy: str, task: str = "") -> ExampleRow:
    """One row by name."""
    return next(row for row in table.rows if row.strategy.startswith(strategy) and row.task == task)


def test_drafting_is_what_a_step_takes_beyond_its_verify_pass() -> None:
    # chain: 2.15 x 24.5 / 1.82 = 28.9423, less 26.2; static: 4.82 x 24.5 / 1.58 = 74.7405, less 58.4
    by_hand = {"plain": 0.0, "chain": 2.7423, "entropy": 7.3167, "cumulative": 6.4625, "static": 16.3405}
    for strategy, drafting_ms in by_hand.items():
        found = A100_70B.drafting_ms(row_of(A100_70B, strategy))
        assert found is not None
        assert found.value == pytest.approx(drafting_ms, abs=5e-5)
        assert found.low < found.value < found.high


def test_rounding_is_carried_through() -> None:
    found = A100_70B.drafting_ms(row_of(A100_70B, "chain"))
    assert found is not None
    assert found.low == pytest.approx(2.145 * 24.45 / 1.825 - 26.25)
    assert found.high == pytest.approx(2.155 * 24.55 / 1.815 - 26.15)
    assert str(found.per(5)) == "0.55 [0.50, 0.60]"


def test_the_second_tables_plain_pass_lies_on_the_line_through_its_two() -> None:
    slope = (13.8 - 12.4) / (16 - 5)
    assert H800_67B.plain_ms == pytest.approx(12.4 - 4 * slope)
    # No drafting is negative from mathematics' tree on: 13.8 x 2.55 / 3.80.
    assert H800_67B.plain_bounds.low == pytest.approx(13.8 * 2.55 / 3.80)
    assert H800_67B.plain_bounds.high == 12.4
    code = 2.18 * H800_67B.plain_ms / 1.62 - 12.4
    mathematics = 1.85 * H800_67B.plain_ms / 1.38 - 12.4
    assert H800_67B.pass_ms == pytest.approx((code + mathematics) / 2 / 5)


def test_a_row_without_a_speedup_gets_the_others_drafting() -> None:
    chat = row_of(H800_67B, "chain", "chat")
    assert H800_67B.step_ms(chat) is None
    assert H800_67B.drafting_ms(chat) is None
    assert H800_67B.expected_speedup(chat) == pytest.approx(2.82 * H800_67B.plain_ms / (12.4 + 5 * H800_67B.pass_ms))


def test_no_one_price_fits_the_first_table_and_one_fits_the_second() -> None:
    by_pass, by_token = contradictions(A100_70B)
    assert by_pass.startswith("no one price of a draft pass fits; 'chain of 5' leaves 0.55 [0.50, 0.60] ms")
    assert by_pass.endswith("'static, 3 wide, 4 deep' 4.09 [3.96, 4.21] ms for each of 4")
    assert "drafted token" in by_token
    assert contradictions(H800_67B) == ()
    assert all(faults(table, row) == () for table in TABLES for row in table.rows)


def test_a_row_that_cannot_be_says_why() -> None:
    chain = row_of(A100_70B, "chain")
    long = replace(chain, tokens_per_step=6.2, speedup=3.0)
    assert faults(A100_70B, long) == ("6.20 tokens a step from 5 levels, which give at most one more",)
    fast = replace(chain, speedup=2.2)  # 2.15 x 24.5 / 2.2 = 23.94 ms for a verify pass of 26.2
    (fault,) = faults(A100_70B, fast)
    assert fault == "its verify pass alone takes 2.26 ms longer than the whole step"
    assert faults(A100_70B, replace(chain, speedup=2.01)) == ()  # within rounding


def test_level_match_solves_its_sum() -> None:
    found = level_match(row_of(A100_70B, "chain"))
    assert found is not None
    assert sum(found**level for level in range(6)) == pytest.approx(2.15)
    assert level_match(replace(row_of(A100_70B, "chain"), tokens_per_step=6.0)) == pytest.approx(1.0, abs=1e-8)
    assert level_match(row_of(A100_70B, "entropy")) is None


def test_the_built_in_profiles_are_the_tables_and_say_that_nobody_measured_them() -> None:
    for table in TABLES:
        profile = BUILTIN[table.name]
        assert not profile.verified
        assert "nobody here measured it" in profile.origin
        assert "example" in profile.device
        for row in table.rows:
            assert profile.verify_ms([row.rows])[0] == pytest.approx(row.verify_ms)
        assert profile.plain_ms() == pytest.approx(table.plain_ms)
    assert BUILTIN["example-h800-67b"].draft_ms([1, 16]).tolist() == [0.71, 0.71]


def test_spans_overlap_where_one_figure_can_be_both() -> None:
    assert Span(1.0, 0.5, 1.5).overlaps(Span(2.0, 1.5, 2.5))
    assert not Span(1.0, 0.5, 1.5).overlaps(Span(2.0, 1.6, 2.5))
