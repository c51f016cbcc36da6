"""What the target says behind every row of a verify pass, read off the device in one copy.

Reading only the rows on the path would take one copy a row, since the next row is known only once a row has spoken. On
an accelerator computing every row is cheaper than waiting for it that often; on a CPU it is the other way around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.errors import ModelOutputError
from treewise.engine import host
from treewise.engine.noise import gumbel_rows
from treewise.engine.sampling import Sampling, entropy_and_margin
from treewise.engine.top_guesses import TopGuesses, top_of
from treewise.policy.hook import Float32Array, Int32Array


@dataclass(frozen=True, slots=True)
class Spoken:
    """The target's opinion behind the rows of one pass."""

    tokens: Int32Array  # [rows] the token that is said there, if the row is on the path
    highest: Float32Array  # [rows] the best logit; not finite where the model failed
    entropy: Float32Array  # [rows] bits of the unwarped softmax
    margin: Float32Array  # [rows] p1 - p2 of the same
    top: TopGuesses  # [rows]

    def token_at(self, row: int, position: int) -> int:
        """The token said behind pass row `row`, at absolute `position`.

        Raises:
            ModelOutputError: the row's logits hold NaN or infinity, or no finite value.
        """
        highest = float(self.highest[row])
        if not np.isfinite(highest):
            raise ModelOutputError(f"target logits must be finite, got {highest} at position {position}")
        return int(self.tokens[row])

    def top_at(self, rows: NDArray[np.intp]) -> TopGuesses:
        """The best guesses behind some `rows` [n]."""
        return TopGuesses(self.top.tokens[rows], self.top.probs[rows])


def can_read_together(samplings: Sequence[Sampling]) -> bool:
    """Whether all of `samplings` say their token without top-k and the like, which cut on the host."""
    return all(entry == Sampling(entry.temperature, seed=entry.seed) for entry in samplings)


@torch.inference_mode()
def read_spoken(
    logits: torch.Tensor, positions: Int32Array, owners: Int32Array, samplings: Sequence[Sampling]
) -> Spoken:
    """What the target says behind each row of `logits` [rows, vocabulary]; equal to `target_token`, row by row.

    Args:
        positions: [rows] absolute positions of the tokens said.
        owners: [rows] index of each row's request in `samplings`.
    """
    best, plain = logits.max(dim=-1)
    said = plain
    warm = [row for row, owner in enumerate(owners.tolist()) if samplings[owner].temperature > 0.0]
    if warm:
        chosen = host.to_device(np.asarray(warm, dtype=np.int64), logits.device)
        drawn = _drawn(logits.index_select(0, chosen), warm, positions, owners, samplings)
        said = plain.index_copy(0, chosen, drawn)
    entropy, margin = entropy_and_margin(logits)
    parts = host.read_together(said, best, entropy, margin, *top_of(logits))
    top = TopGuesses(parts[4].astype(np.int64), parts[5])
    return Spoken(parts[0].astype(np.int32), parts[1], parts[2], parts[3], top)


def _drawn(
    logits: torch.Tensor,
    rows: Sequence[int],
    positions: Int32Array,
    owners: Int32Array,
    samplings: Sequence[Sampling],
) -> torch.Tensor:
    """Tokens [rows] of the highest scores plus noise, of `rows` of the pass and their `logits` [rows, vocabulary].

    Rows at one place of one request share their noise.
    """
    places = [(samplings[int(owners[row])].seed, int(positions[row])) for row in rows]
    distinct = sorted(set(places))
    number = {place: index for index, place in enumerate(distinct)}
    tokens = torch.arange(logits.shape[-1], device=logits.device)
    owner = np.asarray([number[place] for place in places], dtype=np.int64)
    noise = gumbel_rows(distinct, tokens).index_select(0, host.to_device(owner, logits.device))
    heat = np.asarray([[samplings[int(owners[row])].temperature] for row in rows], dtype=np.float32)
    # by a tensor, see `over_temperature`
    scores = logits.to(torch.float32) / host.to_device(heat, logits.device)
    return (scores + noise).argmax(dim=-1)
