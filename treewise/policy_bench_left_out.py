"""Calibration on tasks that training never saw: one policy a task, trained on the others and judged on that one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from treewise.policy_bench_material import Material, Workshop, training_cost
from treewise.policy_bench_plan import PolicyBenchSettings

if TYPE_CHECKING:
    from treewise.training.fit import NamedTrace
    from treewise.training.survival_check import SurvivalCheck


def left_out_survival(
    workshop: Workshop, material: Material, temperature: float, settings: PolicyBenchSettings
) -> SurvivalCheck:
    """Survival of judged prompts, each task by a policy that was trained on the training prompts of all other tasks.

    All sources exist. The tasks are pooled, so one bin of the calibration error holds nodes of several of them.
    """
    from treewise.training.contest import Contender
    from treewise.training.survival_check import compare_survival, stated_survival

    cost = training_cost(material.costs)
    judged = material.traces[temperature].judge.trace
    parts = []
    for task in sorted({request.task for request in judged.requests}):
        others = [part for part in (_without(pair.train, task) for pair in material.traces.values()) if part]
        bundle = workshop.bundle(material.draft, others, cost)
        parts.append(stated_survival(judged.of_task(task), cost, Contender.of(f"{settings.policy}:{bundle}")))
    return compare_survival(parts)


def _without(named: NamedTrace, task: str) -> NamedTrace | None:
    """The trace without one task; None where nothing is left."""
    kept = tuple(request for request in named.trace.requests if request.task != task)
    if not kept:
        return None
    return replace(named, trace=replace(named.trace, requests=kept), content_hash=f"{named.content_hash} but {task}")
