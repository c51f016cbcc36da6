"""Reads the draft's guesses off hidden states, with or without the noise that the target's token will be drawn with."""

from __future__ import annotations

import numpy as np
import torch

from treewise.engine.draft_model import DraftModel
from treewise.engine.noise import gumbel
from treewise.engine.sampling import Sampling, entropy_bits, warp
from treewise.policy.draft_ranking import BOTH, COUPLED, LISTED, PLAIN
from treewise.policy.hook import MAX_GAP, BoolArray, DraftGuesses, Drawn, Float32Array, Int32Array

_CACHED_POSITIONS = 256
_SMALLEST = -200.0  # of a score below the best


class DraftHead:
    """Probabilities, ranks, entropy and margin over the draft's head; `begin` sets how candidates are ranked."""

    def __init__(self, draft: DraftModel, vocab_size: int, width: int) -> None:
        self.draft = draft
        self.width = width
        ids = draft.head_token_ids
        self.token_ids = np.arange(draft.head_size, dtype=np.int32) if ids is None else ids
        self.head_row = np.full(vocab_size, -1, dtype=np.int64)  # token id -> row of the head
        inside = (self.token_ids >= 0) & (self.token_ids < vocab_size)
        self.head_row[self.token_ids[inside]] = np.flatnonzero(inside)
        # columns whose token the target does not have: they are never guessed
        self._strays = None if inside.all() else torch.from_numpy(np.flatnonzero(~inside)).to(draft.head_weight.device)
        self._ranking = PLAIN
        self._sampling = Sampling()
        self._is_filtered = False  # top-k and the like leave tokens out
        self._noise: dict[int, torch.Tensor] = {}  # position -> noise of the head's tokens

    def begin(self, sampling: Sampling, ranking: str) -> None:
        """Rank as `ranking` says (see `treewise.policy.draft_ranking`), with the noise of `sampling`."""
        self._ranking = PLAIN if sampling.temperature == 0.0 else ranking
        self._sampling = sampling
        self._is_filtered = sampling != Sampling(sampling.temperature, seed=sampling.seed)
        self._noise.clear()

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the head can say."""
        return np.asarray(self.head_row[tokens] >= 0)

    @torch.inference_mode()
    def read(
        self, hidden: torch.Tensor, positions: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array
    ) -> DraftGuesses:
        """Guesses below `hidden` [nodes, hidden size]; `extra_tokens` [extras] are scored below `extra_rows`.

        `positions` [nodes] are the absolute positions of the guesses, one behind the nodes'. A node whose logits are
        not finite has no guesses: tokens -1, probability 0, entropy and margin NaN.
        """
        logits = self.draft.head(hidden).to(torch.float32)
        if self._strays is not None:
            logits[:, self._strays] = -torch.inf
        width = min(self.width, logits.shape[-1])
        by_prob = _Ranked(logits, width)
        entropy, margin = by_prob.entropy_and_margin()
        healthy = torch.isfinite(entropy)
        by_draw = None
        columns = by_prob.listed[:, :width]
        absent = ~healthy[:, None].expand_as(columns)
        if self._ranking != PLAIN:
            by_draw = _Ranked(torch.where(healthy[:, None], self._perturbed(logits, positions), 0.0), width)
            columns, idle = self._order(by_prob, by_draw, width)
            absent = idle | ~healthy[:, None]
        inner = torch.arange(len(columns), device=columns.device)[:, None].expand_as(columns)
        gone = absent.cpu().numpy()
        healthy_rows = healthy.cpu().numpy()
        places = self.head_row[extra_tokens]
        known = (places >= 0) & healthy_rows[extra_rows]
        nodes = torch.as_tensor(extra_rows[known].astype(np.int64), device=columns.device)
        at = torch.as_tensor(places[known], device=columns.device)
        ranks = drawn = extra_drawn = None
        if by_draw is not None:
            ranks = _nan_where(gone, by_prob.rank(inner, columns))
            drawn = Drawn(*(_nan_where(gone, signal) for signal in by_draw.signals(inner, columns)))
            extra_drawn = Drawn(*(_spread(known, signal) for signal in by_draw.signals(nodes, at)))
        nan = np.float32(np.nan)
        return DraftGuesses(
            tokens=np.where(gone, -1, self.token_ids[columns.cpu().numpy()]).astype(np.int32),
            probs=np.where(gone, np.float32(0.0), by_prob.prob(inner, columns).cpu().numpy()),
            entropy=np.where(healthy_rows, entropy.cpu().numpy(), nan),
            margin=np.where(healthy_rows, margin.cpu().numpy(), nan),
            extra_probs=_spread(known, by_prob.prob(nodes, at)),
            extra_ranks=_spread(known, by_prob.rank(nodes, at)),
            ranks=ranks,
            drawn=drawn,
            extra_drawn=extra_drawn,
        )

    def _perturbed(self, logits: torch.Tensor, positions: Int32Array) -> torch.Tensor:
        """Warped scores of `logits` [nodes, head] plus the noise of `positions` [nodes]; what the warp cuts is -inf."""
        if not self._is_filtered:
            scores = logits / self._sampling.temperature
        else:
            scores = torch.full_like(logits, -torch.inf)
            for row in range(len(logits)):
                if bool(torch.isfinite(logits[row]).any()):
                    kept, warped = warp(logits[row], self._sampling)
                    scores[row, kept] = warped.to(torch.float32)
        return scores + torch.stack([self._noise_at(position) for position in positions.tolist()])

    def _noise_at(self, position: int) -> torch.Tensor:
        noise = self._noise.get(position)
        if noise is None:
            if len(self._noise) >= _CACHED_POSITIONS:
                self._noise.clear()
            ids = torch.as_tensor(self.token_ids.astype(np.int64), device=self.draft.model.device)
            noise = self._noise[position] = gumbel(self._sampling.seed, position, ids)
        return noise

    def _order(self, by_prob: _Ranked, by_draw: _Ranked, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Columns of the head in descending order of their prior, and which of them are not to be proposed.

        Those are listed twice, or were drawn although the draft's top-k or top-p left them out.
        """
        drawn = by_draw.listed[:, :width]
        rows = torch.arange(len(drawn), device=drawn.device)[:, None]
        idle = torch.isneginf(by_draw.scores.gather(1, drawn))
        if self._ranking == COUPLED:
            return drawn, idle
        assert self._ranking == BOTH
        plain = by_prob.listed[:, :width]
        columns = torch.cat((plain, drawn), dim=1)
        prior = 0.5 * (by_prob.prob(rows, columns) + by_draw.prob(rows, columns))
        idle = idle | (drawn[:, :, None] == plain[:, None, :]).any(-1)
        prior[:, width:][idle] = -1.0
        prior, order = torch.sort(prior, dim=1, descending=True, stable=True)
        return columns.gather(1, order), prior < 0


