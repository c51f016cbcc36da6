"""`treewise corpus`: a frozen memory of what a target ranked high behind its answers' tokens."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from treewise.cli._options import DEFAULT_TARGET, OWN_PROMPTS, AsJson, Target, Threads, joined_prompts, open_pair
from treewise.cli._show import console, facts, print_json, progress

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module to `app`."""
    app.command("corpus")(corpus)


def corpus(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the corpus.", show_default=False)],
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="Folder of stored answers; default: where `treewise distill` keeps them."),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--prompts",
            help="Prompt file, folder, or own:SPLIT, several joined by commas; only answers to these are read.",
            show_default=OWN_PROMPTS,
        ),
    ] = None,
    target: Target = DEFAULT_TARGET,
    min_occurrences: Annotated[
        int, typer.Option("--min-occurrences", min=1, help="Of a context of two or three tokens that is kept.")
    ] = 2,
    threads: Threads = 0,
    as_json: AsJson = False,
) -> None:
    """Make a corpus of recycled guesses from the answers that a target gave, from what it computed on the way."""
    from treewise.engine.answer_mark import check_mark
    from treewise.engine.distill_run import default_work_folder
    from treewise.engine.recycled_corpus import answers_to, make_corpus
    from treewise.engine.teacher import kept_states

    asked = joined_prompts(prompts or [OWN_PROMPTS])
    pair = open_pair(target, "none", threads, corpus="none")
    folder = answers or default_work_folder(target) / "answers"
    found = answers_to(pair, asked, folder)
    # A folder without a mark may hold another target's states; its texts are then read anew.
    states = kept_states(folder) if check_mark(folder, pair.description) else {}
    done = 0
    with progress("the target reads its answers", len(found)) as advance:

        def passed(texts: int, tokens: int) -> None:
            nonlocal done
            done += tokens
            advance(f"{done:,} tokens", texts)

        command = "treewise " + shlex.join(sys.argv[1:])
        made = make_corpus(
            pair, found, asked, states=states, min_occurrences=min_occurrences, command=command, report=passed
        )
    path = made.save(out)
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "out": str(path),
        "sha256": made.sha256,
        "bytes": path.stat().st_size,
        "contexts": len(made),
        "entries": len(made.tokens),
        "vocab_size": made.vocab_size,
        "tokenizer_sha256": made.tokenizer_sha256,
        "provenance": made.provenance,
    }
    if as_json:
        print_json(result)
        return
    console().print(
        facts(
            {
                "corpus": f"{path}, {result['bytes']:,} bytes",
                "answers": f"{len(found):,}, {made.provenance['answer_tokens']:,} tokens",
                "contexts": f"{len(made):,}, with {len(made.tokens):,} guesses",
                "sha256": made.sha256,
            }
        )
    )
