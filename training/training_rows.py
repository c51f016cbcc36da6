"""The rows that a policy is trained on: weighted by where rounds open, of every set of sources that may be served.

Every position of a text gives rows, but rounds open only where the round before ended, and there guesses fail more
often. A model of all positions alike states too much at those roots, so the others count little. A bundle also serves
where some of the sources are missing; such rows look like none that the whole trace gives, so some are drawn with
sources left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.training.dataset import DatasetSettings
from treewise.training.dataset_batch import BatchDatasetBuilder, add_trace, open_builder
from treewise.training.logged_trace import LoggedTrace
from treewise.training.rows import Dataset
from treewise.training.visited_roots import visited_roots

SUBSETS = (FREE, DRAFT, LOOKUP)  # sources that are served without the others
SUBSET_STRIDE = 3  # every so many root positions once more for each of them


def build_training_rows(
    traces: Sequence[LoggedTrace],
    cost: CostProfile,
    envelope: Envelope | None,
    settings: DatasetSettings,
    step: Callable[[], None] = lambda: None,
) -> Dataset:
    """Rows of every trace; `step` is called after each request, once for each set of sources.

    Rows, positions and trees that are judged and counted are those of the whole traces. Raises as `build_dataset`.
    """
    builder = open_builder(traces, envelope, settings, BatchDatasetBuilder)
    for trace in traces:
        _add(builder, trace, cost, step)
    positions, uncovered, whole = builder.progress()
    builder.thin(SUBSET_STRIDE)
    for trace in traces:
        for part in source_subsets(trace):
            _add(builder, part, cost, step)
    return replace(builder.finish(), positions=positions, uncovered=uncovered, whole_rows=whole)


def source_subsets(trace: LoggedTrace) -> list[LoggedTrace]:
    """A dense trace as though some of its sources did not exist; a live one has none of these."""
    if trace.manifest.kind != "dense":
        return []
    kept = {trace.sources & subset for subset in SUBSETS} - {0, trace.sources}
    return [replace(trace, sources=sources) for sources in sorted(kept)]


def count_requests(traces: Sequence[LoggedTrace]) -> int:
    """How often `build_training_rows` steps."""
    return sum(len(trace.requests) * (1 + len(source_subsets(trace))) for trace in traces)


def _add(builder: BatchDatasetBuilder, trace: LoggedTrace, cost: CostProfile, step: Callable[[], None]) -> None:
    is_dense = trace.manifest.kind == "dense"
    builder.visited = visited_roots(trace, cost, builder.envelope) if is_dense else None
    add_trace(builder, trace, step)