class _Ranked:
    """Scores [nodes, head] and the highest of them, `listed` [nodes, LISTED or `width`, if that is more] columns."""

    def __init__(self, scores: torch.Tensor, width: int) -> None:
        self.scores = scores
        best = torch.topk(scores, min(max(width, LISTED), scores.shape[-1]), dim=-1)
        self.listed = best.indices
        self._best = best.values[:, 0]
        self._second = best.values[:, 1] if scores.shape[-1] > 1 else torch.full_like(self._best, -torch.inf)
        # exp(-200) is 0 in float32: tokens of minus infinity count as 0 x -200, not as NaN
        self._shifted = (scores - best.values[:, :1]).clamp_(min=_SMALLEST)
        self._weights = self._shifted.exp()
        self._total = self._weights.sum(-1)

    def entropy_and_margin(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As `treewise.engine.sampling.entropy_and_margin`, bit for bit, from what ranking computed; once."""
        entropy = entropy_bits(self._shifted, self._weights, self._total)
        second = (self._second - self._best).clamp_(min=_SMALLEST).exp()
        return entropy, (1.0 - second) / self._total

    def prob(self, nodes: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Softmax of the scores at `columns` below `nodes`, two of shapes that broadcast."""
        return (self.scores[nodes, columns] - self._best[nodes]).exp() / self._total[nodes]

    def rank(self, nodes: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Ranks of `columns` below `nodes`, of one shape; the length of `listed` stands for every rank beyond it.

        Equal scores rank as they are listed, so no two share a rank that counts.
        """
        listed = self.listed[nodes] == columns[..., None]
        beyond = ~listed.any(-1) | torch.isneginf(self.scores[nodes, columns])  # a token that was left out has no rank
        return listed.to(torch.int64).argmax(-1).masked_fill(beyond, self.listed.shape[-1])

    def signals(self, nodes: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Probability, rank and gap to the best score, at most `MAX_GAP`, of `columns` below `nodes`, of one shape."""
        gap = (self._best[nodes] - self.scores[nodes, columns]).clamp(max=MAX_GAP)
        return self.prob(nodes, columns), self.rank(nodes, columns), gap


def _spread(known: BoolArray, values: torch.Tensor) -> Float32Array:
    """`values` at the places where `known` [n], NaN elsewhere."""
    found = np.full(len(known), np.nan, dtype=np.float32)
    found[known] = values.cpu().numpy()
    return found


def _nan_where(gone: BoolArray, values: torch.Tensor) -> Float32Array:
    return np.where(gone, np.float32(np.nan), values.cpu().numpy().astype(np.float32))
