"""What ranking the draft's candidates is worth above temperature 0: by replay, confirmed live, beside the law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treewise.bench_inputs import prompt_sampling
from treewise.bench_store import ResultStore, content_key
from treewise.data.cost import CostProfile
from treewise.data.envelope import PriorTable
from treewise.data.errors import require
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.ranking_table import CellKey, CellText, Law, Study, StudyCell, StudySettings
from treewise.stages import Stage, silent

if TYPE_CHECKING:
    from treewise.engine.coverage import Coverage
    from treewise.engine.decode import Engine
    from treewise.engine.pair import Pair
    from treewise.training.logged_trace import LoggedTrace
    from treewise.training.replay_result import ReplayResult

_UNREAD = "example-a100-70b"  # a static tree reads no price


def study_rankings(
    pair: Pair,
    prompts: Sequence[Prompt],
    settings: StudySettings | None = None,
    stage: Stage = silent,
    home: Path | None = None,
) -> Study:
    """Compare the rankings on `prompts`; the pair needs a draft. Traces and texts are kept under `home`, the user's
    cache by default, so an interrupted run goes on. Raises `ParameterError` on a pair without a draft."""
    from treewise.engine.hub import cache_home
    from treewise.policy.draft_ranking import PLAIN, RANKINGS

    settings = settings or StudySettings()
    require(pair.draft is not None, "pair", "one with a draft", pair.name)
    content = content_key([pair.description.to_json(), str(pair.target.dtype), prompts_sha256(prompts), str(settings)])
    home = (home or cache_home() / "rankings") / content
    store: ResultStore[CellKey, CellText] = ResultStore(home / "texts.jsonl", CellText.from_line)
    cells: list[StudyCell] = []
    for temperature in settings.temperatures:
        names = RANKINGS if temperature > 0.0 else (PLAIN,)
        traces = {name: _dense(pair, prompts, settings, temperature, name, home, stage) for name in names}
        laws = _laws(pair, prompts, traces[PLAIN], settings, temperature, stage)
        plain: dict[int, ReplayResult] = {}
        for name in names:
            for place, width in enumerate(settings.widths):
                result = _replayed(traces[name], settings, width)
                plain.setdefault(width, result)
                key = CellKey(temperature, name, width, "")
                live = (float("nan"), 0)
                if settings.is_live:
                    live = _decoded(pair, prompts, settings, key, store, stage)
                law = Law(float(laws.by_ranking[name][place]), float(laws.ceiling[place]), settings.depth)
                cells.append(_cell(key, result, plain[width], live, law))
    return Study(pair.name, settings, len(prompts), tuple(cells))


def _dense(
    pair: Pair,
    prompts: Sequence[Prompt],
    settings: StudySettings,
    temperature: float,
    ranking: str,
    home: Path,
    stage: Stage,
) -> LoggedTrace:
    from treewise.engine.collect import CollectSettings, collect_whole
    from treewise.training.logged_trace import open_trace

    folder = home / f"dense-{ranking}-{temperature:g}"
    chosen = CollectSettings(settings.max_new_tokens, temperature, ranking=ranking, shard_rounds=1)
    with stage(f"dense trace, {ranking} at {temperature:g}", len(prompts)) as advance:
        collect_whole(
            pair, prompts, folder, settings.envelope, PriorTable(), chosen, lambda prompt_id, count: advance(prompt_id)
        )
    return open_trace(folder)


def _replayed(trace: LoggedTrace, settings: StudySettings, width: int) -> ReplayResult:
    from treewise.policy.registry import parse_policy
    from treewise.training.replay import replay

    cost = CostProfile.load(_UNREAD)
    return replay(parse_policy(settings.spec(width)), trace.requests, trace.deployment(cost, settings.envelope))


def _laws(
    pair: Pair,
    prompts: Sequence[Prompt],
    trace: LoggedTrace,
    settings: StudySettings,
    temperature: float,
    stage: Stage,
) -> Coverage:
    """The law over every position of the trace's texts."""
    from treewise.engine.coverage import Coverage, coverage
    from treewise.engine.dense import KnownText
    from treewise.engine.pair import encode_prompt
    from treewise.engine.sampling import Sampling

    texts = {prompt.id: prompt.text for prompt in prompts}
    parts: list[Coverage] = []
    with stage(f"law at {temperature:g}", len(trace.requests)) as advance:
        for request in trace.requests:
            text = KnownText(
                request.prompt_id,
                request.task,
                tuple(encode_prompt(pair, texts[request.prompt_id])),
                tuple(request.text.tolist()),
                request.max_new_tokens,
                request.finish,
                temperature,
                request.seed,
            )
            parts.append(coverage(pair, text, Sampling(temperature, seed=request.seed), settings.widths))
            advance(request.prompt_id)
    weights = np.asarray([request.num_tokens for request in trace.requests], dtype=np.float64)
    return Coverage.mean(parts, weights)


