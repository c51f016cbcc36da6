"""What the benches run on: prompts, and a policy trained from the traces that ship."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.bench_store import code_sha256, content_key
from treewise.data.cost import CostProfile
from treewise.data.prompt_set import Prompt, in_turns, own_prompts, read_prompts
from treewise.shipped import SplitTrace, train_part
from treewise.stages import Stage

if TYPE_CHECKING:
    from treewise.engine.sampling import Sampling

PROMPTS_VARIABLE = "TREEWISE_PROMPTS"  # a folder of prompt files to use instead of the project's own
ALL_SPLITS = ("demo", "policy")
UNSEEN_SPLITS = ("demo", "judge")  # of the project's own: policies were neither trained nor tuned on them
TUNING_SPLIT = "policy"


def bench_prompts(
    count: int, splits: Iterable[str] = ALL_SPLITS, without: Collection[str] = frozenset()
) -> tuple[Prompt, ...]:
    """Prompts of the folder that `TREEWISE_PROMPTS` names, else the project's own `splits`; tasks take turns.

    The ids in `without` are left out.
    """
    folder = os.environ.get(PROMPTS_VARIABLE)
    found = read_prompts(folder) if folder else [prompt for split in splits for prompt in own_prompts(split)]
    return in_turns((prompt for prompt in found if prompt.id not in without), count)


def trained_bundle(split: SplitTrace, cost: CostProfile, home: Path, stage: Stage, command: str) -> Path:
    """A bundle trained from the training part of `split`; kept in `home` until traces, code or prices change."""
    place = home / f"policy-{content_key([split.train_hash, cost.to_json(), code_sha256(('training',))])}"
    if not (place / "bundle.json").is_file():
        with stage("training the policy") as advance:
            train_part(
                split,
                cost,
                place,
                command=command,
                progress=lambda part, done, total: advance(f"{part} {done}/{total}"),
            )
    return place


def prompt_sampling(temperature: float, prompt_id: str) -> Sampling:
    """Sampling with a seed of the prompt's own above temperature 0."""
    from treewise.engine.collect import prompt_seed
    from treewise.engine.sampling import Sampling

    return Sampling(temperature, seed=prompt_seed(0, prompt_id) if temperature > 0.0 else 0)
