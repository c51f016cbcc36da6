"""Training rows from traces: what policies would have seen at every logged root, and what the text then said.

A dense trace is replayed through the round builder by view policies at every root position, so features come from the
arrays that a live policy sees. A live trace of pruned trees gives the candidates that it offered. Candidates whose
parent is not on the committed path have no label and give no row: censored, not negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import CoverageError, ParameterError, TraceError, require
from treewise.policy.draft_ranking import RANKINGS
from treewise.policy.features import FEATURES, GROWTH_FEATURES, node_features
from treewise.policy.hook import DRAFT, FREE, LOOKUP, RECYCLED, Float32Array, Int8Array, Int32Array, Nodes, RoundContext
from treewise.policy.outcome import Walk, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree
from treewise.training.live_rows import live_rounds
from treewise.training.logged import LoggedRequest
from treewise.training.logged_sources import LoggedDraft, LoggedLookup, LoggedRecycled
from treewise.training.logged_trace import LoggedTrace
from treewise.training.logged_tree import LoggedTree
from treewise.training.rows import BOTH, DRAFT_ONLY, FREE_ONLY, Dataset, GrowthRows, MatchRows, Pile, TreeRows
from treewise.training.views import VIEWS, View, ViewPolicy

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """Which rows are drawn.

    Where a trace holds no draft or no free source, only the first view is drawn: the others say much the same.
    """

    views: tuple[View, ...] = VIEWS
    stride: int = 1  # every stride-th root position of each request, at least
    max_positions: int = 6000  # root positions of all dense traces together, about; held by a larger stride
    tree_stride: int = 4  # of those, every tree_stride-th gives its whole tree for judging survival
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.views) and set(self.views) <= set(VIEWS), "views", f"some of {', '.join(VIEWS)}", self.views)
        require(self.stride >= 1, "stride", ">= 1", self.stride)
        require(self.max_positions >= 1, "max_positions", ">= 1", self.max_positions)
        require(self.tree_stride >= 1, "tree_stride", ">= 1", self.tree_stride)


def choose_envelope(traces: Sequence[LoggedTrace], wanted: Envelope | None) -> Envelope:
    """`wanted`, else the first dense trace's own envelope, else the first trace's.

    Raises `CoverageError` where a dense trace is narrower.
    """
    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    chosen = wanted or (dense or list(traces))[0].envelope
    for trace in dense:
        if gaps := trace.manifest.envelope.covers(chosen):
            raise CoverageError(f"trace {trace.name} is narrower than the envelope asked for: {', '.join(gaps)}")
    return chosen


class DatasetBuilder:
    """Collects rows request by request."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, settings: DatasetSettings) -> None:
        self.envelope = envelope
        self.prior_table = prior_table
        self.settings = settings
        self._draw = np.random.default_rng(settings.seed)
        self._builders = {name: RoundBuilder(envelope, prior_table, ranking=name) for name in RANKINGS}
        self._views = [ViewPolicy(view, envelope, self._draw) for view in settings.views]
        self._prompts: dict[str, int] = {}
        self._tasks: list[str] = []
        self._match, self._growth, self._trees = Pile(), Pile(), Pile()
        self._tree_rows = 0
        self._positions = 0
        self._uncovered = 0

    def add_dense(self, request: LoggedRequest, sources: int) -> None:
        """Every view of every root position of one request of a dense trace."""
        prompt = self._prompt(request.prompt_id, request.task)
        progress = Progress(request.index, request.prompt_tokens, request.max_new_tokens, request.temperature)
        for place, position in enumerate(sorted(request.rows)):
            self._catch_up(request, progress, position)
            if place % self.settings.stride == 0 and progress.remaining_tokens > 1:
                context = build_context([progress])
                tree = request.tree(position)
                for view in self._views if sources & DRAFT and sources & FREE else self._views[:1]:
                    self._add_view(request, tree, position, context, view, prompt, sources)
                self._positions += 1
        request.release()

    def add_live(self, request: LoggedRequest) -> None:
        """Every round of one request of a live trace: the candidates it offered whose match is known."""
        prompt = self._prompt(request.prompt_id, request.task)
        for part in live_rounds(request, self.prior_table):
            rows = np.flatnonzero(part.match >= 0).astype(np.int32)
            self._add_match(part.nodes, rows, part.match, part.context, prompt, 1.0)
            self._positions += 1

    def finish(self) -> Dataset:
        """The rows so far. Raises `TraceError` where there are none."""
        if not self._positions or not self._match.parts:
            raise TraceError("traces must hold at least one round with candidates whose match is known, got none")
        return Dataset(
            prompts=tuple(self._prompts),
            tasks=tuple(self._tasks),
            match=self._match.join(MatchRows, len(FEATURES)),
            growth=self._growth.join(GrowthRows, len(GROWTH_FEATURES)),
            trees=self._trees.join(TreeRows, len(FEATURES)),
            envelope=self.envelope,
            prior_table=self.prior_table,
            positions=self._positions,
            uncovered=self._uncovered,
        )

    def _prompt(self, prompt_id: str, task: str) -> int:
        if prompt_id not in self._prompts:
            self._prompts[prompt_id] = len(self._tasks)
            self._tasks.append(task)
        return self._prompts[prompt_id]

    def _catch_up(self, request: LoggedRequest, progress: Progress, position: int) -> None:
        """Move to `position` as a policy would that drafts at every root, one token a round."""
        while progress.position < position:
            at = progress.position
            entropy, margin = request.target_state(at + 1)
            progress.advance(
                accepted_length=0,
                committed_tokens=1,
                drafted_path=1,
                draft_agrees=request.draft_agreement(at, at + 1),
                lookup_agrees=request.lookup_agreement(at, at + 1),
                target_entropy=entropy,
                target_margin=margin,
            )

    def _add_view(
        self,
        request: LoggedRequest,
        logged: LoggedTree,
        position: int,
        context: RoundContext,
        view: ViewPolicy,
        prompt: int,
        sources: int,
    ) -> None:
        draft = LoggedDraft(logged, request.draft_width, request.ranking) if sources & DRAFT else None
        lookup = LoggedLookup(logged) if sources & LOOKUP else None
        recycled = LoggedRecycled(logged) if sources & RECYCLED else None
        root = np.asarray([logged.root_token], dtype=np.int32)
        try:
            tree = self._builders[request.ranking].build(view, context, root, [lookup], draft, [recycled])
        except CoverageError:
            # Sources asked in another order than the log's can reach nodes that the log left out: priors rise late.
            self._uncovered += 1
            return
        nodes = tree.forest.view()

        def next_token(_: int, row: int) -> int:
            return request.token_after(logged, position, int(nodes.depth[row]), int(nodes.token[row]))

        result = walk(tree, 1, next_token)
        rows = np.flatnonzero(result.match >= 0).astype(np.int32)
        weight = 1.0 / len(self._views)
        self._add_match(nodes, rows, result.match, context, prompt, weight)
        if sources & DRAFT:
            self._add_growth(request, logged, nodes, result, view, next_token, prompt, weight)
        if view is self._views[0] and self._positions % self.settings.tree_stride == 0:
            self._add_tree(tree, result, context, prompt)

    def _add_match(
        self,
        nodes: Nodes,
        rows: Int32Array,
        match: Int8Array,
        context: RoundContext,
        prompt: int | Int32Array,
        weight: float | Float32Array,
    ) -> None:
        """Forest `rows` whose `match` [forest rows] is known; `prompt` and `weight` are all rows' or each one's."""
        if not rows.size:
            return
        scored = ~np.isnan(nodes.draft_entropy[rows])
        proposed = (nodes.sources[rows] & FREE) > 0
        self._match.add(
            x=node_features(nodes, rows, context),
            label=match[rows],
            weight=np.full(len(rows), weight, dtype=np.float32),
            prompt=np.full(len(rows), prompt, dtype=np.int32),
            prior=nodes.prior[rows].copy(),
            kind=np.where(proposed, np.where(scored, BOTH, FREE_ONLY), DRAFT_ONLY),
        )

    def _add_growth(
        self,
        request: LoggedRequest,
        logged: LoggedTree,
        nodes: Nodes,
        result: Walk,
        view: ViewPolicy,
        next_token: Callable[[int, int], int],
        prompt: int,
        weight: float,
    ) -> None:
        for rows, x in view.seen:
            for place in np.flatnonzero(result.on_path[rows]).tolist():
                row = int(rows[place])
                label = self._growth_label(request.ranking, logged, nodes, row, next_token(0, row))
                if label >= 0:
                    self._growth.add(
                        x=x[place : place + 1],
                        label=np.asarray([label]),
                        weight=np.asarray([weight]),
                        prompt=np.asarray([prompt]),
                    )

    def _growth_label(self, ranking: str, logged: LoggedTree, nodes: Nodes, row: int, truth: int) -> int:
        """Whether a draft growth at path row `row` offers `truth` that no free source did; -1 where nobody knows."""
        path: list[int] = []
        at = row
        while nodes.parent[at] >= 0:
            path.append(int(nodes.token[at]))
            at = int(nodes.parent[at])
        node = logged.follow(path[::-1])
        if truth < 0 or not logged.is_drafted(node):
            return -1
        child = np.flatnonzero((nodes.parent == row) & (nodes.token == truth))
        if child.size and nodes.sources[child[0]] & FREE:
            return 0
        if truth not in logged.children[node]:
            return 0
        return int(logged.is_proposed(node, truth, ranking, self.envelope.draft_width))

    def _add_tree(self, tree: RoundTree, result: Walk, context: RoundContext, prompt: int) -> None:
        nodes = tree.forest.view()
        rows = np.arange(1, len(nodes.parent), dtype=np.int32)
        if not rows.size:
            return
        survives = result.on_path | (result.match == 1)
        parent = nodes.parent[rows] - 1
        self._trees.add(
            x=node_features(nodes, rows, context),
            parent=np.where(parent >= 0, parent + self._tree_rows, -1),
            path_prior=nodes.path_prior[rows].copy(),
            survives=survives[rows].astype(np.int8),
            prompt=np.full(len(rows), prompt, dtype=np.int32),
        )
        self._tree_rows += len(rows)


def build_dataset(
    traces: Sequence[LoggedTrace],
    envelope: Envelope | None = None,
    settings: DatasetSettings | None = None,
    step: Step = lambda: None,
) -> Dataset:
    """Rows of every trace; `step` is called after each request. The prior table is the first trace's.

    Raises `ParameterError` on no traces, `CoverageError` where a dense trace is narrower than the envelope, and
    `TraceError` where the traces give no rows.
    """
    if not traces:
        raise ParameterError("traces must be at least one, got none")
    chosen = choose_envelope(traces, envelope)
    settings = settings or DatasetSettings()
    dense = [trace for trace in traces if trace.manifest.kind == "dense"]
    positions = sum(entry.num_rounds for trace in dense for entry in trace.entries)
    stride = max(settings.stride, -(-positions // settings.max_positions))
    builder = DatasetBuilder(chosen, traces[0].manifest.prior_table, replace(settings, stride=stride))
    for trace in traces:
        for request in trace.requests:
            if trace.manifest.kind == "live":
                builder.add_live(request)
            else:
                builder.add_dense(request, trace.sources)
            step()
    return builder.finish()
