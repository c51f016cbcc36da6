"""The rows of `dataset.py` from dense traces, a batch of root positions at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

import numpy as np

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError, ParameterError
from treewise.data.noise import MASK
from treewise.data.noise import START as KEY_STEP
from treewise.policy.draft_ranking import is_proposed
from treewise.policy.everything import EverythingPolicy
from treewise.policy.features import node_features
from treewise.policy.hook import DRAFT, FREE, Float32Array, Int32Array, Nodes, RoundContext, TreePolicy
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundTree
from treewise.training.batch_free import BatchBuilder
from treewise.training.dataset import DatasetBuilder, DatasetSettings, Step, choose_envelope
from treewise.training.logged import LoggedRequest
from treewise.training.logged_batch import BatchDraft
from treewise.training.logged_columns import LoggedColumns
from treewise.training.logged_trace import LoggedTrace
from treewise.training.path_view import IndexArray, Int64Array, PathView, Roots
from treewise.training.rows import Dataset
from treewise.training.visited_roots import VisitedRoots

UNVISITED_WEIGHT = 0.2  # of a root position that no round opens at, beside 1 of one where a round does
BATCH_POSITIONS = 2048
MOST_TREES = 4000  # whole trees for judging survival, about
AnyBuilder = TypeVar("AnyBuilder", bound="BatchDatasetBuilder")


@dataclass(frozen=True, slots=True)
class Positions:
    """Root positions of requests of one shard, as their views see them."""

    context: RoundContext  # [positions]
    rows: Int64Array  # [positions] in the table of rounds
    prompt: Int32Array  # [positions] index into the data set's prompts
    weight: Float32Array  # [positions]
    roots: Roots

    def take(self, chosen: IndexArray) -> Positions:
        """The positions `chosen`."""
        return Positions(
            _contexts([self.context], chosen),
            self.rows[chosen],
            self.prompt[chosen],
            self.weight[chosen],
            self.roots.take(chosen),
        )

    def halves(self) -> list[Positions]:
        """The first and the second half; nothing where there is only one position."""
        places = np.arange(len(self.rows))
        return [self.take(part) for part in np.array_split(places, 2)] if len(places) > 1 else []


class _Position(NamedTuple):
    """One of them."""

    context: RoundContext
    row: int
    prompt: int
    weight: float
    left: int  # tokens of the text behind it
    key: int


def _contexts(parts: Sequence[RoundContext], chosen: IndexArray | slice = slice(None)) -> RoundContext:
    """Of the requests `chosen` among those of `parts`; each was logged alone."""
    names = [item.name for item in fields(RoundContext) if item.name != "batch_size"]
    return RoundContext(
        **{name: np.concatenate([getattr(part, name) for part in parts])[chosen] for name in names}, batch_size=1
    )


def _joined(parts: Sequence[_Position], columns: LoggedColumns) -> Positions:
    contexts, rows, prompts, weights, left, keys = zip(*parts, strict=True)
    row = np.asarray(rows, dtype=np.int64)
    rounds = columns.shard.rounds
    roots = Roots(
        rounds.committed,
        rounds.committed_offsets[row],
        np.asarray(left, dtype=np.int64),
        np.asarray(keys, dtype=np.uint32),
    )
    prompt, weight = np.asarray(prompts, dtype=np.int32), np.asarray(weights, dtype=np.float32)
    return Positions(_contexts(contexts), row, prompt, weight, roots)


class BatchDatasetBuilder(DatasetBuilder):
    """A `DatasetBuilder` that takes dense requests of one shard together.

    Where `visited` says which roots of the trace at hand rounds open at, the others count `UNVISITED_WEIGHT`.
    """

    visited: VisitedRoots | None = None

    def __init__(self, envelope: Envelope, prior_table: PriorTable, settings: DatasetSettings) -> None:
        super().__init__(envelope, prior_table, settings)
        self._path_views = [PathView(view, settings.seed) for view in settings.views]
        self._whole = EverythingPolicy()
        self._takes_trees = True

    def progress(self) -> tuple[int, int, int]:
        """(root positions, views that were left out, match rows) so far."""
        rows = sum(len(part) for part in self._match.parts.get("label", []))
        return self._positions, self._uncovered, rows

    def thin(self, factor: int) -> None:
        """From here on `factor` times the stride, and no whole trees."""
        self.settings = replace(self.settings, stride=factor * self.settings.stride)
        self._takes_trees = False

    def add_dense_all(self, requests: Sequence[LoggedRequest], sources: int, step: Step = lambda: None) -> None:
        """As `add_dense` on each of `requests`, which are of one shard; `step` is called after each."""
        ranking, columns = requests[0].ranking, requests[0].columns
        builder = BatchBuilder(self.envelope, self.prior_table, ranking, columns, sources)
        waiting: list[_Position] = []
        for request in requests:
            waiting += self._positions_of(request)
            if len(waiting) >= BATCH_POSITIONS:
                self._add_batch(builder, _joined(waiting, columns), sources)
                waiting.clear()
            step()
        if waiting:
            self._add_batch(builder, _joined(waiting, columns), sources)

    def _positions_of(self, request: LoggedRequest) -> Iterator[_Position]:
        """Every `stride`-th root position of the request that a round could start from."""
        prompt = self._prompt(request.prompt_id, request.task)
        progress = Progress(request.index, request.prompt_tokens, request.max_new_tokens, request.temperature)
        opened = None if self.visited is None else self.visited[request.prompt_id, request.seed]
        key = zlib.crc32(f"{request.prompt_id} {request.seed} {request.temperature}".encode())
        for place, position in enumerate(sorted(request.rows)):
            self._catch_up(request, progress, position)
            if place % self.settings.stride == 0 and progress.remaining_tokens > 1:
                left = request.end_position - position - 1
                weight = 1.0 if opened is None or position in opened else UNVISITED_WEIGHT
                row, number = request.rows[position], key + position * KEY_STEP & MASK
                yield _Position(build_context([progress]), row, prompt, weight, left, number)

    def _add_batch(self, builder: BatchBuilder, batch: Positions, sources: int) -> None:
        """Every view of each position of `batch`, and whole trees of some."""
        numbers = self._positions + np.arange(len(batch.rows))
        self._positions += len(batch.rows)
        has_choice = bool(sources & DRAFT) and bool(sources & FREE)
        for view in self._path_views if has_choice else self._path_views[:1]:
            self._add_views(builder, batch, view, sources)
        judged = np.flatnonzero(numbers % self.settings.tree_stride == 0)
        if judged.size and self._takes_trees:
            self._add_trees(builder, batch.take(judged), sources)

    def _build(self, builder: BatchBuilder, batch: Positions, policy: TreePolicy, sources: int) -> RoundTree:
        columns = builder.places.columns
        builder.places.open(columns.root_place[batch.rows])
        if isinstance(policy, PathView):
            policy.open(batch.roots, builder.places)
        draft = BatchDraft(builder.places, batch.context.catch_up) if sources & DRAFT else None
        return builder.build(policy, batch.context, columns.root_token[batch.rows], [None] * len(batch.rows), draft)

    def _add_views(self, builder: BatchBuilder, batch: Positions, view: PathView, sources: int) -> None:
        """One view of each position of `batch`."""
        try:
            tree = self._build(builder, batch, view, sources)
        except CoverageError:
            # Sources asked in another order than the log's can reach nodes that the log left out: priors rise late.
            halves = batch.halves()
            self._uncovered += not halves
            for half in halves:
                self._add_views(builder, half, view, sources)
            return
        nodes = tree.forest.view()
        weight = batch.weight[nodes.request] / np.float32(len(self._path_views))
        below = view.truth[nodes.parent]  # of a root: the last row's, and not used
        match = np.where((nodes.parent >= 0) & (below >= 0), nodes.token == below, -1).astype(np.int8)
        rows = np.flatnonzero(match >= 0).astype(np.int32)
        self._add_match(nodes, rows, match, batch.context, batch.prompt[nodes.request[rows]], weight[rows])
        if sources & DRAFT:
            self._add_growths(builder.places.columns, batch, builder, nodes, view, weight)

    def _add_growths(
        self,
        columns: LoggedColumns,
        batch: Positions,
        builder: BatchBuilder,
        nodes: Nodes,
        view: PathView,
        weight: Float32Array,  # [forest rows]
    ) -> None:
        table, ranking = columns.shard.nodes, columns.ranking
        offered_free = np.zeros(len(nodes.parent), dtype=np.bool_)  # [rows] a free source brought the next token
        path = np.flatnonzero(view.on_path & (nodes.parent >= 0))
        offered_free[nodes.parent[path]] = (nodes.sources[path] & FREE) > 0
        for rows, x in view.seen:
            places, truth = builder.places.of(rows), view.truth[rows]
            child = columns.children(places, truth)
            ranks = np.where(child >= 0, table.draft_rank[child], np.float32(np.nan))
            drawn = np.where(child >= 0, table.draft_drawn_rank[child], np.float32(np.nan))
            label = is_proposed(ranking, self.envelope.draft_width, ranks, drawn) & ~offered_free[rows]
            known = np.flatnonzero((truth >= 0) & columns.drafted.ran[places])
            self._growth.add(
                x=x[known],
                label=label[known].astype(np.int8),
                weight=weight[rows[known]],
                prompt=batch.prompt[nodes.request[rows[known]]],
            )

    def _add_trees(self, builder: BatchBuilder, chosen: Positions, sources: int) -> None:
        """Whole trees of the positions `chosen`, for judging survival."""
        try:
            tree = self._build(builder, chosen, self._whole, sources)
        except CoverageError:
            for half in chosen.halves():
                self._add_trees(builder, half, sources)
            return
        nodes = tree.forest.view()
        count = len(chosen.rows)
        view = PathView("everything", 0)
        view.open(chosen.roots, builder.places)
        view.follow(nodes, 0)
        rows = np.arange(count, len(nodes.parent), dtype=np.int32)
        if rows.size:
            parent = nodes.parent[rows] - count
            self._trees.add(
                x=node_features(nodes, rows, chosen.context),
                parent=np.where(parent >= 0, parent + self._tree_rows, -1),
                path_prior=nodes.path_prior[rows].copy(),
                survives=view.on_path[rows].astype(np.int8),
                prompt=chosen.prompt[nodes.request[rows]],
            )
            self._tree_rows += len(rows)


def build_dataset_batched(
    traces: Sequence[LoggedTrace],
    envelope: Envelope | None = None,
    settings: DatasetSettings | None = None,
    step: Step = lambda: None,
) -> Dataset:
    """As `build_dataset`, for which it stands in: the same rows in another order, the random view by other draws.

    A trace on disk is read group by group; what stays in memory are the rows, float32, which training needs all at
    once: see `DatasetSettings.max_positions`.
    """
    return fill_batched(traces, envelope, settings or DatasetSettings(), step, BatchDatasetBuilder).finish()


def fill_batched(
    traces: Sequence[LoggedTrace],
    envelope: Envelope | None,
    settings: DatasetSettings,
    step: Step,
    kind: type[AnyBuilder],
) -> AnyBuilder:
    """A builder of `kind` that holds the rows of every trace. Raises as `build_dataset`."""
    builder = open_builder(traces, envelope, settings, kind)
    for trace in traces:
        add_trace(builder, trace, step)
    return builder


def open_builder(
    traces: Sequence[LoggedTrace], envelope: Envelope | None, settings: DatasetSettings, kind: type[AnyBuilder]
) -> AnyBuilder:
    """An empty builder of `kind` whose strides keep the rows of `traces` within bounds. Raises as `build_dataset`."""
    if not traces:
        raise ParameterError("traces must be at least one, got none")
    chosen = choose_envelope(traces, envelope)
    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    positions = sum(entry.num_rounds for trace in dense for entry in trace.entries)
    stride = max(settings.stride, -(-positions // settings.max_positions))
    tree_stride = max(settings.tree_stride, positions // stride // MOST_TREES)
    settings = replace(settings, stride=stride, tree_stride=tree_stride)
    return kind(chosen, traces[0].manifest.prior_table, settings)


def add_trace(builder: BatchDatasetBuilder, trace: LoggedTrace, step: Step) -> None:
    """Add the rows of `trace`; `step` is called after each request."""
    if trace.manifest.kind == "dense":
        for group in trace.groups():
            if group.requests:
                builder.add_dense_all(list(group.requests), trace.sources, step)
        return
    for request in trace.requests:
        builder.add_live(request)
        step()
