"""How often the target's token is among the draft's first candidates: the law, position by position of a known text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.engine.dense import DenseDraft, KnownText, target_logits
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling, target_token, warp
from treewise.policy.draft_ranking import BOTH, COUPLED, PLAIN, RANKINGS

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Mean over positions and noise of P(the target's token is among the first w candidates)."""

    by_ranking: dict[str, Float64Array]  # [widths] each
    ceiling: Float64Array  # [widths] of any ranking that does not know the noise: the target's own first w tokens

    @classmethod
    def mean(cls, parts: Sequence[Coverage], weights: Float64Array) -> Coverage:
        """The mean of `parts` under `weights` [parts]."""
        return cls(
            {name: np.average([part.by_ranking[name] for part in parts], axis=0, weights=weights) for name in RANKINGS},
            np.average([part.ceiling for part in parts], axis=0, weights=weights),
        )


@torch.inference_mode()
def coverage(pair: Pair, text: KnownText, sampling: Sampling, widths: Sequence[int], draws: int = 8) -> Coverage:
    """The law at every position of `text`'s completion.

    Plain ranking and the ceiling are exact: the target's warped probabilities, summed over the candidates. For the
    rankings that know the noise it is the mean over `draws` seeds. At temperature 0 every ranking is the plain one.
    """
    assert pair.draft is not None
    tokens = (*text.prompt, *text.completion)[:-1]
    first = len(text.prompt) - 1
    logits = target_logits(pair, tokens)[first:].cpu()
    most = max(widths)
    rows = np.asarray(widths) - 1
    draft = DenseDraft(pair.draft, pair.description.vocab_size, most, tokens)
    law = torch.zeros_like(logits, dtype=torch.float64)
    for place in range(len(logits)):
        if sampling.temperature == 0.0:
            law[place, int(logits[place].argmax())] = 1.0
        else:
            kept, scores = warp(logits[place], sampling)
            law[place, kept] = torch.softmax(scores.to(torch.float64), 0)
    guesses = draft.guesses_along(first)
    ids = torch.as_tensor(np.where(guesses < 0, 0, guesses).astype(np.int64))
    mass = np.where(guesses < 0, 0.0, law.gather(1, ids).numpy()).cumsum(1)
    plain = mass[:, np.minimum(rows, mass.shape[1] - 1)].mean(0)
    own = torch.topk(law, most, dim=1).values.cumsum(1).numpy()[:, rows].mean(0)
    if sampling.temperature == 0.0:
        return Coverage(dict.fromkeys(RANKINGS, plain), own)
    found = {PLAIN: plain, **{name: np.zeros(len(widths)) for name in (COUPLED, BOTH)}}
    for draw in range(draws):
        seeded = replace(sampling, seed=(sampling.seed + 1 + draw) % 2**63)
        said = np.asarray(
            [target_token(row, first + 1 + place, seeded) for place, row in enumerate(logits)], dtype=np.int64
        )
        for name in (COUPLED, BOTH):
            draft.head.begin(seeded, name)
            hits = (draft.guesses_along(first) == said[:, None]).cumsum(1) > 0
            found[name] += hits[:, np.minimum(rows, hits.shape[1] - 1)].mean(0) / draws
    return Coverage(found, own)
