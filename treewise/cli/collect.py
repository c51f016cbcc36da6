"""`treewise collect`: traces of a pair, written while it decodes or grown over its texts."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treewise.cli._options import (
    DEFAULT_CORPUS,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    EXACT,
    AsJson,
    Corpus,
    Cost,
    Draft,
    MaxNewTokens,
    MinP,
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
from treewise.cli._show import console, facts, note, print_json, progress, warn
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt

if TYPE_CHECKING:
    from treewise.engine.collect import CollectSettings, Progressed
    from treewise.engine.pair import Pair

SCHEMA_VERSION = 1


class Kind(StrEnum):
    """The two kinds of trace."""

    live = "live"
    dense = "dense"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("collect")(collect)


def collect(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the trace; an unfinished one is continued.")],
    prompts: Annotated[str, typer.Option("--prompts", help="A prompt file or folder, or own:SPLIT.")],
    kind: Annotated[
        Kind,
        typer.Option("--kind", help="live: what one policy does; dense: every guess in the envelope, everywhere."),
    ] = Kind.dense,
    policy: Annotated[str, typer.Option("--policy", help="Spec string of a live trace's policy.")] = "",
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this kind of task; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many prompts; 0: all.")] = 0,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    max_new_tokens: MaxNewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    seed: Seed = 0,
    ranking: Ranking = "",
    verification: Verification = EXACT,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Texts decoded at once (dense, greedy).")] = 32,
    shard_rounds: Annotated[int, typer.Option("--shard-rounds", min=1, help="Rounds in one shard, about.")] = 2048,
    tokens: Annotated[bool, typer.Option("--tokens/--no-tokens", help="Whether token ids are kept.")] = True,
    cost: Cost = "",
    as_json: AsJson = False,
) -> None:
    """Collect a trace. Run again with the same settings, it goes on after the last finished shard."""
    from treewise.engine.collect import CollectSettings

    if (kind is Kind.live) != bool(policy):
        raise ParameterError(f"policy must be given with --kind live and only there, got {policy!r} with {kind.value}")
    rule = checked_verification(verification)
    if kind is Kind.dense and rule != EXACT:
        raise ParameterError(f"verification must be {EXACT} with --kind dense, got {rule!r}")
    settings = CollectSettings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        seed=seed,
        batch_rows=batch_rows,
        shard_rounds=shard_rounds,
        tokens_included=tokens,
        ranking=ranking,
    )
    asked = prompts_from(prompts, task or (), limit)
    pair = open_pair(target, draft, threads, corpus)
    began = time.perf_counter()
    committed: list[int] = []
    with progress(f"collecting {kind.value}", len(asked)) as advance:

        def progressed(prompt_id: str, count: int) -> None:
            committed.append(count)
            advance(prompt_id)

        if kind is Kind.live:
            already = _live(pair, policy, cost, asked, out, settings, rule, progressed)
        else:
            already = _dense(pair, asked, out, settings, progressed)
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "folder": str(out),
        "kind": kind.value,
        "policy": policy or None,
        "pair": pair.name,
        "prompts": len(asked),
        "already_there": already,
        "collected": len(committed),
        "tokens": sum(committed),
        "seconds": round(time.perf_counter() - began, 3),
    }
    if as_json:
        print_json(result)
        return
    seconds = float(result["seconds"])
    console().print(
        facts(
            {
                "trace": f"{kind.value}, in {out}",
                "prompts": f"{len(committed)} collected, {already} already there",
                "tokens": f"{sum(committed)} in {seconds:.1f} s",
            }
        )
    )


def _live(
    pair: "Pair",
    policy: str,
    cost: str,
    prompts: tuple[Prompt, ...],
    out: Path,
    settings: "CollectSettings",
    verification: str,
    progressed: "Progressed",
) -> int:
    from treewise.engine.collect import collect_live
    from treewise.engine.decode import EngineSettings
    from treewise.live import policy_for
    from treewise.profiles import find_cost

    policy_for(pair, policy)
    profile = find_cost(pair, cost, warn, note)
    return collect_live(
        pair, policy, profile, prompts, out, settings, EngineSettings(verification=verification), progressed
    )


def _dense(
    pair: "Pair", prompts: tuple[Prompt, ...], out: Path, settings: "CollectSettings", progressed: "Progressed"
) -> int:
    from treewise.data.envelope import Envelope, PriorTable
    from treewise.engine.collect import collect_dense

    return collect_dense(pair, prompts, out, Envelope(), PriorTable(), settings, progressed)
