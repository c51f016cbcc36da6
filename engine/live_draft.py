"""The draft model, live: one forward pass a growth, catching up in the same pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from treewise.engine.draft_head import DraftHead
from treewise.engine.draft_model import DraftModel
from treewise.engine.drafted_text import DraftedText, pick
from treewise.engine.passes import EAGER, TAIL_SLACK, tree_model_of
from treewise.engine.sampling import Sampling
from treewise.policy.draft_ranking import PLAIN
from treewise.policy.hook import BoolArray, DraftGuesses, Int32Array, Nodes


class LiveDraft:
    """One request's draft source.

    Its cache holds committed tokens, and within a round the rows that were drafted; it may lag the committed text, and
    the next growth runs what it has not seen in the same pass.
    """

    def __init__(self, draft: DraftModel, vocab_size: int, width: int, passes: str = EAGER) -> None:
        """`passes`: how they are run, see `treewise.engine.passes`."""
        self.head = DraftHead(draft, vocab_size, width)
        self.tree_model = tree_model_of(passes, draft.model, draft.num_layers, tail_slack=TAIL_SLACK)
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0  # nodes whose logits were not finite
        self._text = DraftedText()

    def begin(
        self,
        prompt: Sequence[int],
        capacity: int,
        prefill: bool = True,
        sampling: Sampling | None = None,
        ranking: str = PLAIN,
    ) -> None:
        """Forget the last request.

        `prefill`: run every prompt token but the last now, as replay assumes whatever the policy; else the first growth
        catches up. `sampling` and `ranking`: how candidates are ranked, see `treewise.policy.draft_ranking`.
        """
        self.head.begin(sampling or Sampling(), ranking)
        self.tree_model.reset(capacity)
        self.draft_seconds = 0.0
        self.num_growths = 0
        self.num_unhealthy = 0
        if prefill:
            self.tree_model.prefill(prompt[:-1])
        self._text.begin(prompt, len(prompt) - 1 if prefill else 0)

    @property
    def first_guess(self) -> dict[int, int]:
        """Position -> the draft's first token below it, where it ran; the same mapping for every request."""
        return self._text.first_guess

    @property
    def seen_tokens(self) -> int:
        """Committed tokens that the cache holds."""
        return self._text.seen

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return self.head.in_vocab(tokens)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Run forest `rows` (parents first), and before them the committed tokens that the cache lacks."""
        began = time.perf_counter()
        run = self._text.plan(nodes, rows)
        hidden = self.tree_model.forward(run.tokens, run.positions, run.mask)
        below = (run.positions + 1).astype(np.int32)
        guesses = self.head.read(hidden, below, (extra_rows + run.num_late).astype(np.int32), extra_tokens)
        self._text.note(run, guesses.tokens[:, 0].tolist())
        self.num_growths += 1
        self.num_unhealthy += int(np.isnan(guesses.entropy).sum())
        self.draft_seconds += time.perf_counter() - began
        return pick(guesses, slice(run.num_late, None))

    def commit(self, path_rows: Sequence[int], committed: Sequence[int]) -> None:
        """Keep the drafted part of the committed path (forest rows, root first); the text grows by `committed`."""
        self.tree_model.cache.keep(*self._text.commit(path_rows, committed))

    def check_integrity(self) -> None:
        """Assert that between rounds the cache holds committed tokens only, at most those before the root."""
        text = self._text
        assert self.tree_model.cache.length == text.length == text.seen <= len(text.text) - 1
        self.tree_model.cache.check_integrity()
