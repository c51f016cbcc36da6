"""What a generation config may not ask of the logits: processors that see more than one row are refused by name.

Processors that read the text so far (penalties, bans, lengths, grammars) would have to be applied along every path of a
tree; until they are, decoding under them would not be plain decoding's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treewise.data.errors import ParameterError

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


def check_processors(config: object) -> None:
    """Raise `ParameterError`, naming it, where `config` asks for a processor that depends on more than one row."""
    for name, neutral in HISTORY_PROCESSORS.items():
        value = _value(config, name)
        if value is None or any(value == nothing for nothing in neutral):
            continue
        shown = [type(item).__name__ for item in value] if name == "logits_processor" and _is_listed(value) else value
        why = "its processor reads more than one position's logits"
        raise ParameterError(f"{name} must be off for tree decoding ({why}), got {shown!r}")


def _is_listed(value: object) -> bool:
    return isinstance(value, list | tuple)


def _value(config: object, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
