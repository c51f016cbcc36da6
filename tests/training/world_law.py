"""A small made-up world with a known draft law and known texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treewise.data.recycled import RecycledCorpus, RecycledIndex, pack
from treewise.data.suffix import SuffixIndex
from treewise.policy.hook import BoolArray, DraftGuesses, Int32Array, Nodes

VOCAB = 24
HEAD = 20  # the draft cannot say the last tokens
EOS = 19
TASKS = ("copy", "chat")
REMEMBERED = 6  # guesses of the target behind one context


@dataclass(frozen=True, slots=True)
class Text:
    """One prompt and the target's answer to it."""

    prompt_id: str
    task: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    max_new_tokens: int

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of it."""
        return (*self.prompt, *self.answer)

    @property
    def finish(self) -> str:
        """Why it ends."""
        return "eos" if self.answer[-1] == EOS else "length"


class World:
    """Draft law by the last two tokens; texts that follow the draft, and themselves, most of the time."""

    def __init__(self, seed: int = 0, num_texts: int = 4, answer_tokens: int = 40) -> None:
        self.rng = np.random.default_rng(seed)
        self.logits = 2.0 * self.rng.standard_normal((VOCAB, VOCAB, HEAD))
        self.logits[:, :, EOS] -= 4.0
        self._laws: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        self._indices: dict[tuple[str, int], SuffixIndex] = {}
        self._memories: dict[tuple[str, int], RecycledIndex] = {}
        self.texts = tuple(self._text(number, answer_tokens) for number in range(num_texts))
        self.corpus = self._corpus()

    def probs(self, context: Sequence[int]) -> np.ndarray[Any, Any]:
        """The draft's distribution behind `context`, [HEAD] float32."""
        state = (context[-2], context[-1])
        if state not in self._laws:
            weights = np.exp(self.logits[state] - self.logits[state].max())
            self._laws[state] = np.asarray(weights / weights.sum(), dtype=np.float32)
        return self._laws[state]

    def lookup(self, text: Text, position: int) -> SuffixIndex:
        """The suffix lookup over `text` up to and with `position`."""
        key = (text.prompt_id, position)
        if key not in self._indices:
            self._indices[key] = SuffixIndex(text.tokens[: position + 1])
        return self._indices[key]

    def memory(self, text: Text, position: int) -> RecycledIndex:
        """What the target gave in `text` up to and with `position`, behind the world's corpus."""
        key = (text.prompt_id, position)
        if key not in self._memories:
            tokens, first = text.tokens, len(text.prompt) - 1
            memory = RecycledIndex(self.corpus, tokens[:first])
            for at in range(first, position + 1):
                memory.append(tokens[at])
                self._memories[text.prompt_id, at] = memory.copy()
                law = 0.5 * np.append(self.probs(tokens[: at + 1]), np.zeros(VOCAB - HEAD))
                if at + 1 < len(tokens):
                    law[tokens[at + 1]] += 0.5
                best = np.argsort(-law, kind="stable")[:REMEMBERED]
                memory.remember(best.tolist(), law[best].tolist())
        return self._memories[key]

    def draft_agrees(self, text: Text, position: int) -> int:
        """Whether the draft's first guess at `position` is the next token."""
        return int(int(np.argmax(self.probs(text.tokens[: position + 1]))) == text.tokens[position + 1])

    def lookup_agrees(self, text: Text, position: int) -> int:
        """The same for the lookup's first continuation; -1 where it has none."""
        first = self.lookup(text, position).predict()
        return -1 if first < 0 else int(first == text.tokens[position + 1])

    def _corpus(self) -> RecycledCorpus:
        """The draft's law behind some pairs of tokens, and its mean behind most tokens."""
        entries: dict[int, tuple[int, list[int], list[float]]] = {}
        for last in range(0, VOCAB, 2):
            laws = [self.probs((before, last)) for before in range(VOCAB)]
            contexts = {pack((before, last)): law for before, law in enumerate(laws) if (before + last) % 3 == 0}
            contexts[pack((last,))] = np.mean(laws, axis=0)
            for place, (context, law) in enumerate(contexts.items()):
                best = np.argsort(-law, kind="stable")[:REMEMBERED]
                entries[context] = (1 + place, best.tolist(), law[best].tolist())
        return RecycledCorpus.build(entries, VOCAB, "0" * 64)

    def _text(self, number: int, answer_tokens: int) -> Text:
        prompt = tuple(self.rng.integers(0, EOS, size=6 + number).tolist())
        tokens = list(prompt)
        ends_early = number % 2 == 1
        for place in range(answer_tokens - 7 * number):
            draw = self.rng.random()
            if draw < 0.35 and len(tokens) > 6:
                start = int(self.rng.integers(0, len(tokens) - 3))
                tokens.append(tokens[start] if tokens[start] != EOS else 0)
            elif draw < 0.75:
                tokens.append(int(np.argmax(self.probs(tokens))))
            else:
                tokens.append(int(self.rng.integers(0, VOCAB)))
            if tokens[-1] == EOS:
                tokens[-1] = 1
            if place % 11 == 10:
                tokens.extend(tokens[-9:-4])
        answer = tokens[len(prompt) :]
        if ends_early:
            answer[-1] = EOS
        limit = len(answer) + 5 if ends_early else len(answer)
        return Text(f"prompt-{number}", TASKS[number % 2], prompt, tuple(answer), limit)


class WorldDraft:
    """`DraftSource` that computes the world's law."""

    def __init__(self, world: World, context: Sequence[int], width: int) -> None:
        self.world, self.context, self.width = world, tuple(context), width

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Straight from the law."""
        laws = [self.world.probs((*self.context, *self._path(nodes, row))) for row in rows.tolist()]
        orders = [np.argsort(-law, kind="stable") for law in laws]
        extra_probs, extra_ranks = [], []
        for place, token in zip(extra_rows.tolist(), extra_tokens.tolist(), strict=True):
            known = token < HEAD
            extra_probs.append(laws[place][token] if known else np.nan)
            extra_ranks.append(int(np.flatnonzero(orders[place] == token)[0]) if known else np.nan)
        top = [order[: self.width] for order in orders]
        return DraftGuesses(
            tokens=np.asarray(top, dtype=np.int32),
            probs=np.asarray([law[first] for law, first in zip(laws, top, strict=True)], dtype=np.float32),
            entropy=np.asarray([-(law * np.log2(law)).sum() for law in laws], dtype=np.float32),
            margin=np.asarray(
                [law[order[0]] - law[order[1]] for law, order in zip(laws, orders, strict=True)], dtype=np.float32
            ),
            extra_probs=np.asarray(extra_probs, dtype=np.float32),
            extra_ranks=np.asarray(extra_ranks, dtype=np.float32),
        )

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """What the head can say."""
        return np.asarray(tokens < HEAD, dtype=np.bool_)

    @staticmethod
    def _path(nodes: Nodes, row: int) -> tuple[int, ...]:
        path: list[int] = []
        while nodes.parent[row] >= 0:
            path.append(int(nodes.token[row]))
            row = int(nodes.parent[row])
        return tuple(reversed(path))
