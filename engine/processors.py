"""What a generation config asks of the logits: warpers become `Sampling`, everything else is refused by name.

Processors that read the text so far (penalties, bans, lengths, grammars) would have to be applied along every path of a
tree; until they are, decoding under them would not be plain decoding's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treewise.data.errors import ParameterError
from treewise.engine.sampling import Sampling

GENERATE_TOP_K = 50  # what transformers' `generate` takes for a top_k that nobody set

# name in a generation config -> the values under which it does nothing, None aside
HISTORY_PROCESSORS: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "diversity_penalty": (0.0,),
    "bad_words_ids": ((), []),
    "sequence_bias": ({}, [], ()),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "forced_decoder_ids": ((), []),
    "force_words_ids": ((), []),
    "constraints": ((), []),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "suppress_tokens": ((), []),
    "begin_suppress_tokens": ((), []),
    "guidance_scale": (1.0,),
    "remove_invalid_values": (False,),
    "watermarking_config": (),
    "prefix_allowed_tokens_fn": (),
    "grammar": (),
    "logits_processor": ((), []),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "token_healing": (False,),
}
OTHER_WARPERS: dict[str, tuple[Any, ...]] = {"epsilon_cutoff": (0.0, 1.0), "eta_cutoff": (0.0, 1.0), "top_h": ()}


def sampling_of(config: object, seed: int = 0) -> Sampling:
    """The sampling that `config` asks for, a transformers `GenerationConfig`, an object like it, or a mapping of names.

    Without `do_sample` it is greedy. What is not set counts as `generate` counts it: temperature 1, top-k 50, the
    others off.

    Raises:
        ParameterError: a processor that is not a function of one distribution, or a warper that treewise does not have.
    """
    check_processors(config)
    if not _value(config, "do_sample"):
        return Sampling(seed=seed)
    for name, neutral in OTHER_WARPERS.items():
        _refuse(config, name, neutral, "a warper that treewise does not have")
    return Sampling(
        temperature=float(_or(_value(config, "temperature"), 1.0)),
        top_k=int(_or(_value(config, "top_k"), GENERATE_TOP_K)),
        top_p=float(_or(_value(config, "top_p"), 1.0)),
        seed=seed,
        min_p=float(_or(_value(config, "min_p"), 0.0)),
        typical_p=float(_or(_value(config, "typical_p"), 1.0)),
    )


def check_processors(config: object) -> None:
    """Raise `ParameterError`, naming it, where `config` asks for a processor that depends on more than one row."""
    for name, neutral in HISTORY_PROCESSORS.items():
        _refuse(config, name, neutral, "its processor reads more than one position's logits")


def _refuse(config: object, name: str, neutral: tuple[Any, ...], why: str) -> None:
    value = _value(config, name)
    if value is None or any(value == nothing for nothing in neutral):
        return
    shown = [type(item).__name__ for item in value] if name == "logits_processor" and _is_listed(value) else value
    raise ParameterError(f"{name} must be off for tree decoding ({why}), got {shown!r}")


def _is_listed(value: object) -> bool:
    return isinstance(value, list | tuple)


def _value(config: object, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
