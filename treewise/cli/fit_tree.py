"""`treewise fit-tree`: a rank table from dense traces, and the offline trees that follow from it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, facts, figures_table, print_json, progress
from treewise.cli.ab import opened, origin_lines

if TYPE_CHECKING:
    from treewise.policy.rank_table import RankTable
    from treewise.training.logged_trace import LoggedTrace

SCHEMA_VERSION = 1
SHOWN_RANKS = 5  # in columns of their own


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("fit-tree")(fit_tree)


def fit_tree(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="TRACES...", help="Folders of dense traces of training prompts.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The rank table.", show_default=False)],
    costs: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            help="Also show the tree that this cost profile chooses: a file or a built-in name; may be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a table for `sequoia:FILE`: how often the first, second, .. child of a node was the target's token.

    From the table follows the best tree of any size and depth, by dynamic programming (Sequoia, arXiv 2402.12374).
    `sequoia:FILE` takes the size and depth that its cost profile makes fastest; `sequoia:FILE,nodes=16,depth=3` sets
    them, and `treewise tune --ranks FILE` finds them by replay.
    """
    from treewise.data.cost import CostProfile
    from treewise.data.whole_file import check_place, write_whole
    from treewise.policy.rank_table import sources_name
    from treewise.policy.sequoia import offline_tree
    from treewise.training.ab_report import ProfileOrigin
    from treewise.training.rank_table import choices_of, fit_rank_table

    check_place(out)
    profiles = [CostProfile.load(cost) for cost in costs or []]
    traces = opened(folders, "")
    origin = named_by_content(traces, folders)
    steps = len(choices_of(traces)) * sum(len(trace.requests) for trace in traces)
    with progress("replay of everything that the sources hold", steps) as advance:
        table = fit_rank_table(traces, advance, origin)
    write_whole(out, json.dumps(table.to_json()) + "\n")
    trees = []
    for profile in profiles:
        deployment = traces[0].deployment(profile)
        for sources in table.acceptance:
            found = offline_tree(table, sources, deployment)
            trees.append(
                {
                    "profile": profile.name,
                    "sources": sources_name(sources),
                    "nodes": found.tree.num_nodes,
                    "depth": int(found.tree.depth.max()),
                    "expected_tokens": round(found.tokens, 4),
                    "expected_speedup": round(found.tokens_per_ms * profile.plain_ms(found.capacity), 4),
                }
            )
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "out": str(out), "table": table.to_json(), "trees": trees})
        return
    _show(out, table, trees)
    if trees:
        words = [ProfileOrigin.of(profile).words for profile in profiles]
        for line in origin_lines(tuple(trace.origin for trace in traces), words):
            console().print(line, soft_wrap=True)


def named_by_content(traces: "Sequence[LoggedTrace]", folders: Sequence[Path]) -> tuple[str, ...]:
    """Each trace's name and content hash, by which a table tells later what it was fitted on.

    Raises as `check_distinct` does.
    """
    from treewise.data.trace_reader import TraceReader
    from treewise.training.logged_trace import check_distinct

    check_distinct(traces)
    return tuple(
        f"{trace.name} {TraceReader(folder).content_hash()}" for trace, folder in zip(traces, folders, strict=True)
    )


def _show(out: Path, table: "RankTable", trees: list[dict[str, Any]]) -> None:
    from treewise.policy.rank_table import sources_name

    screen = console()
    screen.print(facts({"table": str(out), "fitted on": f"{table.prompts:,} prompts of {', '.join(table.origin)}"}))
    headings = [*(f"{rank + 1}." for rank in range(SHOWN_RANKS)), "later", "positions"]
    shown = figures_table("share of positions whose token was the child of each rank", "sources", tuple(headings))
    for sources, by_rank in table.acceptance.items():
        ranks = [*by_rank, *[0.0] * SHOWN_RANKS]
        shares = [*ranks[:SHOWN_RANKS], sum(ranks[SHOWN_RANKS:])]
        shown.add_row(sources_name(sources), *(f"{share:.3f}" for share in shares), f"{table.positions[sources]:,}")
    screen.print(shown)
    if trees:
        chosen = figures_table(
            "tree that each profile chooses, as the table expects it", "profile",
            ("sources", "nodes", "depth", "tokens\na round", "speed-up"),
        )  # fmt: skip
        for row in trees:
            figures = (f"{row['expected_tokens']:.2f}", f"{row['expected_speedup']:.2f}")
            chosen.add_row(Text(row["profile"]), row["sources"], str(row["nodes"]), str(row["depth"]), *figures)
        screen.print(chosen)
    screen.print(Text(f"sequoia:{out}"), soft_wrap=True)
