"""What chain mode reads of a batch, and how a bundle's growth model reads it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.envelope import PriorTable
from treewise.data.errors import ParameterError, require
from treewise.policy.features import growth_features
from treewise.policy.forest import Forest
from treewise.policy.hook import Float32Array, Int32Array
from treewise.policy.learned import AGREEMENT
from treewise.policy.progress import Progress, build_context
from treewise.policy.scorer import Scorer

Float64Array = NDArray[np.float64]

UNLIMITED = 1 << 30  # remaining tokens where nothing is said
_WHOLE = ("context_tokens", "generated_tokens", "remaining_tokens")


@dataclass(frozen=True, slots=True)
class ChainSignals:
    """What is known of every request of the batch before anything is drafted; NaN where unknown."""

    context_tokens: Int32Array  # [requests] tokens up to the root, itself included
    generated_tokens: Int32Array  # [requests] completion tokens so far
    remaining_tokens: Int32Array  # [requests] completion tokens that may still come
    accepted_recent: Float32Array  # [requests] moving average of accepted lengths
    draft_agreement: Float32Array  # [requests] recent share of tokens that were the draft's first choice
    lookup_agreement: Float32Array  # [requests] the same of a suffix lookup's first continuation
    lookup_match_length: Float32Array  # [requests] tokens of context matched by a suffix lookup; 0: none
    lookup_share: Float32Array  # [requests] share of its first continuation
    temperature: Float32Array  # [requests]

    def __post_init__(self) -> None:
        for item in fields(self):
            values = getattr(self, item.name)
            kinds = "iu" if item.name in _WHOLE else "iuf"
            if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds or values.ndim != 1:
                rule = f"an array of {'whole ' if kinds == 'iu' else ''}numbers (`ChainSignals.of` takes lists)"
                raise ParameterError(f"{item.name} must be {rule}, got {values!r}")
            require(not np.isinf(values).any(), item.name, "finite, NaN where unknown", values.tolist())
        count = len(self.context_tokens)
        require(count >= 1, "context_tokens", "one number per request, at least one", self.context_tokens)
        for item in fields(self):
            got = np.shape(getattr(self, item.name))
            require(got == (count,), item.name, f"one number for each of {count} requests", list(got))
        for name in _WHOLE:
            lowest = int(getattr(self, name).min())
            require(lowest >= 0, name, ">= 0", lowest)

    @classmethod
    def of(cls, context_tokens: ArrayLike, **known: ArrayLike) -> ChainSignals:
        """Signals of the requests with `context_tokens`; every other field by name, one number for all or [requests].

        What is left out is unknown; tokens generated so far are 0 then, remaining tokens without limit, temperature 0.
        Raises `ParameterError` on unknown names and on other shapes.
        """
        contexts = np.atleast_1d(np.asarray(context_tokens))
        names = [item.name for item in fields(cls)]
        if strays := sorted(set(known) - set(names)):
            raise ParameterError(f"signals must be among {', '.join(names)}, got {', '.join(strays)}")
        defaults: dict[str, ArrayLike] = {"generated_tokens": 0, "remaining_tokens": UNLIMITED, "temperature": 0.0}
        columns = {}
        for name in names:
            value = contexts if name == "context_tokens" else np.asarray(known.get(name, defaults.get(name, np.nan)))
            require(value.dtype.kind in "iuf", name, "numbers", value.tolist())
            try:
                whole = np.broadcast_to(value, contexts.shape)
            except ValueError:
                require(False, name, f"one number, or one for each of {len(contexts)} requests", list(value.shape))
            if name in _WHOLE:
                require(bool(np.isfinite(whole).all()), name, "known of every request", whole.tolist())
                columns[name] = np.minimum(whole, UNLIMITED).astype(np.int32)
            else:
                columns[name] = whole.astype(np.float32)
        return cls(**columns)

    @property
    def num_requests(self) -> int:
        """Requests of the batch."""
        return len(self.context_tokens)

    def agreement(self) -> Float64Array:
        """Chance that the draft's first choice is right, from recent experience alone, [requests].

        The draft's agreement where known, else a / (1 + a) of the mean accepted length a, as in a chain without end.
        """
        accepted = np.maximum(self.accepted_recent.astype(np.float64), 0.0)
        shown = np.where(np.isnan(self.draft_agreement), accepted / (1.0 + accepted), self.draft_agreement)
        return np.asarray(np.where(np.isnan(shown), AGREEMENT, shown))


def base_chance(signals: ChainSignals, growth: Scorer | None, table: PriorTable) -> Float64Array:
    """Chance that the first guess of a chain matches, before anything is drafted, [requests].

    The growth model says h, the chance that the draft holds the next token and the lookup does not. Where the lookup
    has a continuation of prior p, the draft may also be right together with it: h + p x the draft's recent agreement.
    Without a growth model the agreement alone. Not clipped; may be NaN where the model is.
    """
    agreement = signals.agreement()
    if growth is None:
        return agreement
    count = signals.num_requests
    forest = Forest()
    forest.append(count)
    forest.column("request")[:] = np.arange(count)
    forest.column("lookup_match_length")[:] = signals.lookup_match_length
    forest.column("lookup_share")[:] = signals.lookup_share
    context = replace(
        build_context([Progress(place, int(tokens), 1) for place, tokens in enumerate(signals.context_tokens)]),
        draft_agreement=np.where(np.isnan(signals.draft_agreement), agreement, signals.draft_agreement).astype(
            np.float32
        ),
        lookup_agreement=signals.lookup_agreement,
        temperature=signals.temperature,
    )
    alone = growth.score(growth_features(forest.view(), np.arange(count), context))
    length, share = np.nan_to_num(signals.lookup_match_length), np.nan_to_num(signals.lookup_share)
    first = np.asarray([table.prior(int(n), float(s)) for n, s in zip(length, share, strict=True)])
    return np.asarray(alone + first * agreement, dtype=np.float64)
