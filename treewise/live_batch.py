"""Live decoding of prompts side by side, with several policies in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from treewise.live import PLAIN, LiveRun, policy_for, told_of
from treewise.texts import Divergence, first_divergence

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.data.prompt_set import Prompt
    from treewise.engine.completion import Completion
    from treewise.engine.engine_settings import EngineSettings
    from treewise.engine.pair import Pair
    from treewise.engine.sampling import Sampling

TURN_BATCHES = 4  # batches of prompts that a policy decodes before the next one takes its turn


def run_live_batched(
    pair: Pair,
    cost: CostProfile,
    policies: Sequence[str],
    prompts: Mapping[str, Sequence[int]],
    max_new_tokens: int,
    batch_size: int,
    sampling: Sampling | None = None,
    settings: EngineSettings | None = None,
    advance: Callable[[str], None] = lambda word: None,
    has_plain: bool = True,
    asked: Mapping[str, Prompt] | None = None,
) -> LiveRun:
    """As `treewise.live.run_live`, with up to `batch_size` prompts side by side.

    Each joins when one before it is over. The policies take turns on every `TURN_BATCHES` batches of prompts. Times are
    each prompt's share. Raises `ParameterError` where `batch_size` is below 1, and as `BatchEngine` does.
    """
    from treewise.engine.batch import BatchEngine, BatchRequest
    from treewise.engine.sampling import Sampling

    chosen, known = sampling or Sampling(), asked or {}
    specs = list(dict.fromkeys([PLAIN, *policies] if has_plain else policies))
    engines: dict[str, BatchEngine] = {}
    for spec in specs:  # one at a time has requests in flight, so they share buffers and recordings
        first = next(iter(engines.values()), None)
        engines[spec] = BatchEngine(pair, policy_for(pair, spec), cost, settings, batch_size, first)
    answers: dict[str, list[Completion]] = {spec: [] for spec in specs}
    names = list(prompts)
    for number, start in enumerate(range(0, len(names), TURN_BATCHES * batch_size)):
        group, turn = names[start : start + TURN_BATCHES * batch_size], number % len(specs)
        for spec in specs[turn:] + specs[:turn]:
            kinds = [told_of(engines[spec].policy, known.get(name)) for name in group]
            requests = [
                BatchRequest(prompts[name], max_new_tokens, chosen, kind)
                for name, kind in zip(group, kinds, strict=True)
            ]
            answers[spec].extend(engines[spec].generate_many(requests))
            for name in group:
                advance(f"{spec.partition(':')[0]} on {name}")
    divergences: dict[str, tuple[Divergence | None, ...]] = {}
    for spec in specs:
        pairs = zip(prompts.values(), answers[specs[0]], answers[spec], strict=True)
        divergences[spec] = tuple(
            first_divergence(pair, ids, expected.tokens, found.tokens, chosen) for ids, expected, found in pairs
        )
    return LiveRun(tuple(prompts), {spec: tuple(given) for spec, given in answers.items()}, divergences)
