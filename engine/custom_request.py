"""What one `generate` call asks of a custom loop: read where it can be honoured, refused by name where not."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation.logits_process import LogitNormalization

from treewise.data.errors import ParameterError
from treewise.engine.processors import check_processors
from treewise.engine.sampling import Sampling

CACHE_NAMES = ("cache", "past_key_values")  # renamed in transformers 5.24
HONOURED_INPUTS = ("attention_mask", "position_ids", "cache_position", "logits_to_keep", "use_cache", *CACHE_NAMES)
# In the order of `generate` and of `Sampling`: type, the processor's attribute, the sampling field.
WARPERS = (
    (TemperatureLogitsWarper, "temperature", "temperature"),
    (TopKLogitsWarper, "top_k", "top_k"),
    (TopPLogitsWarper, "top_p", "top_p"),
    (MinPLogitsWarper, "min_p", "min_p"),
    (TypicalLogitsWarper, "mass", "typical_p"),
)
# Settings that no logits processor stands for -> the values that ask for nothing.
REFUSED_SETTINGS: Mapping[str, tuple[object, ...]] = {
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
    "use_mtp": (None, False),
    "prefill_chunk_size": (None,),
    "cache_implementation": (None, "dynamic"),
    "use_cache": (None, True),
    "output_scores": (None, False),
    "output_logits": (None, False),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
}


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One call, in the engine's words."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling  # seed 0: the caller's own is put in its place
    eos_token_ids: tuple[int, ...]
    streamer: Any  # has `put` and `end`; None: nobody listens


def read_request(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    processors: LogitsProcessorList,
    config: GenerationConfig,
    extras: Mapping[str, Any],
) -> GenerateRequest:
    """The call as the engine can run it.

    Args:
        input_ids: [1, tokens] the prompt.
        config: as `generate` completed it.
        extras: everything else that `generate` passed.

    Raises:
        ParameterError: something that cannot be honoured, by name.
    """
    lost = {**_arguments_of_generate(), **{name: value for name, value in extras.items() if value is not None}}
    if model.config.is_encoder_decoder:
        raise ParameterError("model must be decoder-only for tree decoding, got an encoder-decoder")
    if model.training:
        raise ParameterError("model must be in eval mode (call model.eval()), got one in training mode")
    for name in ("assistant_model", "synced_gpus", "negative_prompt_ids"):
        if lost.get(name):
            raise ParameterError(f"{name} must be left out for tree decoding, got {type(lost[name]).__name__}")
    check_processors(config)
    for name, idle in REFUSED_SETTINGS.items():
        value = getattr(config, name, None)
        if value not in idle:
            raise ParameterError(f"{name} must be {idle[-1]} or left out for tree decoding, got {value!r}")
    if input_ids.dim() != 2 or input_ids.shape[0] != 1 or input_ids.shape[1] == 0:
        shape = list(input_ids.shape)
        raise ParameterError(f"inputs must be one prompt of token ids [1, tokens] for tree decoding, got {shape}")
    _check_inputs(input_ids, extras)
    if config.max_length is None:
        raise ParameterError("max_new_tokens or max_length must be given, got neither")
    ends = getattr(config, "_eos_token_tensor", None)
    return GenerateRequest(
        prompt=tuple(int(token) for token in input_ids[0].tolist()),
        max_new_tokens=int(config.max_length) - input_ids.shape[1],
        sampling=read_sampling(processors, sampled=bool(config.do_sample)),
        eos_token_ids=() if ends is None else tuple(sorted(int(token) for token in ends.reshape(-1).tolist())),
        streamer=lost.get("streamer"),
    )


def read_sampling(processors: LogitsProcessorList, *, sampled: bool) -> Sampling:
    """The warped distribution that `processors` describe, with seed 0.

    Temperature, top-k, top-p, min-p and typical-p in `generate`'s order, each once. Everything else is refused:
    processors that read the text would have to be applied along every path of the tree.

    Raises:
        ParameterError: names the processor.
    """
    values: dict[str, Any] = {"temperature": 1.0 if sampled else 0.0}
    order = -1
    for processor in processors:
        if type(processor) is LogitNormalization:
            continue  # shifts all scores of a row alike
        places = [place for place, (kind, _, _) in enumerate(WARPERS) if type(processor) is kind]
        plain = getattr(processor, "filter_value", -float("inf")) == -float("inf")
        if not (sampled and places and places[0] > order and plain and _keeps_one(processor)):
            allowed = "temperature, top_k, top_p, min_p and typical_p of a sampled call, in this order"
            raise ParameterError(f"logits processors must be {allowed}, got {type(processor).__name__}")
        order = places[0]
        _, attribute, field = WARPERS[order]
        values[field] = getattr(processor, attribute)
    return Sampling(**values)


def _keeps_one(processor: Any) -> bool:
    return int(getattr(processor, "min_tokens_to_keep", 1)) == 1


def _check_inputs(input_ids: torch.Tensor, extras: Mapping[str, Any]) -> None:
    """Refuse model inputs other than a whole prompt in its natural place."""
    for name, value in extras.items():
        if name not in (*HONOURED_INPUTS, "synced_gpus", "streamer") and value is not None:
            raise ParameterError(f"{name} must be left out for tree decoding, got {type(value).__name__}")
    mask, positions = extras.get("attention_mask"), extras.get("position_ids")
    if mask is not None and not bool((mask == 1).all()):
        rule = "all ones (`generate` makes zeros of its own where the prompt holds pad_token_id; pass a mask then)"
        raise ParameterError(f"attention_mask must be {rule}, got zeros in it")
    if positions is not None and positions.reshape(-1).tolist() != list(range(input_ids.shape[1])):
        raise ParameterError("position_ids must count from 0, got others")
    for name in CACHE_NAMES:
        cache = extras.get(name)
        if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length() > 0):
            rule = "left out (tree decoding keeps a cache that it can roll back)"
            raise ParameterError(f"{name} must be {rule}, got {type(cache).__name__}")


def _arguments_of_generate() -> dict[str, Any]:
    """The arguments of the running `generate` that transformers does not hand to a callable.

    It drops `streamer` and `assistant_model` without a word before it calls: a dropped streamer would leave whoever
    reads it waiting for ever, a dropped assistant would be a setting that nothing reads. Empty outside `generate`.
    """
    code: CodeType = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None:
        return {}
    names = ("streamer", "assistant_model", "synced_gpus", "negative_prompt_ids")
    return {name: frame.f_locals[name] for name in names if frame.f_locals.get(name) is not None}
