"""llama.cpp: a draft model for `llama_cpp.Llama(draft_model=...)`, suffix lookup and a policy for its length.

The interface, read at llama-cpp-python 0.3.35 (`llama_cpp/llama_speculative.py`, `Llama.generate`): a callable that is
given all committed tokens, prompt first, and returns the tokens to verify next, as many as it likes; `Llama` cuts them
at the end of its context. One sequence at a time. Nothing tells it what was accepted: the next call's tokens do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError
from treewise.engine.lookup_chains import LookupChain, LookupChains, LookupChainSettings
from treewise.engine.tried_versions import warn_if_untried
from treewise.policy.controller import ControllerCounters

TRIED_VERSIONS = ("0.3.35",)


class TreewiseDraftModel:
    """A draft length per call for llama-cpp-python; no subclass of its `LlamaDraftModel`, which is only ever called.

    A policy that fails or dawdles leaves the call to the lookup's plain rule, counted in `counters`.

    Args:
        vocab_size: of the model: `Llama.n_vocab()`.
        settings: policy, cost profile, longest chain, time limit.
    """

    def __init__(self, vocab_size: int, settings: LookupChainSettings | None = None) -> None:
        warn_if_untried("llama-cpp-python", TRIED_VERSIONS)
        self._chains = LookupChains(vocab_size, settings)
        self._chain: LookupChain | None = None

    @property
    def counters(self) -> ControllerCounters:
        """Of all requests."""
        return self._chains.counters

    def __call__(self, input_ids: NDArray[np.intc], /, **kwargs: Any) -> NDArray[np.intc]:
        """Guesses behind `input_ids` [tokens], [guesses]; none where the lookup knows nothing.

        Tokens that do not continue the last call's begin a new request. A text of the settings' `max_text_tokens` or
        more ends it: no guesses. Raises `ParameterError` on keywords, which the
        versions that were tried do not pass.
        """
        if kwargs:
            raise ParameterError(
                f"keywords must be none, as llama-cpp-python {', '.join(TRIED_VERSIONS)} calls it, got {sorted(kwargs)}"
            )
        text = np.asarray(input_ids)
        is_full = text.size >= self._chains.settings.max_text_tokens
        if self._chain is not None and (is_full or not self._chain.continues(text)):
            self.reset()
        if is_full:
            return np.zeros(0, dtype=np.intc)
        if self._chain is None:
            self._chain = self._chains.start(text)
        return np.asarray(self._chains.propose(self._chain, text), dtype=np.intc)

    def reset(self) -> None:
        """End the request; the next call begins another."""
        if self._chain is not None:
            self._chains.drop(self._chain)
            self._chain = None
