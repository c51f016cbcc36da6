"""`treewise quality`: what the lossy verification rules do to the text, and what they bring in speed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    open_pair,
    prompts_from,
)
from treewise.cli._quality_tables import show
from treewise.cli._show import note, print_json, progress, warn

if TYPE_CHECKING:
    from treewise.quality_report import QualityReport

EXIT_DIFFERS = 1
OWN_JUDGE = "own:judge"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("quality")(quality)


def quality(
    policy: Annotated[str, typer.Option("--policy", help="Spec string, such as entropy, topn:24x4 or learned:DIR.")],
    verifications: Annotated[
        list[str] | None,
        typer.Option(
            "--verification",
            metavar="RULE",
            help="exact, relaxed-top-n:N or threshold:P; may be repeated. exact is always among them. At "
            "temperature 0 a threshold of 0.5 or more is exact too.",
            show_default="relaxed-top-n:2 and threshold:0.2",
        ),
    ] = None,
    prompts: Annotated[
        str, typer.Option("--prompts", help="A prompt file or folder, or own:SPLIT.", show_default=OWN_JUDGE)
    ] = OWN_JUDGE,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this kind of task; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many prompts, tasks in turn; 0: all.")] = 18,
    run_tests: Annotated[
        bool,
        typer.Option(
            "--run-tests",
            help="Run the Python in answers to prompts that bring tests, in a limited process. It is code that a model "
            "wrote: where that is not to be trusted, use a container.",
        ),
    ] = False,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    max_new_tokens: MaxNewTokens = 128,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    cost: Cost = "",
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.", show_default=False)
    ] = None,
) -> None:
    """Compare texts and speed of verification rules with plain decoding: what does a lossy rule cost, what does it buy?

    Every prompt is decoded plainly and, with one policy, under every rule, in turns. Told of each rule: texts that are
    plain decoding's token by token, where others first differ, ROUGE-L, the tokens per round and the speed. Where a
    prompt asks for JSON (structured output whose prompt names it), whether the answer is JSON; where it brings tests (a
    field `tests` of its line: Python, or a list of lines of it), with --run-tests whether its code passes.

    Needs `pip install treewise[quality]`. Exits with 1 where a text of the exact rule is not plain decoding's.
    """
    from treewise.engine.sampling import Sampling
    from treewise.live import policy_for
    from treewise.policy.registry import parse_policy
    from treewise.profiles import find_cost
    from treewise.quality import DEFAULT_RULES, QualitySettings, measure_quality, rules_of
    from treewise.quality_page import check_page, write_quality_page
    from treewise.training.text_quality import RougeL

    parse_policy(policy)  # nor should a bad spec, an unknown rule or a missing package cost any loading
    rules = rules_of(verifications or DEFAULT_RULES)
    asked = prompts_from(prompts, task or (), limit)
    sampling = Sampling(temperature, seed=seed)
    RougeL()
    if html is not None:
        check_page(html)
    pair = open_pair(target, draft, threads, corpus)
    policy_for(pair, policy)
    profile = find_cost(pair, cost, warn, note)
    settings = QualitySettings(rules, max_new_tokens, run_tests)
    report = measure_quality(pair, profile, policy, asked, settings, sampling, progress)
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    if html is not None:
        note(f"wrote {write_quality_page(html, report)}")
    _leave(report)


def _leave(report: "QualityReport") -> None:
    if not report.is_exact_identical:
        for prompt, found in zip(report.prompts, report.texts[report.exact.name], strict=True):
            if found.divergence is not None:
                warn(f"{report.exact.name} on {prompt.id} differs from plain decoding at {found.divergence}")
        raise typer.Exit(EXIT_DIFFERS)
