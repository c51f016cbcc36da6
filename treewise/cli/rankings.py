"""`treewise rankings`: what ranking draft candidates with the public noise is worth above temperature 0."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from treewise.cli._options import (
    DEFAULT_CORPUS,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    AsJson,
    Corpus,
    Draft,
    Target,
    Threads,
    numbers_of,
    open_pair,
    prompts_from,
)
from treewise.cli._show import console, facts, note, print_json, progress

if TYPE_CHECKING:
    from treewise.ranking_table import Study

EXIT_DIFFERS = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("rankings")(rankings)


def rankings(
    prompts: Annotated[str, typer.Option("--prompts", help="A prompt file or folder, or own:SPLIT.")] = "own:judge",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many prompts; tasks take turns.")] = 10,
    temperatures: Annotated[str, typer.Option("--temperatures", help="Joined by commas.")] = "0,0.7,1",
    widths: Annotated[str, typer.Option("--widths", help="Children per node, joined by commas.")] = "1,2,3,4",
    depth: Annotated[int, typer.Option("--depth", min=1, help="Levels of the trees.")] = 4,
    min_path_prior: Annotated[
        float, typer.Option("--min-path-prior", help="Of the trees; the lower, the more the width alone decides.")
    ] = 0.02,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens per answer.")] = 32,
    live: Annotated[bool, typer.Option("--live/--replay-only", help="Decode every cell as well.")] = True,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Compare plain, coupled and both on static trees of draft candidates: by replay, live, and by the exact law.

    Above temperature 0 the target's token is its best score plus public noise. `plain` ranks the draft's candidates by
    probability, `coupled` by the draft's own scores plus that noise, `both` takes the union. Traces and texts are kept,
    so an interrupted run goes on. Exits with 1 where a live text differs from plain decoding with the same seed.
    """
    from treewise.ranking_study import study_rankings
    from treewise.ranking_table import StudySettings

    settings = StudySettings(
        temperatures=numbers_of("temperatures", temperatures, float),
        widths=numbers_of("widths", widths, int),
        depth=depth,
        min_path_prior=min_path_prior,
        max_new_tokens=max_new_tokens,
        is_live=live,
    )
    asked = prompts_from(prompts, limit=limit)
    pair = open_pair(target, draft, threads, corpus)
    study = study_rankings(pair, asked, settings, progress)
    if as_json:
        print_json(study.to_json())
    else:
        show(study)
    if not study.is_identical:
        raise typer.Exit(EXIT_DIFFERS)


def show(study: "Study") -> None:
    """Print the table."""
    import math

    out = console()
    tree = f"static trees of depth {study.settings.depth}, path prior at least {study.settings.min_path_prior:g}"
    out.print(facts({"pair": study.pair, "prompts": f"{study.prompts}, {study.settings.max_new_tokens} tokens each"}))
    table = Table(title=f"tokens per round by ranking; {tree}", caption=_CAPTION)
    is_live = study.settings.is_live
    for name in _COLUMNS if is_live else [name for name in _COLUMNS if name not in ("live", "same")]:
        table.add_column(name, justify="left" if name == "ranking" else "right")
    for cell in study.cells:
        table.add_row(
            f"{cell.temperature:g}",
            str(cell.width),
            cell.ranking,
            f"{cell.replayed.value:.2f}",
            "" if cell.ranking == "plain" else str(cell.over_plain),
            *([f"{cell.live:.2f}", f"{cell.identical}/{study.prompts}"] if is_live else []),
            f"{cell.nodes:.1f}",
            f"{cell.coverage:.3f}",
            f"{cell.law:.2f}",
            f"{cell.ceiling:.3f}",
        )
    out.print(table)
    warm = [cell for cell in study.cells if cell.temperature > 0.0 and cell.ranking == "both"]
    if 0.0 in study.settings.temperatures:
        for cell in warm:
            if math.isnan(study.kept(cell.temperature, "both", cell.width)):
                continue
            kept = study.kept(cell.temperature, "both", cell.width)
            plain = study.kept(cell.temperature, "plain", cell.width)
            note(
                f"temperature {cell.temperature:g}, width {cell.width}: both keeps {kept:.2f} of temperature 0's "
                f"accepted length, plain {plain:.2f}"
            )


_COLUMNS = ("T", "width", "ranking", "replayed", "over plain", "live", "same", "nodes", "covers", "law", "ceiling")
_CAPTION = (
    "replayed, live: tokens per round. same: live texts equal to plain decoding's with the same seed. covers: the law, "
    "P(the target's token is among the first candidates). law: tokens per round if every level had that. ceiling: the "
    "same share for the target's own first tokens, its noise unknown."
)
