"""Models of random weights by shape."""

from __future__ import annotations

import pytest
import torch

from treewise.data.errors import ParameterError
from treewise.engine.predictable import make_predictable, text_behind
from treewise.engine.shapes import SHAPES, dtype_of, random_model, random_pair, random_prompts


@pytest.mark.parametrize("name", ["tiny", "tiny-draft"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp64"])
def test_a_model_has_the_sizes_of_its_shape(name: str, dtype: str) -> None:
    model = random_model(name, dtype_of(dtype))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype_of(dtype)}
    assert sum(parameter.numel() for parameter in model.parameters()) == SHAPES[name].num_parameters
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32  # whatever the weights are in
    assert torch.get_default_dtype() == torch.float32
    assert bool(torch.isfinite(model(input_ids=torch.arange(5)[None]).logits).all())


def test_sizes_are_those_that_the_names_say() -> None:
    billions = {name: shape.num_parameters / 1e9 for name, shape in SHAPES.items()}
    assert billions["llama-8b"] == pytest.approx(8.03, abs=0.01)
    assert billions["llama-1b"] == pytest.approx(1.236, abs=0.001)
    assert billions["smollm2-135m"] == pytest.approx(0.1345, abs=0.0001)


def test_a_pair_says_that_it_is_random() -> None:
    state = torch.random.get_rng_state()
    pair = random_pair("tiny", "tiny-draft")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert pair.name == "random:tiny+random:tiny-draft"
    again, other = random_pair("tiny", "tiny-draft"), random_pair("tiny", seed=4)
    assert again.description == pair.description and other.draft is None
    assert torch.equal(again.target.lm_head.weight, pair.target.lm_head.weight)
    assert other.description.target_sha256 != pair.description.target_sha256
    assert not torch.equal(other.target.lm_head.weight, pair.target.lm_head.weight)
    prompts = random_prompts(pair, 3, 7)
    assert [len(prompt) for prompt in prompts] == [7] * 3 and prompts[0] != prompts[1]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"shape must be one of llama-8b, .*, got 'gpt-9'"):
        random_pair("gpt-9")
    with pytest.raises(ParameterError, match="dtype must be one of bf16, fp16, fp32, fp64, got 'int8'"):
        dtype_of("int8")
    with pytest.raises(ParameterError, match="vocabulary of 64 tokens, got 'llama-1b' with 128256"):
        random_pair("tiny", "llama-1b")


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_predictable_target_says_its_cycle(dtype: str) -> None:
    model = random_model("tiny", dtype_of(dtype))
    successor = make_predictable(model, 3)
    text = text_behind(successor, [5, 9], 64)
    assert sorted(text[1:-1]) == list(range(64)) and text[-1] == 9  # one cycle through all tokens
    logits = model(input_ids=torch.tensor([text[:-1]])).logits[0].float()
    assert logits.argmax(-1).tolist()[1:] == text[2:]
    best = logits.topk(2).values[1:]
    assert float((best[:, 0] - best[:, 1]).min()) > 1.0
