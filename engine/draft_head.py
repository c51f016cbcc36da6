"""Reads the draft's guesses off hidden states, with or without the noise that the target's token will be drawn with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from treewise.engine import host
from treewise.engine.draft_model import DraftModel
from treewise.engine.noise import gumbel
from treewise.engine.sampling import Sampling, entropy_bits, over_temperature
from treewise.engine.warpers import warp_row
from treewise.policy.draft_ranking import BOTH, COUPLED, LISTED, PLAIN
from treewise.policy.hook import MAX_GAP, BoolArray, DraftGuesses, Drawn, Float32Array, Int32Array

_CACHED_POSITIONS = 256
_SMALLEST = -200.0  # of a score below the best


class Voice:
    """How one request's guesses are ranked: as `ranking` says, with the noise of `sampling`."""

    def __init__(self, sampling: Sampling, ranking: str) -> None:
        self.sampling = sampling
        self.ranking = PLAIN if sampling.temperature == 0.0 else ranking
        self.is_filtered = sampling != Sampling(sampling.temperature, seed=sampling.seed)  # by top-k and the like
        self.noise: dict[int, torch.Tensor] = {}  # position -> noise of the head's tokens


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
        self._strays = None if inside.all() else host.to_device(np.flatnonzero(~inside), draft.head_weight.device)
        self._ids: torch.Tensor | None = None  # [head] `token_ids`, where noise is drawn
        self._voice = Voice(Sampling(), PLAIN)

    def begin(self, sampling: Sampling, ranking: str) -> None:
        """Rank as `ranking` says (see `treewise.policy.draft_ranking`), with the noise of `sampling`."""
        self._voice = Voice(sampling, ranking)

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the head can say."""
        return np.asarray(self.head_row[tokens] >= 0)

    @torch.inference_mode()
    def read(
        self,
        hidden: torch.Tensor,
        positions: Int32Array,
        extra_rows: Int32Array,
        extra_tokens: Int32Array,
        voices: Sequence[tuple[Voice, int]] = (),
    ) -> DraftGuesses:
        """Guesses below `hidden` [nodes, hidden size]; `extra_tokens` [extras] are scored below `extra_rows`.

        `positions` [nodes] are the absolute positions of the guesses, one behind the nodes'. A node whose logits are
        not finite has no guesses: tokens -1, probability 0, entropy and margin NaN. `voices`, where the nodes are of
        several requests: each one's voice and how many nodes it has, in their order.
        """
        spoken = voices or ((self._voice, len(positions)),)
        ranking = next((voice.ranking for voice, _ in spoken if voice.ranking != PLAIN), PLAIN)
        logits = self.draft.head(hidden).to(torch.float32)
        if self._strays is not None:
            logits.index_fill_(1, self._strays, -torch.inf)
        width = min(self.width, logits.shape[-1])
        by_prob = _Ranked(logits, width)
        entropy, margin = by_prob.entropy_and_margin()
        healthy = torch.isfinite(entropy)
        by_draw = None
        columns = by_prob.listed[:, :width]
        absent = ~healthy[:, None].expand_as(columns)
        plain = np.zeros(0, dtype=np.bool_)  # [nodes] without noise beside others with it
        if ranking != PLAIN:
            plain = np.repeat([voice.ranking == PLAIN for voice, _ in spoken], [count for _, count in spoken])
            perturbed = self._perturbed(logits, positions, spoken)
            by_draw = _Ranked(torch.where(healthy[:, None], perturbed, 0.0), width)
            silent = host.to_device(plain, columns.device)
            columns, idle = _order(ranking, by_prob, by_draw, width, silent)
            absent = idle | ~healthy[:, None]
        inner = torch.arange(len(columns), device=columns.device)[:, None].expand_as(columns)
        places = self.head_row[extra_tokens]
        known = places >= 0
        nodes, at = host.to_device(np.stack((extra_rows[known], places[known])), columns.device)
        said: list[torch.Tensor] = [absent, healthy, columns, by_prob.prob(inner, columns), entropy, margin]
        said += [by_prob.prob(nodes, at), by_prob.rank(nodes, at)]
        if by_draw is not None:
            said += [by_prob.rank(inner, columns), *by_draw.signals(inner, columns), *by_draw.signals(nodes, at)]
        gone, sound, listed, probs, bits, ahead, *rest = host.read_together(*said)
        gone_rows, sound_rows = gone > 0, sound > 0
        heard = sound_rows[extra_rows]
        ranks = drawn = extra_drawn = None
        if by_draw is not None:
            ranks = _where_not(gone_rows, rest[2])
            unheard = gone_rows | plain[:, None]
            drawn = Drawn(*(_where_not(unheard, signal) for signal in rest[3:6]))
            loud = heard & ~plain[extra_rows]
            extra_drawn = Drawn(*(_spread(known, signal, loud) for signal in rest[6:9]))
        nan = np.float32(np.nan)
        return DraftGuesses(
            tokens=np.where(gone_rows, -1, self.token_ids[listed.astype(np.int64)]).astype(np.int32),
            probs=np.where(gone_rows, np.float32(0.0), probs),
            entropy=np.where(sound_rows, bits, nan),
            margin=np.where(sound_rows, ahead, nan),
            extra_probs=_spread(known, rest[0], heard),
            extra_ranks=_spread(known, rest[1], heard),
            ranks=ranks,
            drawn=drawn,
            extra_drawn=extra_drawn,
        )

    def _perturbed(
        self, logits: torch.Tensor, positions: Int32Array, spoken: Sequence[tuple[Voice, int]]
    ) -> torch.Tensor:
        """Warped scores of `logits` [nodes, head] plus the noise of `positions` [nodes]; what the warp cuts is -inf.

        Nodes whose voice has no noise keep their logits.
        """
        parts, first = [], 0
        for voice, count in spoken:
            own = slice(first, first + count)
            first += count
            if voice.ranking == PLAIN:
                parts.append(logits[own])
            elif count:
                noise = torch.stack([self._noise_at(voice, position) for position in positions[own].tolist()])
                parts.append(_warped(logits[own], voice) + noise)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _noise_at(self, voice: Voice, position: int) -> torch.Tensor:
        noise = voice.noise.get(position)
        if noise is None:
            if len(voice.noise) >= _CACHED_POSITIONS:
                voice.noise.clear()
            if self._ids is None:
                self._ids = host.to_device(self.token_ids.astype(np.int64), self.draft.model.device)
            noise = voice.noise[position] = gumbel(voice.sampling.seed, position, self._ids)
        return noise


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


def _warped(logits: torch.Tensor, voice: Voice) -> torch.Tensor:
    """Warped scores of `logits` [nodes, head]; what top-k and the like cut is -inf.

    Those are cut on the host, as the target's are: one copy there and one back for all nodes.
    """
    if not voice.is_filtered:
        return over_temperature(logits, voice.sampling.temperature)
    rows = host.to_host(logits)
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    for row, own in zip(rows, scores, strict=True):
        if np.isfinite(row).any():
            kept, warped = warp_row(row, voice.sampling)
            own[slice(None) if kept is None else kept] = warped
    return host.to_device(scores, logits.device)


def _order(
    ranking: str, by_prob: _Ranked, by_draw: _Ranked, width: int, silent: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns of the head in descending order of their prior, and which of them are not to be proposed.

    Those are listed twice, or were drawn although the draft's top-k or top-p left them out. Nodes that are `silent`
    [nodes] have no noise, and are ranked by probability alone.
    """
    drawn, plain = by_draw.listed[:, :width], by_prob.listed[:, :width]
    rows = torch.arange(len(drawn), device=drawn.device)[:, None]
    idle = torch.isneginf(by_draw.scores.gather(1, drawn))
    if ranking == COUPLED:
        return torch.where(silent[:, None], plain, drawn), idle & ~silent[:, None]
    assert ranking == BOTH
    columns = torch.cat((plain, drawn), dim=1)
    prior = 0.5 * (by_prob.prob(rows, columns) + by_draw.prob(rows, columns))
    idle = idle | (drawn[:, :, None] == plain[:, None, :]).any(-1) | silent[:, None]
    prior[:, width:].masked_fill_(idle, -1.0)
    prior, order = torch.sort(prior, dim=1, descending=True, stable=True)
    return columns.gather(1, order), prior < 0


def _spread(known: BoolArray, values: Float32Array, heard: BoolArray) -> Float32Array:
    """`values` at the places where `known` [n], NaN elsewhere and where not `heard` [n]."""
    found = np.full(len(known), np.nan, dtype=np.float32)
    found[known] = values
    found[~heard] = np.nan
    return found


def _where_not(gone: BoolArray, values: Float32Array) -> Float32Array:
    return np.where(gone, np.float32(np.nan), values)
