"""Findings that a cost profile alone brings: what a pass of more rows, and a longer context, cost."""

from __future__ import annotations

from treewise.data.cost import CostGrid, CostProfile
from treewise.training.findings import Finding, Limits

SERIAL_ROWS = 4  # few enough that a device which runs them together has arithmetic to spare
SLOPE_ROWS = 16


def cost_findings(cost: CostProfile, context_tokens: int, has_draft: bool, limits: Limits) -> tuple[Finding, ...]:
    """Findings at a cache of `context_tokens`, with those on the draft's passes where there is a draft."""
    found = [verify_slope(cost, context_tokens, limits), serial_verification(cost, context_tokens, limits)]
    if has_draft:
        found.append(serial_drafting(cost, context_tokens, limits))
    return (*found, context_cost(cost, limits))


def verify_slope(cost: CostProfile, context_tokens: int, limits: Limits) -> Finding:
    """What width costs: a verify pass of `SLOPE_ROWS` rows over a plain one."""
    ratio = _ratio(cost.verify, SLOPE_ROWS, context_tokens)
    return Finding(
        "verify slope",
        ratio,
        _words(cost.verify, SLOPE_ROWS, context_tokens, "a verify pass", ratio),
        "the device is short of arithmetic, so that only sure guesses pay: small trees and chains, or a policy that "
        "reads prices (frontier, learned:DIR); half precision, or a batch below the device's limit, flattens the curve",
        high=limits.verify_slope,
    )


def serial_verification(cost: CostProfile, context_tokens: int, limits: Limits) -> Finding:
    """Whether rows of a verify pass run one behind another."""
    return _serial(
        "serial verification",
        "a verify pass",
        cost.verify,
        context_tokens,
        "rows are verified one at a time, so no tree can pay: run them in one forward pass under a tree mask, with an "
        "attention kernel that takes one, and check that batching of rows is not turned off",
        limits,
    )


def serial_drafting(cost: CostProfile, context_tokens: int, limits: Limits) -> Finding:
    """Whether the tokens of one draft growth run one behind another."""
    return _serial(
        "serial drafting",
        "a draft growth",
        cost.draft,
        context_tokens,
        "the draft runs one token at a time: run all rows of a level in one forward pass; until then chains are the "
        "only trees that it is worth drafting",
        limits,
    )


def context_cost(cost: CostProfile, limits: Limits) -> Finding:
    """What a longer context costs: a plain pass at the longest measured cache over one at the shortest."""
    capacities = cost.verify.capacities
    ratio = None
    words = f"profile {cost.name} was measured at one context length"
    if len(capacities) > 1:
        short, long = cost.plain_ms(capacities[0]), cost.plain_ms(capacities[-1])
        ratio = long / short if short > 0.0 else None
        words = (
            f"a plain pass takes {short:.2f} ms behind {capacities[0]:,} tokens, {long:.2f} behind {capacities[-1]:,}"
        )
    return Finding(
        "context: cost",
        ratio,
        words,
        "passes grow dearer with the context: profile at the lengths that are served (`treewise profile --help`) and "
        "use a policy that reads prices; a dearer pass is one more reason to guess, dearer rows are one against width",
        high=limits.context_cost,
    )


def _serial(name: str, what: str, grid: CostGrid, context_tokens: int, cure: str, limits: Limits) -> Finding:
    """A pass of `SERIAL_ROWS` rows over as many passes of one row: 1 where they run one behind another."""
    ratio = _ratio(grid, SERIAL_ROWS, context_tokens)
    figure = None if ratio is None else ratio / SERIAL_ROWS
    words = _words(grid, SERIAL_ROWS, context_tokens, what, ratio, of_as_many=True)
    return Finding(name, figure, words, cure, high=limits.serial)


def _ratio(grid: CostGrid, rows: int, context_tokens: int) -> float | None:
    """A pass of `rows` rows over one of one row; None where the grid says nothing of so many."""
    if grid.counts[-1] < rows:
        return None
    one, many = grid.at([1, rows], context_tokens).tolist()
    return many / one if one > 0.0 else None


def _words(
    grid: CostGrid, rows: int, context_tokens: int, what: str, ratio: float | None, of_as_many: bool = False
) -> str:
    if ratio is None:
        return f"the profile prices {what} of at most {grid.counts[-1]} rows; {rows} are needed"
    one, many = grid.at([1, rows], context_tokens).tolist()
    beside = f", of {rows} passes of one row {rows * one:.2f}" if of_as_many else f", of one row {one:.2f}"
    return f"{what} of {rows} rows takes {many:.2f} ms{beside}"
