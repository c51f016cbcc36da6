"""The draft model, live: one forward pass a growth, catching up in the same pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.engine.draft_model import DraftModel
from treewise.engine.sampling import entropy_and_margin
from treewise.engine.tree_model import TreeModel
from treewise.policy.hook import BoolArray, DraftGuesses, Int32Array, Nodes


class DraftHead:
    """Reads guesses off hidden states: probabilities, ranks, entropy and margin over the draft's head."""

    def __init__(self, draft: DraftModel, vocab_size: int, width: int) -> None:
        self.draft = draft
        self.width = width
        ids = draft.head_token_ids
        self.token_ids = np.arange(draft.head_size, dtype=np.int32) if ids is None else ids
        self.head_row = np.full(vocab_size, -1, dtype=np.int64)  # token id -> row of the head
        inside = self.token_ids < vocab_size
        self.head_row[self.token_ids[inside]] = np.flatnonzero(inside)

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the head can say."""
        return np.asarray(self.head_row[tokens] >= 0)

    @torch.inference_mode()
    def read(self, hidden: torch.Tensor, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Guesses below `hidden` [nodes, hidden size]; `extra_tokens` [extras] are scored below `extra_rows`.

        A node whose logits are not finite has no guesses: tokens -1, probability 0, entropy and margin NaN.
        """
        logits = self.draft.head(hidden).to(torch.float32)
        probs = torch.softmax(logits, dim=-1)
        entropy, margin = entropy_and_margin(logits)
        top = torch.topk(probs, min(self.width, probs.shape[-1]), dim=-1)
        top_probs = top.values.cpu().numpy()
        tokens = self.token_ids[top.indices.cpu().numpy()]
        healthy = torch.isfinite(entropy).cpu().numpy()
        if not healthy.all():
            tokens = np.where(healthy[:, None], tokens, -1).astype(np.int32)
            top_probs = np.where(healthy[:, None], top_probs, 0.0).astype(np.float32)
        extra_probs = np.full(len(extra_rows), np.nan, dtype=np.float32)
        extra_ranks = np.full(len(extra_rows), np.nan, dtype=np.float32)
        places = self.head_row[extra_tokens]
        known = (places >= 0) & healthy[extra_rows]
        if known.any():
            nodes = torch.as_tensor(extra_rows[known].astype(np.int64), device=probs.device)
            columns = torch.as_tensor(places[known], device=probs.device)
            mine = probs[nodes, columns]
            extra_probs[known] = mine.cpu().numpy()
            # Equal probabilities rank as the guesses do, so that no two tokens share a guess's rank.
            ahead = (probs[nodes] > mine[:, None]).sum(-1)
            listed = top.indices[nodes] == columns[:, None]
            ranks = torch.where(listed.any(-1), listed.to(torch.int64).argmax(-1), ahead.clamp(min=listed.shape[-1]))
            extra_ranks[known] = ranks.cpu().numpy()
        nan = np.float32(np.nan)
        return DraftGuesses(
            tokens=tokens.astype(np.int32),
            probs=top_probs,
            entropy=np.where(healthy, entropy.cpu().numpy(), nan),
            margin=np.where(healthy, margin.cpu().numpy(), nan),
            extra_probs=extra_probs,
            extra_ranks=extra_ranks,
        )


