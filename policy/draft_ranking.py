"""How the draft's candidates are ranked, and the prior that follows.

The committed token is argmax(warped target scores + noise), and the noise is a public function of seed, position and
token. So a draft may add the same noise to its own warped scores and propose what *it* would draw there: coupled
ranking (drafter-invariant decoding, arXiv 2408.07978; lists of candidates, arXiv 2506.05632). This is right only where
a guess is accepted iff it equals the target's token. Under a ratio test p/q it would bias the text, since the proposal
then depends on the coins of its own test.

A good draft's perturbed order is nearly the target's; a poor one's noise misleads it. `both` proposes the union and
takes the mean of the two probabilities as the prior: neither may rule a candidate out alone. At temperature 0 there is
no noise and all three are the same.
"""

from __future__ import annotations

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import BoolArray, Float32Array

PLAIN = "plain"  # by the draft's probability
COUPLED = "coupled"  # by the draft's warped scores plus the noise
BOTH = "both"  # the union
RANKINGS = (PLAIN, COUPLED, BOTH)
LISTED = 32  # ranks that are told apart, the width's number if that is more; every later one reads this number


def resolve_ranking(ranking: str, temperature: float) -> str:
    """`ranking`, or where it is empty the default: both above temperature 0, plain at 0. At 0 it is always plain.

    Raises `ParameterError` on a name that is not in `RANKINGS`.
    """
    require(ranking in ("", *RANKINGS), "ranking", f"one of {', '.join(RANKINGS)}", ranking)
    if temperature == 0.0:
        return PLAIN
    return ranking or BOTH


def draft_prior(ranking: str, probs: Float32Array, drawn_probs: Float32Array | None) -> Float32Array:
    """Prior of draft candidates [...] from their probability and, where there was noise, their drawn probability."""
    if drawn_probs is None or ranking == PLAIN:
        return probs
    known = drawn_probs if ranking == COUPLED else np.float32(0.5) * (probs + drawn_probs)
    return np.where(np.isnan(drawn_probs), probs, known).astype(np.float32)


def is_proposed(ranking: str, width: int, ranks: Float32Array, drawn_ranks: Float32Array | None) -> BoolArray:
    """Which candidates [...] are among the first `width` of the ranking; a NaN rank is not.

    Where only the drawn rank is NaN there was no noise, as beside others at temperature 0: the plain rank decides.
    """
    plain = np.asarray(ranks < width)
    if drawn_ranks is None or ranking == PLAIN:
        return plain
    drawn = np.asarray(drawn_ranks < width)
    return drawn | (plain & np.isnan(drawn_ranks)) if ranking == COUPLED else plain | drawn
