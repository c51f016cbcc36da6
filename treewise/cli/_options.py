"""Options that several commands share, and what their words stand for."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from treewise.data.errors import ParameterError, require
from treewise.data.prompt_set import Prompt, in_turns, own_prompts, read_prompts

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.training.logged_trace import LoggedTrace

OWN_PROMPTS = "own:distill"  # what the shipped draft and corpus were first made from
OWN = "own:"
Number = TypeVar("Number", int, float)

Target = Annotated[str, typer.Option("--target", help="Target: smollm2-135m, a Hugging Face name, or a folder.")]
Draft = Annotated[
    str, typer.Option("--draft", help="Draft: default, none, prune:FIRST-LAST, a folder, or a Hugging Face name.")
]
Corpus = Annotated[
    str, typer.Option("--corpus", help="Corpus of recycled guesses: default, none, or a folder of `treewise corpus`.")
]
Threads = Annotated[int, typer.Option("--threads", min=0, help="Torch threads; 0: torch's own choice.")]
Device = Annotated[str, typer.Option("--device", help="Where the models go: a torch device, such as cpu or cuda.")]
Passes = Annotated[
    str,
    typer.Option(
        "--passes",
        help="How the models' passes run: eager; static: padded to fixed shapes; captured: replayed from CUDA graphs.",
    ),
]
Attention = Annotated[
    str, typer.Option("--attention", help="Kernel: sdpa, or split: no mask over the committed tokens.")
]
MaxNewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0: greedy.")]
TopK = Annotated[int, typer.Option("--top-k", min=0, help="Sample among the K most probable tokens; 0: all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample among the tokens that hold this share of the mass.")]
MinP = Annotated[float, typer.Option("--min-p", help="Leave out tokens below this share of the best one's; 0: off.")]
TypicalP = Annotated[float, typer.Option("--typical-p", help="Locally typical sampling with this mass; 1: off.")]
Verification = Annotated[
    str, typer.Option("--verification", help="exact, or a lossy rule: relaxed-top-n:N or threshold:P.")
]
Ranking = Annotated[
    str,
    typer.Option(
        "--ranking", help="Of draft candidates above temperature 0: plain, coupled or both.", show_default="both"
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampling noise; unused at temperature 0.")]
Cost = Annotated[
    str,
    typer.Option(
        "--cost",
        help="Cost profile: a file or a built-in name. Without it the stored profile of this machine, else a quick "
        "measurement.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=0,
        envvar="TREEWISE_WORKERS",
        help="Processes that share the replays; 0: one a core, as far as there is enough to do. The figures do not "
        "depend on it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

# Those of `treewise.engine.pair`, written again because importing it brings torch; a test compares them.
DEFAULT_TARGET = "smollm2-135m"
DEFAULT_DRAFT = "default"
DEFAULT_CORPUS = "default"
EXACT = "exact"
DEFAULT_DEVICE = "cpu"
DEFAULT_ATTENTION = "sdpa"
EAGER = "eager"


def open_pair(
    target: str,
    draft: str,
    threads: int = 0,
    corpus: str = DEFAULT_CORPUS,
    device: str = DEFAULT_DEVICE,
    attention: str = DEFAULT_ATTENTION,
) -> "Pair":
    """The pair that the options name. Raises as `load_pair` does, and `ParameterError` without the GPU asked for."""
    import torch

    from treewise.engine.pair import load_pair

    is_there = not device.startswith("cuda") or torch.cuda.is_available()
    require(is_there, "device", "one that is there", device)
    return load_pair(target, draft, threads=threads or None, corpus=corpus, device=device, attention=attention)


def checked_verification(spec: str) -> str:
    """The rule that `spec` names, written out. Raises `ParameterError`."""
    from treewise.engine.verification import Verification as Rule

    return Rule.parse(spec).spec


def prompts_from(source: str, tasks: Sequence[str] = (), limit: int = 0) -> tuple[Prompt, ...]:
    """Prompts of a file, a folder, or `own:SPLIT` (`own:` alone: all splits); of `tasks` only, at most `limit`,
    tasks taking turns.

    Raises `PromptError`, or `ParameterError` where nothing is left.
    """
    found = own_prompts(source.removeprefix(OWN) or None) if source.startswith(OWN) else read_prompts(Path(source))
    known = sorted({prompt.task for prompt in found})
    unknown = sorted(set(tasks) - set(known))
    if unknown:
        raise ParameterError(f"task must be one of {', '.join(known)}, got {unknown[0]!r}")
    chosen = tuple(prompt for prompt in found if not tasks or prompt.task in tasks)
    return in_turns(chosen, limit) if limit else chosen


def joined_prompts(sources: Sequence[str], limit: int = 0) -> tuple[Prompt, ...]:
    """Prompts of all sources, each told by an option or between commas; at most `limit`, tasks taking turns.

    Raises `PromptError`, or `ParameterError` where two sources hold one id.
    """
    found = [prompt for source in sources for part in source.split(",") for prompt in prompts_from(part)]
    twice = [name for name, count in Counter(prompt.id for prompt in found).items() if count > 1]
    if twice:
        raise ParameterError(f"prompts must have ids of their own, got {twice[0]!r} from two sources")
    return in_turns(found, limit) if limit else tuple(found)


def numbers_of(name: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    """The numbers of `text`, joined by commas. Raises `ParameterError`."""
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise ParameterError(f"{name} must be numbers joined by commas, got {text!r}") from error


def workers_for(option: int, traces: "Sequence[LoggedTrace]", replays: int, in_batches: bool = True) -> int:
    """`option` of `--workers`, or as many as `replays` of every request of `traces` are worth."""
    from treewise.training.workers import worth_starting

    rounds = sum(entry.num_rounds for trace in traces for entry in trace.entries)
    return option or worth_starting(replays * rounds, in_batches)


def of_split(source: str, split: str) -> tuple[Prompt, ...]:
    """Prompts of `source`, of one split where `split` names one. Raises as `prompts_from`, or where none is left."""
    found = prompts_from(source)
    chosen = tuple(prompt for prompt in found if not split or prompt.split == split)
    if not chosen:
        known = ", ".join(sorted({prompt.split for prompt in found if prompt.split})) or "none"
        raise ParameterError(f"split must be one of {known}, got {split!r}")
    return chosen


def left_out_with_trace(context: typer.Context, names: Sequence[str]) -> None:
    """Raise `ParameterError` where one of the parameters `names` was given beside `--trace`, which settles it."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ParameterError(
                f"{name} must be left out with --trace, which settles it, got {context.params[name]!r}"
            )