class LiveDraft:
    """One request's draft source.

    Its cache holds committed tokens, and within a round the rows that were drafted; it may lag the committed text, and
    the next growth runs what it has not seen in the same pass.
    """

    def __init__(self, draft: DraftModel, vocab_size: int, width: int) -> None:
        self.head = DraftHead(draft, vocab_size, width)
        self.tree_model = TreeModel(draft.model, draft.num_layers)
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0  # nodes whose logits were not finite
        self.first_guess: dict[int, int] = {}  # position -> the draft's first token below it, where it ran
        self._text: list[int] = []  # committed tokens, the root last
        self._seen = 0  # committed tokens in the cache
        self._slot_of: dict[int, int] = {}  # forest row -> cache slot, this round
        self._guess_of: dict[int, int] = {}  # forest row -> the draft's first token below it, this round
        self._mask_of: dict[int, NDArray[np.bool_]] = {}  # forest row -> slots it sees, itself included

    def begin(self, prompt: Sequence[int], capacity: int, prefill: bool = True) -> None:
        """Forget the last request.

        `prefill`: run every prompt token but the last now, as replay assumes whatever the policy; else the first growth
        catches up.
        """
        self.tree_model.reset(capacity)
        self._text = list(prompt)
        self._seen = 0
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.first_guess.clear()
        self._slot_of.clear()
        self._mask_of.clear()
        self._guess_of.clear()
        if prefill:
            self.tree_model.prefill(prompt[:-1])
            self._seen = len(prompt) - 1

    @property
    def seen_tokens(self) -> int:
        """Committed tokens that the cache holds."""
        return self._seen

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return self.head.in_vocab(tokens)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Run forest `rows` (parents first), and before them the committed tokens that the cache lacks."""
        began = time.perf_counter()
        position = len(self._text) - 1
        start = self.tree_model.cache.length
        runs_root = bool(nodes.parent[rows[0]] < 0)
        late = self._text[self._seen : -1] if runs_root else []
        count = len(late) + len(rows)
        mask = np.zeros((count, start + count), dtype=np.bool_)
        for place in range(len(late)):
            mask[place, : start + place + 1] = True
        for place, row in enumerate(rows.tolist(), start=len(late)):
            above = int(nodes.parent[row])
            if above < 0:
                mask[place, : start + place + 1] = True
            else:
                seen = self._mask_of[above]
                mask[place, : len(seen)] = seen
                mask[place, start + place] = True
            self._slot_of[row] = start + place
            self._mask_of[row] = mask[place]
        tokens = np.concatenate([np.asarray(late, dtype=np.int32), nodes.token[rows]]).astype(np.int32)
        late_positions = np.arange(position - len(late), position, dtype=np.int32)
        positions = np.concatenate([late_positions, position + nodes.depth[rows]]).astype(np.int32)
        hidden = self.tree_model.forward(tokens, positions, mask)
        guesses = self.head.read(hidden, (extra_rows + len(late)).astype(np.int32), extra_tokens)
        for place in range(len(late)):
            self.first_guess[position - len(late) + place] = int(guesses.tokens[place, 0])
        if runs_root:
            self._seen = position  # the root's own slot counts once the round is committed
        here = slice(len(late), None)
        for row, token in zip(rows.tolist(), guesses.tokens[here, 0].tolist(), strict=True):
            self._guess_of[row] = token
        self.num_growths += 1
        self.num_unhealthy += int(np.isnan(guesses.entropy).sum())
        self.draft_seconds += time.perf_counter() - began
        return DraftGuesses(
            tokens=guesses.tokens[here],
            probs=guesses.probs[here],
            entropy=guesses.entropy[here],
            margin=guesses.margin[here],
            extra_probs=guesses.extra_probs,
            extra_ranks=guesses.extra_ranks,
        )

    def commit(self, path_rows: Sequence[int], committed: Sequence[int]) -> None:
        """Keep the drafted part of the committed path (forest rows, root first); the text grows by `committed`."""
        position = len(self._text) - 1
        slots: list[int] = []
        for depth, row in enumerate(path_rows):
            if row not in self._slot_of:
                break
            slots.append(self._slot_of[row])
            self.first_guess[position + depth] = self._guess_of[row]
        self.tree_model.cache.keep(self._seen, slots)
        self._seen += len(slots)
        self._text.extend(committed)
        self._slot_of.clear()
        self._mask_of.clear()
        self._guess_of.clear()

    def check_integrity(self) -> None:
        """Assert that between rounds the cache holds committed tokens only, at most those before the root."""
        assert self.tree_model.cache.length == self._seen <= len(self._text) - 1
        self.tree_model.cache.check_integrity()
