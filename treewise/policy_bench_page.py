"""The results page: the goals and every cell as Markdown, with the command and the date that made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treewise.policy_bench import PolicyBenchReport
from treewise.policy_bench_cell import CellResult, Judged, shown
from treewise.policy_bench_nodes import NodeCurve
from treewise.policy_bench_schedule import ScheduleResult

_MOVES = 6  # of the carried policies, the worst that are named
_LOSSES = 10


def results_page(report: PolicyBenchReport, command: str, date: str) -> str:
    """The whole page."""
    blocks = [
        "# Results of the policy benchmark",
        _opening(report, command, date),
        "## Goals",
        _table(("against", "goal", "figure", ""), [(g.against, g.goal, g.figure, g.words) for g in report.goals]),
        "## Cells",
        _CELLS,
    ]
    for subset in dict.fromkeys(part.subset for found in report.cells for part in found.judged):
        blocks += [f"### On {_SUBSETS.get(subset, subset)}", _overview(report.cells, subset)]
    for found in report.cells:
        blocks += [f"### {found.cell}", _opponents(found.judged[0])]
    if report.node_curves:
        blocks += ["## Verified nodes against accepted length", _NODES]
        blocks += [block for found in report.node_curves for block in (f"### {found.condition}", _nodes(found))]
        blocks += [_NODES_BY_PRICE, _nodes_by_price(report.cells)]
    if report.schedules:
        blocks += ["## Schedule of mixed deployments", _SCHEDULE]
        blocks += [block for found in report.schedules for block in (f"### {found.condition}", _schedule(found))]
    if report.carried:
        blocks += ["## Fixed policies in other cells than their own", _carried(report)]
    blocks += ["## Losses", _losses(report)]
    return "\n\n".join(blocks) + "\n"


_SUBSETS = {
    "all": "all judged prompts",
    "non-degenerate": "non-degenerate continuations (at most half of the 8-grams repeated)",
    "strict": "strict continuations (at most a tenth of the 8-grams repeated)",
}
_CELLS = (
    "Speeds are modelled: acceptance from exact replay on logged texts, milliseconds from the cost profile; all tokens "
    "over all milliseconds, 95 % intervals by a paired bootstrap over prompts. Every opponent is tuned on the training "
    "prompts of its cell. `over best`: the learned policy over the opponent that is fastest on the judged prompts, "
    "which is the hardest choice. The path oracle knows the text; the depth oracle grows the learned policy's own "
    "trees just as deep as was accepted."
)
_NODES = (
    "How well rows are ranked, whatever they cost in milliseconds: here every policy counts verified nodes alone and "
    "drafts as it likes. Top-N of each size takes the growths that give it the longest accepted length on the training "
    "prompts. Beside it stand the nodes that others verify on average at that accepted length, linear between "
    "neighbouring settings. `one price`: `learned:DIR,least=S`, which keeps what survives with more than S, so that "
    "sure rounds get few nodes and open ones many. `one limit`: `learned:DIR,nodes=N`, the same limit in every round, "
    "as top-N has it. `prior's threshold`: `cumulative:Px6`, which varies its nodes as the first does, by the sources' "
    "own probabilities. The goal is judged by the mean of `saved`: what one price saves of top-N's nodes."
)
_NODES_BY_PRICE = (
    "The older figure, at the one point where the learned policy stands in its cell: it weighs nodes against its "
    "cell's milliseconds, where a node costs next to nothing and a growth much, while the top-N settings that it is "
    "held against, all of those with every source, take growths without asking their price."
)
_SCHEDULE = (
    "Prompts of mixed tasks take the stages in turns. Fixed policies are tuned on the whole schedule; one that reads "
    "costs is bound to its stage's, as the learned one is. Each stage counts in units of its own plain token."
)


def _opening(report: PolicyBenchReport, command: str, date: str) -> str:
    from treewise.training.ab_report import ProfileOrigin

    lines = [
        f"Made on {date} by `{command}`: {report.prompts}; {report.tried:,} settings tuned over.",
        "",
        *(
            f"- draft {draft}: pair {pair}, one policy for all costs, {report.call_ms[draft]:.3f} ms a call"
            for draft, pair in report.pairs.items()
        ),
        *dict.fromkeys(f"- {ProfileOrigin.of(cost).words}" for cost in report.costs.values()),
    ]
    return "\n".join(lines)


def _overview(cells: Sequence[CellResult], subset: str) -> str:
    headings = (
        *("cell", "prompts", "speed-up", "tokens a round", "nodes a round", "depth oracle", "path oracle"),
        *("best fixed", "over best", "ECE"),
    )
    rows = []
    for found in cells:
        part = found.subset(subset)
        if part is None:
            continue
        error = "" if found.survival is None or not found.survival.nodes else f"{found.survival.ece:.3f}"
        rows.append(
            (
                str(found.cell),
                str(part.prompts),
                str(part.speedup),
                f"{part.tokens_per_round:.2f}",
                f"{part.nodes_per_round:.1f}",
                f"{part.depth_oracle:.3f}",
                f"{part.oracle:.3f}",
                f"{part.best.name}, {part.best.speedup.value:.3f}",
                str(part.best.ratio),
                error,
            )
        )
    return _table(headings, rows)


def _opponents(part: Judged) -> str:
    headings = ("opponent", "policy", "speed-up", "learned over it", "holding together (Holm)", "nodes a round")
    return _table(
        headings,
        [
            (
                one.name,
                f"`{shown(one.spec)}`",
                str(one.speedup),
                str(one.ratio),
                f"{one.joint.low:.3f} to {one.joint.high:.3f}",
                f"{one.nodes_per_round:.1f}",
            )
            for one in part.opponents
        ],
    )


def _nodes(found: NodeCurve) -> str:
    headings = (
        *("top-N", "accepted length", "its nodes", "its growths", "one price", "saved", "one limit"),
        "prior's threshold",
    )
    rows = []
    for point in found.points:
        others = [f"{nodes:.2f}" for nodes in (point.priced, point.limited, point.prior)]
        mine = (f"`{point.spec}`", f"{point.accepted:.3f}", f"{point.nodes:.2f}", f"{point.growths:.2f}")
        rows.append((*mine, others[0], str(point.saved), *others[1:]))
    mean = f"{found.prompts} prompts; mean over the sizes: one price saves {found.saved}, one limit {found.limited}."
    return f"{mean}\n\n" + _table(headings, rows)


def _nodes_by_price(cells: Sequence[CellResult]) -> str:
    rows = []
    for found in cells:
        saved = found.saved
        if saved is not None:
            figures = (f"{saved.accepted:.3f}", f"{saved.nodes:.2f}", f"{saved.topn_nodes:.2f}", f"{saved.share:.3f}")
            rows.append((str(found.cell), *figures))
    return _table(("cell", "accepted length", "learned, nodes", "top-N, nodes", "saved"), rows)


def _schedule(found: ScheduleResult) -> str:
    rows = [(row.name, f"`{shown(row.spec)}`", str(row.speedup), str(row.ratio)) for row in found.rows]
    lines = [
        f"Stages: {'; '.join(found.stages)}. {found.prompts} prompts; learned {found.speedup}.",
        "",
        _table(("opponent", "policy", "speed-up", "learned over it"), rows),
    ]
    return "\n".join(lines)


def _carried(report: PolicyBenchReport) -> str:
    worst = sorted(report.carried, key=lambda move: -move.ratio.value)[:_MOVES]
    rows = [(str(move.source), str(move.target), f"`{shown(move.spec)}`", str(move.ratio)) for move in worst]
    return f"The {len(worst)} moves that cost most, of {len(report.carried)}:\n\n" + _table(
        ("best in", "run in", "policy", "learned over it"), rows
    )


def _losses(report: PolicyBenchReport) -> str:
    lost = report.losses
    head = (
        f"{lost.comparisons} comparisons over cells, opponents and tasks; {len(lost.significant)} significantly below "
        f"{lost.least:g} (one-sided, Holm over all of them)."
    )
    if not lost.found:
        return head
    rows = [
        (str(loss.cell), loss.task or "all", loss.name, f"{loss.ratio:.3f}", f"{loss.p_value:.2g}")
        for loss in lost.found[:_LOSSES]
    ]
    return f"{head} The lowest ratios:\n\n" + _table(("cell", "task", "opponent", "ratio", "p"), rows)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
