"""Batched plain decoding says what decoding one by one says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.disk_pairs import write_model
from treewise.data.errors import ParameterError
from treewise.engine.batch_decode import DecodeRow, decode_batch, decode_with_states, grouped_attention
from treewise.engine.pair import Pair, load_pair

PROMPTS = ([5, 6, 7, 8, 9], [10], [20, 21, 22], [30, 31, 32, 33, 34, 35, 36])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder: Path = write_model(tmp_path_factory.mktemp("target"), seed=4)
    return load_pair(str(folder), "none", dtype=torch.float64)


def one_by_one(pair: Pair, prompt: list[int], length: int, eos: int | None) -> list[int]:
    text = list(prompt)
    with torch.no_grad():
        for _ in range(length):
            text.append(int(pair.target(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
            if text[-1] == eos:
                break
    return text[len(prompt) :]


def test_greedy_rows_equal_decoding_alone(pair: Pair) -> None:
    rows = [DecodeRow(prompt, 0.0, [0]) for prompt in PROMPTS]
    expected = [one_by_one(pair, prompt, 12, None) for prompt in PROMPTS]
    assert decode_batch(pair.target, rows, max_new_tokens=12, eos_ids=[]) == expected


def test_finished_rows_leave_and_the_others_are_not_disturbed(pair: Pair) -> None:
    # The EOS is what the first answer says third: rows end at different steps, and the batch is compacted.
    eos = one_by_one(pair, PROMPTS[0], 3, None)[-1]
    rows = [DecodeRow(prompt, 0.0, [0]) for prompt in PROMPTS]
    expected = [one_by_one(pair, prompt, 12, eos) for prompt in PROMPTS]
    assert min(map(len, expected)) <= 3 < max(map(len, expected))
    assert decode_batch(pair.target, rows, max_new_tokens=12, eos_ids=[eos]) == expected


def test_states_on_the_way_are_those_of_a_pass_over_the_whole_text(pair: Pair) -> None:
    eos = one_by_one(pair, PROMPTS[0], 3, None)[-1]
    rows = [DecodeRow(prompt, 0.0, [0]) for prompt in PROMPTS]
    answers, states = decode_with_states(pair.target, rows, max_new_tokens=12, eos_ids=[eos])
    assert answers == decode_batch(pair.target, rows, max_new_tokens=12, eos_ids=[eos])
    assert min(map(len, answers)) <= 3 < max(map(len, answers)) == 12  # one row ends early, one at its limit
    for prompt, answer, kept in zip(PROMPTS, answers, states, strict=True):
        with torch.no_grad():
            expected = pair.target.model(input_ids=torch.tensor([prompt + answer]), use_cache=False).last_hidden_state
        assert kept.dtype == torch.float16 and torch.allclose(kept.double(), expected[0], atol=2e-3)


def test_sampled_rows_depend_on_their_seed_and_not_on_their_batch(pair: Pair) -> None:
    rows = [DecodeRow(PROMPTS[0], 1.0, [3, index]) for index in range(6)]
    together = decode_batch(pair.target, rows, max_new_tokens=8, eos_ids=[])
    alone = [decode_batch(pair.target, [row], max_new_tokens=8, eos_ids=[])[0] for row in rows]
    assert together == alone
    assert len({tuple(answer) for answer in together}) == 6


def test_sampling_follows_the_target(pair: Pair) -> None:
    rows = [DecodeRow(PROMPTS[1], 0.5, [7, index]) for index in range(4000)]
    first = torch.tensor(decode_batch(pair.target, rows, max_new_tokens=1, eos_ids=[])).flatten()
    with torch.no_grad():
        law = (pair.target(input_ids=torch.tensor([PROMPTS[1]])).logits[0, -1] / 0.5).softmax(-1)
    share = torch.bincount(first, minlength=len(law)) / len(rows)
    likely = law > 0.005
    spread = (law * (1 - law) / len(rows)).sqrt()
    # Five standard errors: a false alarm in fewer than one of 10,000 runs for the tens of tokens compared.
    assert bool(((share - law).abs() < 5 * spread)[likely].all())


def test_the_target_gets_its_attention_back(pair: Pair) -> None:
    with pytest.raises(RuntimeError, match="inside"), grouped_attention(pair.target):
        assert pair.target.config._attn_implementation != "sdpa"
        raise RuntimeError("inside")
    assert pair.target.config._attn_implementation == "sdpa"


def test_empty_batches_and_prompts_are_refused(pair: Pair) -> None:
    for rows in ([], [DecodeRow([], 0.0, [0])]):
        with pytest.raises(ParameterError, match="rows must be non-empty prompts"):
            decode_batch(pair.target, rows, max_new_tokens=4, eos_ids=[])
    with pytest.raises(ParameterError, match="max_new_tokens must be >= 1, got 0"):
        decode_batch(pair.target, [DecodeRow([1], 0.0, [0])], max_new_tokens=0, eos_ids=[])
