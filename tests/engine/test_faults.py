"""Faults that cost guesses or time, and never the text."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.driving import INVENTIVE, OPEN, PROMPT, checked_rounds, engine_of
from tests.engine.tiny import NARROW, VOCAB, RandomPolicy, example_cost, pair_of, plain_text, tiny_pair
from tests.house.layout import ROOT
from treewise.data.envelope import Envelope
from treewise.data.errors import AcceptanceWarning, ModelOutputError, ParameterError
from treewise.data.trace_reader import TraceReader
from treewise.engine.acceptance import FLOOR_ROUNDS
from treewise.engine.decode import Engine, EngineSettings
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, BoolArray, Expansion, ForestView, Level, RoundOutcome


@contextmanager
def spoilt(module: torch.nn.Module, value: float, from_call: int = 1) -> Iterator[None]:
    """Let the output of `module` hold `value` from its nth call on."""
    calls = 0

    def spoil(module: torch.nn.Module, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < from_call:
            return output
        output = output.clone()
        output[..., 0] = value
        return output

    hook = module.register_forward_hook(spoil)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.5)])
def test_broken_target_logits_are_an_error(value: float, sampling: Sampling) -> None:
    pair = tiny_pair("pruned")
    engine = engine_of(pair)
    with spoilt(pair.target.get_output_embeddings(), value), pytest.raises(ModelOutputError, match="must be finite"):
        engine.generate(PROMPT, 8, sampling)
    assert engine.generate(PROMPT, 8, sampling).tokens == plain_text(pair, PROMPT, 8, sampling)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_draft_logits_cost_guesses_and_nothing_else(value: float) -> None:
    pair = tiny_pair("other")
    assert pair.draft is not None
    with spoilt(pair.draft.model.get_submodule("norm"), value, from_call=4):
        engine = engine_of(pair, "topn:12x3", use_lookup=False, use_recycled=False)
        completion = engine.generate(PROMPT, 16)
        assert engine._draft is not None and engine._draft.num_unhealthy > 0
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.fallbacks == 0
    assert completion.verified_nodes[-2] == 0


class Broken(EverythingPolicy):
    """Goes wrong in one way, from its second round on."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.rounds = 0

    def expand(self, level: Level) -> Expansion:
        answer = super().expand(level)
        spoilt: Any = answer.grow * np.float32(np.nan)
        if self.rounds == 0 or level.index == 0:
            return answer
        if self.way == "raises":
            raise ZeroDivisionError("out of guesses")
        if self.way == "shape":
            return Expansion(answer.admit[:-1], answer.grow)
        if self.way == "nan":
            return Expansion(answer.admit, spoilt)
        if self.way == "grows":  # what it does not admit
            return Expansion(np.zeros_like(answer.admit), np.full_like(answer.grow, DRAFT))
        return answer

    def select(self, forest: ForestView) -> BoolArray:
        if self.way == "select" and self.rounds:
            return np.asarray([np.nan] * 3)
        if self.way == "slow" and self.rounds:
            time.sleep(0.05)
        return super().select(forest)

    def observe(self, outcome: RoundOutcome) -> None:
        self.rounds += 1
        if self.way == "observe":
            raise ValueError("saw too much")


@pytest.mark.parametrize("way", ["raises", "shape", "nan", "grows", "select", "observe"])
def test_a_policy_that_goes_wrong_loses_nothing(way: str) -> None:
    pair = tiny_pair("other")
    engine = engine_of(pair, Broken(way))
    with pytest.warns(RuntimeWarning, match="polic"):
        completion = engine.generate(PROMPT, 16)
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.fallbacks == (0 if way == "observe" else completion.num_rounds - 1)
    assert completion.suspensions == 0


