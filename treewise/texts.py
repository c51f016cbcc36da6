"""Comparing the text of a policy with that of plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treewise.engine.pair import Pair
    from treewise.engine.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two texts of one prompt differ, and how close the target's call was there."""

    place: int  # tokens of the answer before it
    expected: int  # plain decoding's token; -1 where its text had ended
    found: int  # the other text's token; -1 where it had ended
    margin: float  # best score minus second best, in logits over temperature with the seed's noise; 0: a tie

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)

    def __str__(self) -> str:
        return f"token {self.place}: {self.found} instead of {self.expected}, top-2 margin {self.margin:.2e}"


def first_divergence(
    pair: Pair, prompt: Sequence[int], expected: Sequence[int], found: Sequence[int], sampling: Sampling
) -> Divergence | None:
    """Where `found` first leaves `expected`, both answers to `prompt` in token ids; None for the same text."""
    if list(expected) == list(found):
        return None
    shared = min(len(expected), len(found))
    place = next((i for i in range(shared) if expected[i] != found[i]), shared)
    said, other = (text[place] if place < len(text) else -1 for text in (expected, found))
    return Divergence(place, said, other, margin_at(pair, [*prompt, *expected[:place]], sampling))


def margin_at(pair: Pair, text: Sequence[int], sampling: Sampling) -> float:
    """Best minus second-best score of the token after `text`, as the verification rule ranks them."""
    import torch

    from treewise.engine.noise import gumbel
    from treewise.engine.sampling import warp

    with torch.inference_mode():
        ids = torch.tensor([list(text)], device=pair.target.device)
        scores = pair.target(input_ids=ids, logits_to_keep=1, use_cache=False).logits[0, -1].to(torch.float32)
        if sampling.temperature > 0.0:
            tokens, scores = warp(scores, sampling)
            scores = scores + gumbel(sampling.seed, len(text), tokens)
        if scores.shape[0] < 2:
            return float("inf")
        best = torch.topk(scores, 2).values
        return float(best[0] - best[1])
