"""`treewise generate`: one answer, shown as it is committed."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from treewise.cli._options import (
    DEFAULT_CORPUS,
    DEFAULT_DRAFT,
    DEFAULT_TARGET,
    EXACT,
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
)
from treewise.cli._show import note, percent, warn
from treewise.data.errors import ParameterError

if TYPE_CHECKING:
    from treewise.stream import TextStream

EXIT_INTERRUPTED = 130  # as a shell reports an end by Ctrl-C
FALLBACK = "frontier"
STDIN = "-"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("generate")(generate)


def generate(
    text: Annotated[
        str, typer.Argument(metavar="[PROMPT]", help="What to answer; - reads standard input.", show_default=False)
    ] = "",
    prompt: Annotated[str, typer.Option("--prompt", help="The same as an option.", show_default=False)] = "",
    policy: Annotated[
        str,
        typer.Option(
            "--policy", help="Spec string, such as entropy or topn:24x4.", show_default=f"the bundle, else {FALLBACK}"
        ),
    ] = "",
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Bundle of a learned policy, to decode with.", show_default=False)
    ] = None,
    target: Target = DEFAULT_TARGET,
    draft: Draft = DEFAULT_DRAFT,
    corpus: Corpus = DEFAULT_CORPUS,
    threads: Threads = 0,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    seed: Seed = 0,
    ranking: Ranking = "",
    verification: Verification = EXACT,
    cost: Cost = "",
) -> None:
    """Answer one prompt and print the text while it is decoded, figures on stderr at the end.

    Ctrl-C ends the text after the round that runs, and the command with 130; a second one ends it at once.
    """
    from treewise.engine.decode import Engine, EngineSettings
    from treewise.engine.pair import encode_prompt
    from treewise.engine.sampling import Sampling
    from treewise.live import policy_for
    from treewise.policy.registry import parse_policy
    from treewise.policy.task_table import told_task
    from treewise.profiles import find_cost
    from treewise.stream import TextStream

    asked = chosen_prompt(text, prompt)
    spec = chosen_policy(policy, bundle)
    sampling = Sampling(temperature, top_k, top_p, seed, min_p, typical_p)
    settings = EngineSettings(verification=checked_verification(verification), ranking=ranking)
    parse_policy(spec)  # a bad spec should cost no loading
    pair = open_pair(target, draft, threads, corpus)
    chosen = policy_for(pair, spec)  # a bad spec should cost no measuring
    engine = Engine(pair, chosen, find_cost(pair, cost, warn, note), settings)
    task = told_task(chosen, "", asked)
    stream = TextStream(engine, encode_prompt(pair, asked), max_new_tokens, sampling, task)
    with stopped_by_interrupt(stream):
        try:
            for piece in stream:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
        finally:
            typer.echo()
            note(line(stream, spec))
    if stream.finish not in ("eos", "length"):
        raise typer.Exit(EXIT_INTERRUPTED)


def chosen_prompt(text: str, prompt: str) -> str:
    """The one prompt that was given, standard input where it is `-` or where only that is there.

    Raises `ParameterError` where there are two, or none.
    """
    if text and prompt:
        raise ParameterError("prompt must be given once, got an argument and --prompt")
    given = text or prompt
    if given == STDIN or (not given and not sys.stdin.isatty()):
        given = sys.stdin.read()
    if not given:
        raise ParameterError("prompt must be given as an argument, --prompt or standard input, got none")
    return given


def chosen_policy(policy: str, bundle: Path | None) -> str:
    """A spec string: the one given, the bundle's, or the fallback's. Raises `ParameterError` where both are given."""
    if policy and bundle is not None:
        raise ParameterError("policy must be given as one of --policy and --bundle, got both")
    return policy or (f"learned:{bundle}" if bundle is not None else FALLBACK)


@contextmanager
def stopped_by_interrupt(stream: "TextStream") -> Iterator[None]:
    """The first Ctrl-C stops `stream` between two rounds; the next one is Python's own."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    found = signal.getsignal(signal.SIGINT)
    before = signal.SIG_DFL if found is None else found  # None: set by another language's code

    def stop(number: int, frame: FrameType | None) -> None:
        stream.stop()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def line(stream: "TextStream", spec: str) -> str:
    """What the text took, in one line."""
    end = {"eos": "ended by itself", "length": "cut at --max-new-tokens", "": "broken off"}
    return (
        f"{len(stream.tokens)} tokens, {end.get(stream.finish, stream.finish)}; {stream.tokens_per_second:.1f} tokens/s"
        f", {stream.tokens_per_round:.2f} tokens and {stream.nodes_per_round:.1f} nodes per round; "
        f"{spec}, {percent(stream.policy_share)} of the time in it"
    )