def test_a_slow_policy_is_suspended_and_loses_nothing() -> None:
    pair = tiny_pair("other")

    class Slow(Broken):
        def expand(self, level: Level) -> Expansion:
            time.sleep(0.02)
            return super().expand(level)

    engine = Engine(pair, Slow("slow"), example_cost(), EngineSettings(envelope=NARROW, time_limit_ms=10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        completion = engine.generate(PROMPT, 16)
    assert completion.tokens == plain_text(pair, PROMPT, 16, Sampling())
    assert completion.suspensions == completion.num_rounds - 1
    assert completion.fallbacks == 0


def test_rounds_may_be_abandoned() -> None:
    pair = tiny_pair("pruned")
    engine = engine_of(pair, "everything")
    expected = plain_text(pair, PROMPT, 20, Sampling())
    abandoned = engine.rounds(PROMPT[::-1], 20)
    next(abandoned)
    next(abandoned)
    assert engine.generate(PROMPT, 20).tokens == expected
    with pytest.raises(ParameterError, match="rounds must be taken before the engine's next request begins"):
        next(abandoned)
    del abandoned
    gc.collect()
    assert engine.generate(PROMPT, 20).tokens == expected


def test_two_engines_in_two_threads_share_a_pair() -> None:
    pair = tiny_pair("pruned")
    prompts = [PROMPT, PROMPT[::-1]]
    expected = [plain_text(pair, prompt, 24, Sampling()) for prompt in prompts]
    found: list[list[tuple[int, ...]]] = [[], []]
    engines = [engine_of(pair, "everything"), engine_of(pair, "topn:12x3")]

    def work(number: int) -> None:
        for _ in range(3):
            found[number].append(engines[number].generate(prompts[number], 24).tokens)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[text] * 3 for text in expected]


def test_caches_do_not_grow_from_round_to_round() -> None:
    engine = engine_of(tiny_pair("other"), RandomPolicy(1))
    sizes = set()
    rounds = 0
    while rounds < 300:
        for _ in checked_rounds(engine, PROMPT, 40, Sampling(1.0, seed=rounds)):
            rounds += 1
        assert engine._draft is not None
        caches = engine._target.tree_model.cache, engine._draft.tree_model.cache
        sizes.add(tuple(layer.capacity for cache in caches for layer in cache.tree_layers))
    assert len(sizes) == 1


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_guess_is_deeper_than_the_tokens_that_remain(limit: int) -> None:
    pair = tiny_pair("same")
    for spec in ("chain:4,sources=draft", "chain:4,sources=lookup", "everything"):
        engine = engine_of(pair, spec, envelope=OPEN if spec != "everything" else NARROW)
        records = list(checked_rounds(engine, INVENTIVE, limit))
        text = tuple(token for record in records for token in record.committed)
        assert text == plain_text(pair, INVENTIVE, limit, Sampling())
        assert len(text) == limit
        for record in records:
            left = int(record.context.remaining_tokens[0])
            assert record.tree.forest.column("depth").max() <= max(left - 1, 0)
            assert len(record.committed) == int(record.walk.accepted_length[0]) + 1


def contrary(pair: Pair) -> Pair:
    """The pair with a draft that likes best what the target likes least."""
    assert pair.draft is not None
    return pair_of(pair.target, replace(pair.draft, head_weight=-pair.draft.head_weight))


def test_a_draft_that_never_agrees_is_told_of_once() -> None:
    pair = contrary(tiny_pair("same"))
    engine = engine_of(pair, "chain:1,sources=draft", use_lookup=False, envelope=OPEN)
    expected = plain_text(pair, PROMPT, 40, Sampling())
    drafted = 0
    with pytest.warns(AcceptanceWarning, match=f"none was accepted in {FLOOR_ROUNDS} rounds") as told:
        for _ in range(3):
            completion = engine.generate(PROMPT, 40)
            assert completion.tokens == expected
            assert set(completion.accepted_lengths) == {0}
            drafted += sum(nodes > 0 for nodes in completion.verified_nodes)
    assert drafted > FLOOR_ROUNDS + 30
    assert len(told) == 1


def test_a_draft_that_agrees_now_and_then_is_not_told_of() -> None:
    engine = engine_of(tiny_pair("pruned"), "chain:1,sources=draft", use_lookup=False, envelope=OPEN)
    accepted = sum(sum(engine.generate(PROMPT, 40, Sampling(1.0, seed=seed)).accepted_lengths) for seed in range(2))
    assert accepted > 0
    assert engine._watch.num_rounds < FLOOR_ROUNDS


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=2), Sampling(0.8, top_k=5, seed=2)])
def test_ids_out_of_the_vocabulary_are_never_guessed(sampling: Sampling) -> None:
    """A draft whose head names tokens that the target does not have, and likes them best."""
    pair = tiny_pair("same")
    assert pair.draft is not None
    ids = np.concatenate([np.arange(VOCAB), [VOCAB, VOCAB + 7, -1, -3]]).astype(np.int32)
    weight = torch.cat([pair.draft.head_weight, 3.0 * pair.draft.head_weight[:4]])
    strange = pair_of(pair.target, replace(pair.draft, head_weight=weight, head_token_ids=ids))
    expected = plain_text(pair, PROMPT, 30, sampling)
    engine = engine_of(strange, "everything")
    guessed = set()
    for record in checked_rounds(engine, PROMPT, 30, sampling):
        guessed.update(record.tree.forest.column("token").tolist())
        assert not record.fallback
    assert guessed <= set(range(VOCAB))
    assert engine.generate(PROMPT, 30, sampling).tokens == expected


def test_a_thousand_rounds_do_not_grow_memory() -> None:
    engine = engine_of(tiny_pair("pruned"), "chain:1", envelope=Envelope(max_depth=2))
    rounds = 0

    def run(until: int) -> tuple[int, int]:
        """Blocks that Python holds and objects that it tracks, after so many rounds."""
        nonlocal rounds
        while rounds < until:
            rounds += engine.generate(PROMPT, 50, Sampling(1.0, seed=rounds)).num_rounds
        gc.collect()
        return sys.getallocatedblocks(), len(gc.get_objects())

    blocks, objects = run(100)  # caches, buffers and whatever is loaded late
    more_blocks, more_objects = run(1100)
    # One block or object kept every round would be a thousand.
    assert more_blocks - blocks < 500
    assert more_objects - objects < 100


COLLECTING = """
import sys
from pathlib import Path
from tests.engine.tiny import example_cost, lax_settings, tiny_pair
from treewise.data.prompt_set import Prompt
from treewise.engine import collect
collect.encode_prompt = lambda pair, text: [int(word) for word in text.split()]
prompts = [Prompt(f"p{number}", "chat", f"{number % 7} 3 7 1 3 7") for number in range(500)]
settings = collect.CollectSettings(max_new_tokens=30, shard_rounds=1)
print("ready", flush=True)
collect.collect_live(tiny_pair("pruned"), "topn:4x2", example_cost(), prompts, Path(sys.argv[1]), settings,
                     lax_settings(), lambda prompt_id, count: print(prompt_id, flush=True))
"""


def test_a_process_killed_between_rounds_leaves_whole_files(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    child = subprocess.Popen(
        [sys.executable, "-c", COLLECTING, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        told = [child.stdout.readline().strip() for _ in range(6)]
        time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert told == ["ready", "p0", "p1", "p2", "p3", "p4"]
    reader = TraceReader(folder)
    shard = reader.read_all()  # every shard that stands there is whole
    shard.check()
    found = set(shard.rounds.prompt_id.tolist())
    assert {"p0", "p1", "p2", "p3"} <= found
    for prompt_id in found:
        mine = shard.rounds.prompt_id == prompt_id
        assert shard.rounds.finish[mine].tolist()[-1] == "length"  # no request was cut
