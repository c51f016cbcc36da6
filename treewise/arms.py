"""The arms of the side-by-side benchmark, each at its best: tuned on prompts that are never judged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treewise.bench_store import code_sha256, content_key
from treewise.data.cost import CostProfile
from treewise.live import PLAIN
from treewise.shipped import SplitTrace, spread
from treewise.stages import Stage

if TYPE_CHECKING:
    from treewise.engine.rivals import Rival, RivalDecoder

GENERATE = "transformers generate"
ASSISTED = "transformers assisted"
LOOKUP = "transformers lookup"
LEARNED_ARM, PLAIN_ARM = "learned", "plain"
FAMILIES = ("chain", "static", "topn", "frontier", "entropy")  # tuned by replay
ASSISTED_TOKENS = (1, 2, 3, 5, 8)
LOOKUP_GRID = (2, 3, 5, 8, 16)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode: a policy of ours, or transformers' own."""

    name: str
    spec: str  # policy spec string, or the setting of transformers in the same form
    rival: Rival | None = None  # None: a policy of ours

    @property
    def is_ours(self) -> bool:
        """Whether this engine decodes."""
        return self.rival is None


def our_arms(tuned: dict[str, str], learned: str) -> tuple[Arm, ...]:
    """Plain decoding, the best of each family (name -> spec) and the learned policy, which comes last."""
    middle = [Arm(f"tuned {family}", spec) for family, spec in tuned.items()]
    return (Arm(PLAIN_ARM, PLAIN), *middle, Arm(LEARNED_ARM, learned))


def rival_arms(tuned: Sequence[Rival], has_draft: bool) -> tuple[Arm, ...]:
    """Greedy generate, assisted generation and prompt lookup as transformers has them, and the two `tuned`."""
    from treewise.engine.rivals import Rival

    names = {"assisted": ASSISTED, "lookup": LOOKUP}
    arms = [_arm(GENERATE, Rival("generate"))]
    for way in ("assisted", "lookup") if has_draft else ("lookup",):
        arms.append(_arm(names[way], Rival(way)))
        arms += [_arm(f"{names[way]}, tuned", rival) for rival in tuned if rival.way == way]
    return tuple(arms)


def tune_rules(split: SplitTrace, cost: CostProfile, prompts: int, home: Path, stage: Stage) -> dict[str, str]:
    """Family -> its fastest spec by replay on `prompts` training prompts; kept until traces, code or prices change."""
    from treewise.training.tune import GRIDS, reachable_specs, tune

    parts = [split.train_hash, prompts, FAMILIES, cost.to_json(), code_sha256(("training",))]
    path = home / f"rules-{content_key(parts)}.json"
    if path.is_file():
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return found
    trace = spread(split.train, prompts)
    settings = len(reachable_specs([trace], cost, [name for name in FAMILIES if name in GRIDS])[0])
    with stage("tuning the fixed policies by replay", settings * len(trace.requests)) as advance:
        report = tune([trace], [cost], FAMILIES, lambda steps: advance(steps=steps))
    best = {row.family: row.spec for row in report.winners(cost.name)}
    winners = {family: best[family] for family in FAMILIES if family in best}
    _keep(path, winners)
    return winners


def tune_rivals(
    decoder: RivalDecoder, prompts: Sequence[Sequence[int]], max_new_tokens: int, path: Path, stage: Stage
) -> tuple[Rival, ...]:
    """The fastest assisted generation and the fastest prompt lookup over `prompts` (token ids); kept in `path`.

    Settings take turns on each prompt. Raises `OSError` where `path` cannot be written.
    """
    from treewise.engine.rivals import Rival

    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Rival(row["way"], row["tokens"], row["threshold"]) for row in kept)
    grid = [Rival("lookup"), *(Rival("lookup", tokens) for tokens in LOOKUP_GRID)]
    if decoder.pair.draft is not None:
        assisted = [Rival("assisted", tokens, limit) for tokens in ASSISTED_TOKENS for limit in (None, 0.0)]
        grid = [Rival("assisted"), *assisted, *grid]
    seconds = dict.fromkeys(grid, 0.0)
    with stage("tuning transformers on other prompts", len(grid) * len(prompts)) as advance:
        for number, prompt in enumerate(prompts):
            turn = number % len(grid)
            if number == 0:  # nothing is slow the first time
                for way in dict.fromkeys(rival.way for rival in grid):
                    decoder.decode(Rival(way), prompt, 4)
            for rival in grid[turn:] + grid[:turn]:
                answer = decoder.decode(rival, prompt, max_new_tokens)
                seconds[rival] += answer.seconds / max(len(answer.tokens), 1)
                advance(rival.spec)
    ways = dict.fromkeys(rival.way for rival in grid)
    best = tuple(min((rival for rival in grid if rival.way == way), key=lambda rival: seconds[rival]) for way in ways)
    _keep(path, [{"way": rival.way, "tokens": rival.tokens, "threshold": rival.threshold} for rival in best])
    return best


def _arm(name: str, rival: Rival) -> Arm:
    return Arm(name, rival.spec, rival)


def _keep(path: Path, value: object) -> None:
    from treewise.engine.hub import write_atomically

    write_atomically(path, (json.dumps(value) + "\n").encode("utf-8"))