def _decoded(
    pair: Pair,
    prompts: Sequence[Prompt],
    settings: StudySettings,
    cell: CellKey,
    store: ResultStore[CellKey, CellText],
    stage: Stage,
) -> tuple[float, int]:
    """Tokens per round of the live engine, and how many texts equal plain decoding's with the same seed."""
    engines = {0: _engine(pair, settings, "plain", cell.ranking), cell.width: None}
    tokens = rounds = identical = 0
    with stage(f"decoding {cell.ranking} width {cell.width} at {cell.temperature:g}", len(prompts)) as advance:
        for prompt in prompts:
            found = []
            for width in (0, cell.width):
                # Plain decoding draws no tree, so one text serves every ranking.
                key = replace(cell, ranking=cell.ranking if width else "plain", width=width, prompt_id=prompt.id)
                if key not in store:
                    engines[width] = engines[width] or _engine(pair, settings, settings.spec(width), cell.ranking)
                    store.add(_decode(pair, engines[width], key, prompt.text, settings))
                found.append(store[key])
            plain, tree = found
            tokens += len(tree.tokens)
            rounds += tree.rounds
            identical += plain.tokens == tree.tokens
            advance(prompt.id)
    return tokens / rounds, identical


def _engine(pair: Pair, settings: StudySettings, spec: str, ranking: str) -> Engine:
    from treewise.engine.decode import Engine, EngineSettings
    from treewise.policy.registry import parse_policy

    chosen = EngineSettings(settings.envelope, use_lookup=False, use_recycled=False, ranking=ranking, time_limit_ms=1e9)
    return Engine(pair, parse_policy(spec), CostProfile.load(_UNREAD), chosen)


def _decode(pair: Pair, engine: Engine | None, key: CellKey, text: str, settings: StudySettings) -> CellText:
    from treewise.engine.pair import encode_prompt

    assert engine is not None
    sampling = prompt_sampling(key.temperature, key.prompt_id)
    answer = engine.generate(encode_prompt(pair, text), settings.max_new_tokens, sampling)
    return CellText(key, answer.tokens, answer.num_rounds)


def _cell(key: CellKey, result: ReplayResult, plain: ReplayResult, live: tuple[float, int], law: Law) -> StudyCell:
    from treewise.training.statistics import Totals, speed_ratio

    ones = np.ones(len(result))
    tokens, rounds = result.by_request(result.committed_tokens), result.by_request(ones)
    mine = Totals(tokens, rounds)
    other = Totals(plain.by_request(plain.committed_tokens), plain.by_request(np.ones(len(plain))))
    return StudyCell(
        temperature=key.temperature,
        ranking=key.ranking,
        width=key.width,
        replayed=speed_ratio(mine, Totals(rounds, rounds)),
        over_plain=speed_ratio(mine, other),
        nodes=float(result.verified_nodes.mean()),
        live=live[0],
        identical=live[1],
        coverage=law.coverage,
        law=float(sum(law.coverage**depth for depth in range(law.depth + 1))),
        ceiling=law.ceiling,
    )
