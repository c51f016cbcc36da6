"""`treewise decode`: answers to prompts, decoded with one policy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from treewise.cli._live_tables import live_table
from treewise.cli._options import (
    DEFAULT_ATTENTION,
    DEFAULT_CORPUS,
    DEFAULT_DEVICE,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    EAGER,
    EXACT,
    AsJson,
    Attention,
    Corpus,
    Cost,
    Device,
    Draft,
    MaxNewTokens,
    MinP,
    Passes,
    Ranking,
    Seed,
    Target,
    Temperature,
    Threads,
    TopK,
    TopP,
    TypicalP,
    Verification,
    checked_verification,
    open_pair,
    prompts_from,
)
from treewise.cli._show import console, facts, note, percent, print_json, progress, warn
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt

if TYPE_CHECKING:
    from treewise.engine.decode import Completion
    from treewise.live import LiveFigures, LiveRun

SCHEMA_VERSION = 1
EXIT_DIFFERS = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("decode")(decode)


def decode(
    policy: Annotated[str, typer.Option("--policy", help="Spec string, such as entropy, topn:24x4 or learned:DIR.")],
    prompt: Annotated[str, typer.Option("--prompt", help="One prompt.", show_default=False)] = "",
    prompts: Annotated[
        str, typer.Option("--prompts", help="A prompt file or folder, or own:SPLIT.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many prompts; 0: all.")] = 0,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    max_new_tokens: MaxNewTokens = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    seed: Seed = 0,
    ranking: Ranking = "",
    verification: Verification = EXACT,
    cost: Cost = "",
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size", min=1, help="Prompts decoded side by side; each joins when one before it is over."
        ),
    ] = 1,
    device: Device = DEFAULT_DEVICE,
    passes: Passes = EAGER,
    attention: Attention = DEFAULT_ATTENTION,
    compare_plain: Annotated[
        bool, typer.Option("--compare-plain", help="Decode plainly as well and compare the texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decode prompts with one policy and print the text and what it took.

    With --batch-size, every pass and every call of the policy serves so many prompts at once; times are each prompt's
    share. A cost profile is that of passes, whose rows are those of the whole batch.

    On a GPU, --passes captured saves launching every kernel of every pass from Python. Each graph is recorded and
    compared with the eager pass before the first prompt, which takes seconds. A profile says what passes cost as they
    were run when it was measured: `treewise profile` has the same options.

    With --compare-plain, exits with 1 where a text differs from plain decoding's.
    """
    from treewise.engine.decode import EngineSettings
    from treewise.engine.pair import encode_prompt
    from treewise.engine.passes import check_passes
    from treewise.engine.sampling import Sampling
    from treewise.live import PLAIN, policy_for, run_live
    from treewise.live_batch import run_live_batched
    from treewise.policy.registry import parse_policy
    from treewise.profiles import find_cost

    asked = chosen_prompts(prompt, prompts, limit)
    sampling = Sampling(temperature, top_k, top_p, seed, min_p, typical_p)
    settings = EngineSettings(verification=checked_verification(verification), ranking=ranking, passes=passes)
    parse_policy(policy)  # a bad spec should cost no loading
    check_passes(passes)
    pair = open_pair(target, draft, threads, corpus, device, attention)
    policy_for(pair, policy)  # a bad spec should cost no measuring
    profile = find_cost(pair, cost, warn, note)
    encoded = {item.id: encode_prompt(pair, item.text) for item in asked}
    specs = [policy, PLAIN] if compare_plain else [policy]
    with progress("decoding", len(encoded) * len(set(specs))) as advance:
        how = (sampling, settings, advance, compare_plain, {item.id: item for item in asked})
        if batch_size == 1:
            run = run_live(pair, profile, specs, encoded, max_new_tokens, *how)
        else:
            run = run_live_batched(pair, profile, specs, encoded, max_new_tokens, batch_size, *how)
    texts = [
        str(pair.tokenizer.decode(list(answer.tokens), skip_special_tokens=True)) for answer in run.answers[policy]
    ]
    if as_json:
        print_json(report(pair.name, profile.name, policy, asked, texts, run, compare_plain, batch_size))
    else:
        show(policy, asked, texts, run, compare_plain)
    if compare_plain and run.differing(policy):
        raise typer.Exit(EXIT_DIFFERS)


def chosen_prompts(prompt: str, prompts: str, limit: int) -> tuple[Prompt, ...]:
    """The one prompt, or those of the file. Raises `ParameterError` unless exactly one of the two is given."""
    if bool(prompt) == bool(prompts):
        raise ParameterError("prompt must be given as one of --prompt and --prompts, got both or neither")
    return (Prompt("prompt", "prompt", prompt),) if prompt else prompts_from(prompts, limit=limit)


def report(
    pair: str,
    cost: str,
    policy: str,
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    run: "LiveRun",
    compare_plain: bool,
    batch_size: int = 1,
) -> dict[str, Any]:
    """A mapping that fits `treewise/schemas/decode.json`."""
    from treewise.live import PLAIN

    rows = zip(prompts, texts, run.answers[policy], run.divergences[policy], strict=True)
    return {
        "schema_version": SCHEMA_VERSION,
        "pair": pair,
        "cost": cost,
        "policy": policy,
        "batch_size": batch_size,
        "answers": [
            {
                "prompt_id": prompt.id,
                "task": prompt.task,
                "text": text,
                "tokens": list(answer.tokens),
                "finish": answer.finish,
                "tokens_per_second": round(answer.tokens_per_second, 6),
                "tokens_per_round": round(answer.tokens_per_round, 6),
                "nodes_per_round": round(answer.nodes_per_round, 6),
                "divergence": None if place is None else place.to_json(),
            }
            for prompt, text, answer, place in rows
        ],
        "total": run.figures(policy).to_json(),
        "plain": run.figures(PLAIN).to_json() if compare_plain else None,
        "identical": run.differing(policy) == 0 if compare_plain else None,
    }


def show(policy: str, prompts: Sequence[Prompt], texts: Sequence[str], run: "LiveRun", compare_plain: bool) -> None:
    """Print the texts and their figures."""
    from treewise.live import PLAIN

    out = console()
    for prompt, text, answer, place in zip(prompts, texts, run.answers[policy], run.divergences[policy], strict=True):
        out.print(Text(f"{prompt.id} ({prompt.task})", style="bold"))
        out.print(Text(text))
        out.print(Text(_line(answer), style="dim"))
        if compare_plain:
            same = "identical to plain decoding"
            out.print(Text(same if place is None else f"differs from plain decoding at {place}"))
    if compare_plain:
        specs = dict.fromkeys((policy, PLAIN))
        out.print(
            live_table(run, [(spec, spec) for spec in specs], f"{len(prompts)} prompt{'s' if len(prompts) > 1 else ''}")
        )
    else:
        out.print(facts(_totals(run.figures(policy))))


def _line(answer: "Completion") -> str:
    return (
        f"{len(answer.tokens)} tokens, ended by {answer.finish}; {answer.tokens_per_second:.1f} tokens/s, "
        f"{answer.tokens_per_round:.2f} tokens and {answer.nodes_per_round:.1f} nodes per round"
    )


def _totals(found: "LiveFigures") -> dict[str, str]:
    rows = {
        "policy": found.policy,
        "tokens/s": f"{found.tokens_per_second:.1f}",
        "tokens per round": f"{found.tokens_per_round:.2f}",
        "nodes per round": f"{found.nodes_per_round:.1f}",
        "policy's time": percent(found.policy_share),
    }
    if found.fallbacks:
        rows["fallbacks"] = f"{found.fallbacks} of {found.rounds} rounds"
    return rows
