"""The policy benchmark's results as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from treewise.policy_bench import PolicyBenchReport
from treewise.policy_bench_cell import CellResult, Judged, shown
from treewise.policy_bench_nodes import NodeCurve
from treewise.policy_bench_plan import Cell

SCHEMA_VERSION = 1
LOSSES_SHOWN = 40


def report_json(report: PolicyBenchReport) -> dict[str, Any]:
    """A JSON-ready mapping that fits `treewise/schemas/bench_policy.json`."""
    from treewise.training.ab_report import ProfileOrigin, interval_json

    settings = report.settings
    return {
        "schema_version": SCHEMA_VERSION,
        "prompts": report.prompts,
        "quick": settings.is_quick,
        "settings": {
            "drafts": list(settings.drafts),
            "temperatures": list(settings.temperatures),
            "sources": list(settings.sources),
            "train_prompts": settings.train_prompts,
            "test_prompts": settings.test_prompts,
            "policy": settings.policy,
            "max_new_tokens": settings.max_new_tokens,
            "resamples": settings.resamples,
        },
        "pairs": report.pairs,
        "bundles": report.bundles,
        "call_ms": report.call_ms,
        "costs": {name: ProfileOrigin.of(cost).to_json() for name, cost in report.costs.items()},
        "tried": report.tried,
        "cells": [_cell_json(found) for found in report.cells],
        "node_curves": [_nodes_json(found) for found in report.node_curves],
        "carried": [
            {
                "source": _place(move.source),
                "target": _place(move.target),
                "policy": shown(move.spec),
                "ratio": interval_json(move.ratio),
            }
            for move in report.carried
        ],
        "schedules": [
            {
                "draft": found.condition.draft,
                "temperature": found.condition.temperature,
                "stages": list(found.stages),
                "prompts": found.prompts,
                "speedup": interval_json(found.speedup),
                "opponents": [
                    {
                        "name": row.name,
                        "policy": shown(row.spec),
                        "speedup": interval_json(row.speedup),
                        "ratio": interval_json(row.ratio),
                        "joint": interval_json(row.joint),
                    }
                    for row in found.rows
                ],
            }
            for found in report.schedules
        ],
        "losses": {
            "least": report.losses.least,
            "comparisons": report.losses.comparisons,
            "significant": len(report.losses.significant),
            "lowest": [
                {
                    "cell": _place(loss.cell),
                    "task": loss.task,
                    "opponent": loss.name,
                    "ratio": round(loss.ratio, 6),
                    "p_value": round(loss.p_value, 6),
                }
                for loss in report.losses.found[:LOSSES_SHOWN]
            ],
        },
        "left_out": {condition: _finite(asdict(check)) for condition, check in report.left_out.items()},
        "goals": [{**asdict(goal), "words": goal.words} for goal in report.goals],
        "home": report.home,
    }


def _place(cell: Cell) -> dict[str, Any]:
    return {
        "draft": cell.condition.draft,
        "temperature": cell.condition.temperature,
        "sources": cell.sources,
        "cost": cell.cost,
    }


def _cell_json(found: CellResult) -> dict[str, Any]:
    saved = found.saved
    return {
        **_place(found.cell),
        "tuned": {name: shown(spec) for name, spec in found.tuned.items()},
        "survival": None if found.survival is None else _finite(asdict(found.survival)),
        "topn_at_equal_length": None if saved is None else _finite({**asdict(saved), "share": saved.share}),
        "subsets": [_judged_json(part) for part in found.judged],
    }


def _nodes_json(found: NodeCurve) -> dict[str, Any]:
    from treewise.training.ab_report import interval_json

    return {
        "draft": found.condition.draft,
        "temperature": found.condition.temperature,
        "prompts": found.prompts,
        "saved": interval_json(found.saved),
        "limited": interval_json(found.limited),
        "points": [
            {
                "size": point.size,
                "policy": shown(point.spec),
                **_finite(
                    {
                        name: round(getattr(point, name), 6)
                        for name in ("accepted", "nodes", "growths", "priced", "limited", "prior")
                    }
                ),
                "saved": interval_json(point.saved),
            }
            for point in found.points
        ],
    }


def _judged_json(part: Judged) -> dict[str, Any]:
    from treewise.training.ab_report import interval_json

    return {
        "subset": part.subset,
        "prompts": part.prompts,
        "speedup": interval_json(part.speedup),
        "tokens_per_round": round(part.tokens_per_round, 6),
        "nodes_per_round": round(part.nodes_per_round, 6),
        "growths_per_round": round(part.growths_per_round, 6),
        "oracle": round(part.oracle, 6),
        "depth_oracle": round(part.depth_oracle, 6),
        "gap_to_oracle": round(part.oracle / part.speedup.value, 6),
        "best": part.best.name,
        "tuned_best": part.tuned_best,
        "opponents": [
            {
                "name": one.name,
                "policy": shown(one.spec),
                "speedup": interval_json(one.speedup),
                "ratio": interval_json(one.ratio),
                "joint": interval_json(one.joint),
                "p_value": None if math.isnan(one.p_value) else round(one.p_value, 6),
                "tokens_per_round": round(one.tokens_per_round, 6),
                "nodes_per_round": round(one.nodes_per_round, 6),
            }
            for one in part.opponents
        ],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
