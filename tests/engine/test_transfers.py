"""What crosses from the device to the host in a round: one copy a growth and one at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.tiny import RandomPolicy, example_cost, lax_settings, plain_text, tiny_pair
from tests.house.layout import ROOT
from treewise.engine import host
from treewise.engine.batch import BatchEngine, BatchRequest
from treewise.engine.decode import Engine
from treewise.engine.sampling import Sampling
from treewise.engine.split_attention import use_attention
from treewise.policy.outcome import RoundRecord

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
# What runs between two rounds of an engine.
LIVE: tuple[str, ...] = (
    "batch",
    "batch_draft",
    "batch_target",
    "cache",
    "captured_model",
    "decode",
    "draft_head",
    "drafted_text",
)
LIVE += ("captured_slot_model", "noise", "pass_timer", "recorded_passes", "slot_rows", "static_slot_model")
LIVE += ("live_draft", "live_request", "live_target", "round_driver", "sampling", "slot_cache", "slot_model", "spoken")
LIVE += ("split_attention", "static_cache", "static_model", "top_guesses", "tree_model", "verification")


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of the copies so far."""
    found: list[int] = []

    def counting(values: torch.Tensor, real: Any = host.to_host) -> NDArray[Any]:
        found.append(values.numel())
        return np.asarray(real(values))

    monkeypatch.setattr(host, "to_host", counting)
    yield found


def summary(record: RoundRecord) -> tuple[object, ...]:
    """What a round decided and brought."""
    context = record.context
    signals = (context.target_entropy.tolist(), context.target_margin.tolist())
    return record.committed, record.accepted_length, record.tree.kept.tolist(), repr(signals), record.draft_agrees


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=3)])
def test_a_round_takes_one_copy_a_growth_and_one_more(sampling: Sampling, copies: list[int]) -> None:
    pair = tiny_pair("pruned")
    engine = Engine(pair, RandomPolicy(2), example_cost(), lax_settings(reads_ahead=True))
    text: list[int] = []
    grown = set()
    steps = engine.rounds(PROMPT, 24, sampling)
    while True:
        copies.clear()
        record = next(steps, None)
        if record is None:
            break
        assert len(copies) == len(record.growth_tokens) + 1
        grown.add(len(record.growth_tokens))
        text.extend(record.committed)
    assert len(grown) > 1  # plain rounds among them, and rounds of several levels
    assert tuple(text) == plain_text(pair, PROMPT, 24, sampling)


@pytest.mark.parametrize("passes", ["eager", "static"])
def test_a_round_of_several_requests_takes_no_more(passes: str, copies: list[int]) -> None:
    how = lax_settings(reads_ahead=True, passes=passes)
    engine = BatchEngine(tiny_pair("same"), RandomPolicy(2), example_cost(), how, max_batch=3)
    for number in range(5):
        engine.submit(BatchRequest(PROMPT[number:], 12 + number, Sampling(0.6 * (number % 2), seed=number)))
    rounds = 0
    while engine.in_flight or engine.num_waiting:
        copies.clear()
        records = engine.step()
        assert len(copies) <= max(len(record.growth_tokens) for record in records) + 1 + records[0].tree.policy_calls
        assert len(copies) == len(records[0].tree.growth_tokens) + 1
        rounds += 1
    assert rounds > 5


def test_top_k_costs_one_copy_more_a_growth_and_rows_one_by_one(copies: list[int]) -> None:
    pair, sampling = tiny_pair("pruned"), Sampling(0.8, top_k=6, seed=3)
    engine = Engine(pair, RandomPolicy(2), example_cost(), lax_settings(reads_ahead=True))
    steps = engine.rounds(PROMPT, 16, sampling)
    while True:
        copies.clear()
        record = next(steps, None)
        if record is None:
            break
        # entropy and margin together, and what is remembered of the path
        assert len(copies) == 2 * len(record.growth_tokens) + len(record.walk.path_rows[0]) + 2


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=3)])
def test_reading_ahead_changes_nothing(sampling: Sampling) -> None:
    found = []
    for ahead in (False, True):
        engine = Engine(tiny_pair("cut"), RandomPolicy(5), example_cost(), lax_settings(reads_ahead=ahead))
        found.append([summary(record) for record in engine.rounds(PROMPT, 24, sampling)])
    assert found[0] == found[1] and len(found[0]) > 3


@pytest.mark.parametrize("passes", ["static", "captured"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=3)])
def test_static_passes_change_no_text(passes: str, sampling: Sampling) -> None:
    pair = tiny_pair("other")
    engine = Engine(pair, RandomPolicy(5), example_cost(), lax_settings(passes=passes))
    assert engine.deployment.padded_rows(3) == 4
    for prompt in (PROMPT, PROMPT[2:]):
        answer = engine.generate(prompt, 24, sampling)
        assert answer.tokens == plain_text(pair, prompt, 24, sampling)
        assert sum(answer.verified_nodes) > 0


@pytest.mark.parametrize("name", LIVE)
def test_nothing_crosses_beside_the_door(name: str) -> None:
    source = (ROOT / "engine" / f"{name}.py").read_text(encoding="utf-8")
    assert re.findall(r"\.(?:cpu|item|nonzero)\(|\bto\(\"cpu\"", source) == []
    assert re.findall(r"torch\.(?:as_tensor|tensor|from_numpy)\((?!flat|ids|scores)", source) == []


class Waits(TorchDispatchMode):
    """Notes the operations that wait for a device: those whose result or its size the host has to know."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "is_nonzero")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[str] = set()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.count += 1
        by_mask = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            at is not None and at.dtype == torch.bool for at in args[1]
        )
        if by_mask or any(name.startswith(word) for word in self.NAMES):
            self.found.add(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("passes", ["eager", "static"])
@pytest.mark.parametrize("attention", ["sdpa", "split"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, seed=3)])
def test_no_round_waits_for_the_device_but_where_it_reads(passes: str, attention: str, sampling: Sampling) -> None:
    pair, how = tiny_pair("cut"), lax_settings(reads_ahead=True, passes=passes)
    assert pair.draft is not None
    use_attention([pair.target, pair.draft.model], attention)
    try:
        batch = BatchEngine(pair, RandomPolicy(2), example_cost(), how, max_batch=2)
        for number in range(2):
            batch.submit(BatchRequest(PROMPT[number:], 12, sampling))
        batch.step()  # both have joined
        steps = Engine(pair, RandomPolicy(2), example_cost(), how).rounds(PROMPT, 12, sampling)
        next(steps)
        with Waits() as waits:
            for _ in range(3):
                batch.step()
                next(steps)
    finally:
        use_attention([pair.target, pair.draft.model], "sdpa")
    assert waits.found == set() and waits.count > 100


def test_what_is_read_together_keeps_shapes_and_whole_numbers() -> None:
    parts = host.read_together(
        torch.tensor([[2**24 - 1, 3]]), torch.tensor([True, False]), torch.zeros(0, 4), torch.tensor(1.5)
    )
    assert [part.shape for part in parts] == [(1, 2), (2,), (0, 4), ()]
    assert parts[0].tolist() == [[2**24 - 1, 3]] and parts[1].tolist() == [1.0, 0.0] and float(parts[3]) == 1.5
