"""`treewise collect`: traces of a pair, written while it decodes or grown over its texts."""

import time
from collections.abc import Sequence
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
from treewise.cli._show import console, facts, note, percent, print_json, progress, warn
from treewise.data.errors import ParameterError
from treewise.data.prompt_set import Prompt

if TYPE_CHECKING:
    from treewise.engine.collect import CollectSettings, Progressed
    from treewise.engine.known_texts import OwnShare, TextRecord
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
    prompts: Annotated[
        str, typer.Option("--prompts", help="A prompt file or folder, or own:SPLIT.", show_default=False)
    ] = "",
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="Instead of prompts, JSON Lines of prompts and completions that are there already (dense).",
            show_default=False,
        ),
    ] = None,
    accept_foreign: Annotated[
        bool, typer.Option("--accept-foreign", help="Take --texts that the target itself would not say.")
    ] = False,
    kind: Annotated[
        Kind,
        typer.Option("--kind", help="live: what one policy does; dense: every guess in the envelope, everywhere."),
    ] = Kind.dense,
    policy: Annotated[str, typer.Option("--policy", help="Spec string of a live trace's policy.")] = "",
    explore: Annotated[
        float,
        typer.Option(
            "--explore", min=0.0, max=1.0, help="Share of a live trace's requests that an exploring policy decides."
        ),
    ] = 0.0,
    explore_policy: Annotated[
        list[str] | None,
        typer.Option(
            "--explore-policy",
            help="An exploring policy; may be repeated. Each is as probable; default: chain:5 and topn:24x4.",
            show_default=False,
        ),
    ] = None,
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
    """Collect a trace. Run again with the same settings, it goes on after the last finished shard. Runs at the same
    time share the prompts.

    A line of --texts holds an id, a prompt (or prompt_ids), a completion (or completion_ids), and perhaps a task and,
    above temperature 0, the seed that treewise drew it with. At temperature 0 the texts must be what the target says.

    With --explore the trace says which policy decided each request, and how probable that was: from it `treewise ab`
    estimates what the exploring policies would do, and with less bias than from a pruned log what others would.
    """
    from treewise.engine.collect import CollectSettings

    if bool(prompts) == (texts is not None):
        raise ParameterError(f"prompts must be given with --prompts or, as --texts, with answers, got {prompts!r}")
    if kind is Kind.live and texts is not None:
        raise ParameterError("texts must go with --kind dense, got live: a live trace holds what a policy decides")
    if (kind is Kind.live) != bool(policy):
        raise ParameterError(f"policy must be given with --kind live and only there, got {policy!r} with {kind.value}")
    if explore and kind is not Kind.live:
        raise ParameterError("explore must go with --kind live, got dense: no policy decides there")
    if explore_policy and not explore:
        raise ParameterError(f"explore must be above 0 where --explore-policy names a policy, got {explore}")
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
    known = () if texts is None else chosen_texts(texts, task or (), limit)
    asked = prompts_from(prompts, task or (), limit) if texts is None else ()
    pair = open_pair(target, draft, threads, corpus)
    began = time.perf_counter()
    committed: list[int] = []
    own: OwnShare | None = None
    with progress(f"collecting {kind.value}", len(asked or known)) as advance:

        def progressed(prompt_id: str, count: int) -> None:
            committed.append(count)
            advance(prompt_id)

        if kind is Kind.live:
            explored = (explore, tuple(explore_policy or ()))
            already = _live(pair, policy, cost, asked, out, settings, rule, progressed, explored)
        elif known:
            already, own = _known(pair, known, out, settings, accept_foreign, progressed)
        else:
            already = _dense(pair, asked, out, settings, progressed)
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "folder": str(out),
        "kind": kind.value,
        "policy": policy or None,
        "explore": explore,
        "pair": pair.name,
        "prompts": len(asked or known),
        "already_there": already,
        "collected": len(committed),
        "tokens": sum(committed),
        "seconds": round(time.perf_counter() - began, 3),
        "own_share": own.share if own else None,
    }
    if as_json:
        print_json(result)
        return
    seconds = float(result["seconds"])
    rows = {
        "trace": f"{kind.value}, in {out}",
        "prompts": f"{len(committed)} collected, {already} already there or another run's",
        "tokens": f"{sum(committed)} in {seconds:.1f} s",
    }
    if own is not None:
        rows["the target's own"] = f"{percent(own.share)} of the completions' tokens, teacher-forced"
    console().print(facts(rows))


def chosen_texts(path: Path, tasks: Sequence[str], limit: int) -> "tuple[TextRecord, ...]":
    """The texts of a file, of `tasks` only, at most `limit`. Raises `PromptError`, or `ParameterError` on a task."""
    from treewise.engine.known_texts import read_texts

    found = read_texts(path)
    known = sorted({record.task for record in found})
    if unknown := sorted(set(tasks) - set(known)):
        raise ParameterError(f"task must be one of {', '.join(known)}, got {unknown[0]!r}")
    chosen = tuple(record for record in found if not tasks or record.task in tasks)
    return chosen[:limit] if limit else chosen


def _known(
    pair: "Pair",
    records: "tuple[TextRecord, ...]",
    out: Path,
    settings: "CollectSettings",
    accept_foreign: bool,
    progressed: "Progressed",
) -> "tuple[int, OwnShare | None]":
    from treewise.data.envelope import Envelope, PriorTable
    from treewise.engine.known_texts import MIN_OWN_SHARE, check_texts, collect_texts, known_texts

    found = known_texts(pair, records, settings)
    own = check_texts(pair, found, settings, 0.0 if accept_foreign else MIN_OWN_SHARE)
    return collect_texts(pair, found, out, Envelope(), PriorTable(), settings, own, progressed), own


def _live(
    pair: "Pair",
    policy: str,
    cost: str,
    prompts: tuple[Prompt, ...],
    out: Path,
    settings: "CollectSettings",
    verification: str,
    progressed: "Progressed",
    explored: tuple[float, tuple[str, ...]],
) -> int:
    """`explored`: share of the requests that exploring policies decide, and their names, if any were named."""
    import numpy as np

    from treewise.engine.collect import collect_live
    from treewise.engine.decode import EngineSettings
    from treewise.engine.exploration import EXPLORERS, Exploration
    from treewise.live import policy_for
    from treewise.profiles import find_cost

    share, named = explored
    others = named or tuple(spec for spec in EXPLORERS if spec != policy)
    exploration = Exploration(share, others) if share else None
    for spec in (policy, *(exploration.policies if exploration else ())):
        policy_for(pair, spec)
    profile = find_cost(pair, cost, warn, note)
    return collect_live(
        pair,
        policy,
        profile,
        prompts,
        out,
        settings,
        EngineSettings(verification=verification),
        progressed,
        exploration,
        np.random.default_rng(settings.seed) if exploration else None,
    )


def _dense(
    pair: "Pair", prompts: tuple[Prompt, ...], out: Path, settings: "CollectSettings", progressed: "Progressed"
) -> int:
    from treewise.data.envelope import Envelope, PriorTable
    from treewise.engine.collect import collect_dense

    return collect_dense(pair, prompts, out, Envelope(), PriorTable(), settings, progressed)
