"""`treewise survey`: how much is accepted, by task and by the shape of the tree."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from treewise.cli._options import (
    DEFAULT_CORPUS,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    AsJson,
    Corpus,
    Cost,
    Draft,
    MaxNewTokens,
    Seed,
    Target,
    Temperature,
    Threads,
    left_out_with_trace,
    open_pair,
    prompts_from,
)
from treewise.cli._show import console, facts, note, print_json, progress, warn
from treewise.cli._survey_tables import survey_notes, survey_tables
from treewise.cli.ab import counting
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.policy.rule import Sources
    from treewise.survey_material import SurveyMaterial
    from treewise.training.survey import Survey
    from treewise.training.survey_grid import SurveyGrid

OWN_JUDGE = "own:judge"
SETTLED = ("target", "draft", "corpus", "threads", "max_new_tokens", "temperature", "seed")  # by a trace


class Heat(StrEnum):
    """Figures that a heat map can show."""

    accepted = "accepted"
    speedup = "speedup"
    on_path = "on_path"
    calls_saved = "calls_saved"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("survey")(survey)


def survey(
    context: typer.Context,
    prompts: Annotated[
        str,
        typer.Option(
            "--prompts", help="A prompt file or folder, or own:SPLIT.", show_default="own:judge, the judging prompts"
        ),
    ] = "",
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="DIR",
            help="Instead of prompts and a pair, a dense trace that is there; may be repeated.",
            show_default=False,
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Also this policy, such as learned:DIR; may be repeated.", show_default=False),
    ] = None,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    cost: Cost = "",
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this kind of task; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many prompts; 0: all.")] = 0,
    max_new_tokens: MaxNewTokens = 96,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    widths: Annotated[str, typer.Option("--widths", help="Of static trees: 2-5 or 2,4.")] = "2-5",
    depths: Annotated[str, typer.Option("--depths", help="Of chains and static trees: 3-8 or 3,5,8.")] = "3-8",
    sources: Annotated[
        str, typer.Option("--sources", help="What chains, static trees and the entropy rule ask: all, draft, free, ...")
    ] = "all",
    heat: Annotated[Heat, typer.Option("--heat", help="Figure of the heat maps.")] = Heat.accepted,
    resamples: Annotated[int, typer.Option("--resamples", min=2000, help="Resamples of the bootstrap.")] = 2000,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page with charts and heat maps.", show_default=False),
    ] = None,
) -> None:
    """Map a pair: what is accepted by task, for chains, static trees by width and depth, and the entropy rule.

    Acceptance comes from exact replay on a dense trace of the prompts, which is collected once and kept, milliseconds
    from a cost profile. With --trace no model is needed; the cost profile is then example-a100-70b unless --cost names
    another. Intervals are 95 % intervals by prompt.
    """
    from treewise.data.whole_file import check_place
    from treewise.html_svg import check_matplotlib
    from treewise.survey_material import EXAMPLE, SurveyMaterial
    from treewise.survey_page import write_survey_page
    from treewise.training.survey import surveyed

    if traces and prompts:
        raise ParameterError(f"survey must be of --prompts or of --trace, got both {prompts!r} and '{traces[0]}'")
    if traces:
        left_out_with_trace(context, SETTLED)
    grid = grid_of(widths, depths, sources)
    contenders = surveyed(grid, policies or [])
    if html is not None:
        check_place(html, "html")
        check_matplotlib()
    if traces:
        if not cost:
            note(f"milliseconds from {EXAMPLE}, an example that nobody here measured; --cost names another profile")
        material = SurveyMaterial.of_traces(traces, cost, task or (), limit)
    else:
        asked = prompts_from(prompts or OWN_JUDGE, task or (), limit)
        pair = open_pair(target, draft, threads, corpus)
        conditions = (max_new_tokens, temperature, seed)
        material = _collected(pair, asked, grid, policies or [], conditions, cost, Path(prompts or OWN_JUDGE).name)
    with counting("replay", list(material.traces), len(contenders)) as advance:
        found = material.survey(policies or [], grid, resamples, advance=advance)
    if as_json:
        print_json(found.to_json())
    else:
        show(found, heat.value)
    for line in found.warnings:
        warn(line)
    if html is not None:
        note(f"wrote {write_survey_page(html, found)}")


def _collected(
    pair: "Pair",
    prompts: tuple[Prompt, ...],
    grid: "SurveyGrid",
    policies: Sequence[str],
    conditions: tuple[int, float, int],
    cost: str,
    name: str,
) -> "SurveyMaterial":
    """From a trace of the pair whose envelope covers the grid; `conditions`: longest answer, temperature, seed."""
    from treewise.engine.collect import CollectSettings
    from treewise.live import policy_for
    from treewise.survey_material import SHARD_ROUNDS, SurveyMaterial

    for policy in policies:
        policy_for(pair, policy)
    longest, temperature, seed = conditions
    settings = CollectSettings(longest, temperature, seed=seed, shard_rounds=SHARD_ROUNDS)
    return SurveyMaterial.of_pair(pair, prompts, grid.envelope(), settings, progress, cost, warn, note, name)


def grid_of(widths: str, depths: str, sources: str) -> "SurveyGrid":
    """The grid that the options name. Raises `ParameterError`."""
    from treewise.training.survey_grid import SurveyGrid

    return SurveyGrid(whole_numbers("widths", widths), whole_numbers("depths", depths), cast("Sources", sources))


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Ascending whole numbers from `2-5`, `2,4` or a mix. Raises `ParameterError`."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        first, last = low, high if dash else low
        short = all(piece.isdecimal() and len(piece) <= 4 for piece in (first, last))
        if not (short and int(first) <= int(last) <= 64):
            raise ParameterError(f"{name} must be whole numbers up to 64, such as 2-5 or 2,4, got {text!r}")
        found |= set(range(int(first), int(last) + 1))
    return tuple(sorted(found))


def show(found: "Survey", heat: str) -> None:
    """Print the tables."""
    out = console()
    out.print(facts({"replayed": f"{len(found.policies)} policies on {found.prompts[0]:,} prompts, exactly"}))
    for table in survey_tables(found, heat, out.width):
        out.print(table)
    for line in (*found.acceptance, found.milliseconds.words, *survey_notes(found)):
        out.print(Text(line, style="dim"))
