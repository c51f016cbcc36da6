"""vLLM: a proposer class for `method: custom_class`, suffix lookup and a policy for its length.

    vllm serve MODEL --speculative-config '{"method": "custom_class", "num_speculative_tokens": 8,
        "model": "treewise.engine.vllm_proposer.TreewiseProposer"}'
        --additional-config '{"treewise": {"policy": "frontier", "cost": "profile.json"}}'

The interface, read at vLLM 0.33.0 (`vllm/v1/spec_decode/custom_class_proposer.py`, and model runner V1 in
`vllm/v1/worker/gpu_model_runner.py`): per step `propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu,
slot_mappings=...)`, where row i of all of them is one request of the batch, whose text is
`token_ids_cpu[i, :num_tokens_no_spec[i]]`, sampled tokens included. No request ids: rows move, so a row is known again
by its text.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import ParameterError, TreewiseError
from treewise.engine.lookup_chains import LookupChain, LookupChains, LookupChainSettings
from treewise.engine.tried_versions import warn_if_untried
from treewise.policy.controller import ControllerCounters

TRIED_VERSIONS = ("0.33.0",)
OPTIONS_VARIABLE = "TREEWISE_VLLM"  # a JSON object, over `additional_config["treewise"]`
OPTIONS = ("policy", "cost", "time_limit_ms")
IDLE_STEPS = 64  # steps that a request may sit out, preempted or unscheduled, before it is forgotten


class TreewiseProposer:
    """Chains of guesses per request, their length decided by a policy over the suffix lookup.

    Options: `policy` (spec string; without it the lookup's plain rule, `num_speculative_tokens` long), `cost` (profile
    file, needed beside a policy) and `time_limit_ms`. A policy that fails or dawdles leaves the round to the plain
    rule, counted in `counters`; a row that cannot be served gets no guesses, counted in `num_refused`.
    """

    def __init__(self, vllm_config: Any) -> None:
        warn_if_untried("vllm", TRIED_VERSIONS)
        tokens = int(_read(vllm_config, "speculative_config", "num_speculative_tokens"))
        self.max_model_len = int(_read(vllm_config, "model_config", "max_model_len"))
        vocab_size = int(_read(vllm_config, "model_config", "get_vocab_size")())
        self.settings = replace(
            LookupChainSettings(**options_of(vllm_config)), max_tokens=tokens, max_text_tokens=self.max_model_len
        )
        self._chains = LookupChains(vocab_size, self.settings)
        self._rows: dict[int, LookupChain] = {}  # row of the last step -> its request
        self._idle: dict[int, tuple[LookupChain, int]] = {}  # id of a request without a row -> it, steps left
        self.num_refused = 0  # rows without guesses because something about them broke a rule
        self.last_refusal: TreewiseError | None = None

    @property
    def counters(self) -> ControllerCounters:
        """Of all requests."""
        return self._chains.counters

    @property
    def num_requests(self) -> int:
        """Requests that are remembered."""
        return len(self._rows) + len(self._idle)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model to load."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: ArrayLike,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Guesses of every request of the batch, [requests] lists of at most `num_speculative_tokens` tokens.

        Args:
            sampled_token_ids: [requests] tokens that the last step committed; empty during prefill.
            num_tokens_no_spec: [rows] tokens of text, those included.
            token_ids_cpu: [rows, max_model_len] the texts, an array or a CPU tensor.
            slot_mappings: not read.
        """
        lengths, texts = self._checked(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        before, self._rows = self._rows, {}
        guesses: list[list[int]] = []
        for row, sampled in enumerate(sampled_token_ids):
            length = int(lengths[row])
            if not len(sampled) or length >= self.max_model_len:
                guesses.append([])  # still in prefill, or full
                continue
            guesses.append(self._guess(row, texts[row, :length], len(sampled), before))
        self._forget(before)
        return guesses

    def _guess(self, row: int, text: NDArray[Any], new_tokens: int, before: dict[int, LookupChain]) -> list[int]:
        """Guesses behind `text` [tokens], whose last `new_tokens` the last step committed."""
        try:
            chain = self._known(row, text, new_tokens, before) or self._chains.start(text)
            self._rows[row] = chain
            return self._chains.propose(chain, text, self.max_model_len - len(text))
        except TreewiseError as error:
            self.num_refused += 1
            self.last_refusal = error
            return []

    def _known(
        self, row: int, text: NDArray[Any], new_tokens: int, before: dict[int, LookupChain]
    ) -> LookupChain | None:
        """The request that `text` continues, out of the rows of the last step and those that sat out; its own row's
        first. It is taken: two rows of one text are two requests."""
        for place in itertools.chain((row,), before):
            if place in before and before[place].continues(text, new_tokens):
                return before.pop(place)
        for place, (chain, _) in self._idle.items():
            if chain.continues(text, new_tokens):
                del self._idle[place]
                return chain
        return None

    def _forget(self, left: dict[int, LookupChain]) -> None:
        """Let requests without a row age, and end those that sat out too long."""
        for place, (chain, steps) in list(self._idle.items()):
            if steps > 1:
                self._idle[place] = (chain, steps - 1)
            else:
                del self._idle[place]
                self._chains.drop(chain)
        for chain in left.values():
            self._idle[chain.request] = (chain, IDLE_STEPS)

    def _checked(
        self, sampled_token_ids: Any, num_tokens_no_spec: Any, token_ids_cpu: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        versions = f"as vllm {', '.join(TRIED_VERSIONS)} calls it"
        rows = sampled_token_ids if isinstance(sampled_token_ids, Sequence) else (None,)
        if not all(isinstance(row, Sequence) for row in rows):
            found = type(sampled_token_ids).__name__
            raise ParameterError(f"sampled_token_ids must be a list of token lists, {versions}, got {found}")
        count = len(sampled_token_ids)
        lengths = np.asarray(num_tokens_no_spec)
        lengths = np.repeat(lengths, count) if lengths.ndim == 0 else lengths
        lengths = lengths if lengths.size else lengths.astype(np.int64)  # an empty list has no whole type
        if lengths.ndim != 1 or len(lengths) < count or not np.issubdtype(lengths.dtype, np.integer):
            raise ParameterError(f"num_tokens_no_spec must be whole numbers a row, {versions}, got {lengths!r}")
        texts = np.asarray(token_ids_cpu)
        if texts.ndim != 2 or len(texts) < count or (count and int(lengths[:count].max()) > texts.shape[1]):
            raise ParameterError(f"token_ids_cpu must be token ids [rows, tokens], {versions}, got shape {texts.shape}")
        return lengths, texts


def options_of(vllm_config: Any, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The options of `additional_config["treewise"]`, those of the environment variable over them.

    Raises `ParameterError` on an unknown option or a value that is no JSON object.
    """
    extra = getattr(vllm_config, "additional_config", None)
    found = extra.get("treewise", {}) if isinstance(extra, Mapping) else {}
    text = environment.get(OPTIONS_VARIABLE, "")
    try:
        over = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise ParameterError(f"{OPTIONS_VARIABLE} must be a JSON object, got {text!r}") from error
    for name, part in (("additional_config treewise", found), (OPTIONS_VARIABLE, over)):
        if not isinstance(part, Mapping) or set(part) - set(OPTIONS):
            raise ParameterError(f"{name} must be a JSON object of {', '.join(OPTIONS)}, got {part!r}")
    return {**found, **over}


def _read(config: Any, *path: str) -> Any:
    """A value of vLLM's configuration. Raises `ParameterError` where this version has none."""
    value = config
    for name in path:
        value = getattr(value, name, None)
        if value is None:
            raise ParameterError(
                f"vllm_config must hold {'.'.join(path)}, as vllm {', '.join(TRIED_VERSIONS)} has it, got None"
            )
    return value
