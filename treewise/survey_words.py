"""What is said about a survey's coverage, in the terminal and on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treewise.training.survey import Survey


def coverage(survey: Survey) -> list[str]:
    """What the figures rest on and leave out, one line each."""
    lines = []
    for envelope in dict.fromkeys(survey.envelopes):
        lines.append(
            f"held to the trace's envelope: depth up to {envelope.max_depth}, {envelope.draft_width} draft candidates "
            f"below a node, nodes of path prior {envelope.min_path_prior:g} or more; so wide and deep trees stay far "
            "below their full size"
        )
    by_reason: dict[str, list[str]] = {}
    for one in survey.uncovered:
        by_reason.setdefault(one.why.removeprefix(f"policy {one.policy} "), []).append(one.policy)
    lines += [f"not covered: {', '.join(policies)}, which {why}" for why, policies in by_reason.items()]
    if survey.grid.sources != "all":
        lines.append(f"chains, static trees and the entropy rule asked one choice of sources: {survey.grid.sources}")
    lines.append("the fastest chain and tree of a task were picked on the same prompts, which flatters them")
    return lines
