"""Dense traces: a tree grown to the envelope at every committed position of a known text.

The text is fixed, so nothing has to be decoded: one teacher-forced pass of each model gives every committed position's
state, and trees at many positions grow together, level by level, as the requests of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import PromptError, require
from treewise.data.recycled import RecycledIndex
from treewise.data.suffix import SuffixIndex
from treewise.data.trace_schema import NodeTable, Rounds
from treewise.engine.draft_head import DraftHead
from treewise.engine.draft_model import DraftModel, decoder_layers, decoder_of
from treewise.engine.pair import Pair
from treewise.engine.record import ROOT_SIGNALS, build_tables, node_columns
from treewise.engine.sampling import Sampling, entropy_and_margin
from treewise.engine.top_guesses import TopGuesses, top_guesses
from treewise.engine.tree_model import TreeModel
from treewise.policy.draft_ranking import PLAIN, resolve_ranking
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, BoolArray, DraftGuesses, Int32Array, Nodes
from treewise.policy.outcome import walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder


@dataclass(frozen=True, slots=True)
class KnownText:
    """A prompt and the completion that was committed after it."""

    prompt_id: str
    task: str
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    max_new_tokens: int  # the limit under which the completion was made
    finish: str  # "eos" or "length"
    temperature: float = 0.0
    seed: int | None = None  # of the noise, above temperature 0; None where nobody knows it

    def __post_init__(self) -> None:
        if not self.prompt or not self.completion:
            raise PromptError(f"text of {self.prompt_id!r} must hold a prompt and a completion, got an empty one")
        limit = self.max_new_tokens
        require(len(self.completion) <= limit, "completion", f"at most {limit} tokens", len(self.completion))


class DenseDraft:
    """The draft at many positions of one text at once."""

    def __init__(
        self,
        draft: DraftModel,
        vocab_size: int,
        width: int,
        text: Sequence[int],
        sampling: Sampling | None = None,
        ranking: str = PLAIN,
    ) -> None:
        self.head = DraftHead(draft, vocab_size, width)
        self.head.begin(sampling or Sampling(), ranking)
        self.tree_model = TreeModel(draft.model, draft.num_layers, capacity=len(text) + 2048)
        hidden = self.tree_model.prefill(list(text))
        assert hidden is not None
        self._hidden = hidden  # [text, hidden size]
        self._length = len(text)
        self._first = self.guesses_along(0)[:, 0]
        self._roots = np.zeros(0, dtype=np.int64)  # [requests] positions
        self._slot_of: dict[int, int] = {}
        self._mask_of: dict[int, NDArray[np.bool_]] = {}

    def open(self, roots: Sequence[int]) -> None:
        """Start trees at the positions `roots`, one per request; the last trees go."""
        self._roots = np.asarray(roots, dtype=np.int64)
        self._slot_of.clear()
        self._mask_of.clear()
        self.tree_model.cache.keep(self._length, ())

    def first_guess(self, position: int) -> int:
        """The draft's first choice behind the text up to `position`."""
        return int(self._first[position])

    def guesses_along(self, first: int) -> NDArray[np.int32]:
        """The draft's candidates behind every position of the text from `first` on, best first, [positions, width]."""
        none = np.zeros(0, dtype=np.int32)
        below = np.arange(first + 1, self._length + 1, dtype=np.int32)
        return self.head.read(self._hidden[first:], below, none, none).tokens

    def in_vocab(self, tokens: Int32Array) -> BoolArray:
        """Which of `tokens` [n] the draft's head can say."""
        return self.head.in_vocab(tokens)

    def grow(self, nodes: Nodes, rows: Int32Array, extra_rows: Int32Array, extra_tokens: Int32Array) -> DraftGuesses:
        """Guesses below `rows` (parents first); the roots' come from the pass over the text."""
        inner = np.flatnonzero(nodes.parent[rows] >= 0)
        outer = np.flatnonzero(nodes.parent[rows] < 0)
        hidden = torch.empty((len(rows), self._hidden.shape[1]), dtype=self._hidden.dtype, device=self._hidden.device)
        hidden[outer] = self._hidden[self._roots[nodes.request[rows[outer]]]]
        if inner.size:
            hidden[inner] = self._run(nodes, rows[inner])
        positions = self._roots[nodes.request[rows]] + nodes.depth[rows] + 1
        return self.head.read(hidden, positions.astype(np.int32), extra_rows, extra_tokens)

    def _run(self, nodes: Nodes, rows: Int32Array) -> torch.Tensor:
        start = self.tree_model.cache.length
        mask = np.zeros((len(rows), start + len(rows)), dtype=np.bool_)
        roots = self._roots[nodes.request[rows]]
        for place, row in enumerate(rows.tolist()):
            seen = self._mask_of.get(int(nodes.parent[row]))
            if seen is None:
                mask[place, : roots[place] + 1] = True  # the text up to the root
            else:
                mask[place, : len(seen)] = seen
            mask[place, start + place] = True
            self._slot_of[row] = start + place
            self._mask_of[row] = mask[place]
        positions = (roots + nodes.depth[rows]).astype(np.int32)
        return self.tree_model.forward(nodes.token[rows], positions, mask)


@dataclass(frozen=True, slots=True)
class TargetSignals:
    """What the target says at every position of a text."""

    entropy: NDArray[np.float32]  # [text] bits
    margin: NDArray[np.float32]  # [text]
    top: TopGuesses  # [text, TOP]

    @classmethod
    @torch.inference_mode()
    def of(cls, pair: Pair, text: Sequence[int]) -> TargetSignals:
        """One teacher-forced pass over `text`."""
        logits = target_logits(pair, text)
        entropy, margin = entropy_and_margin(logits)
        return cls(entropy.cpu().numpy(), margin.cpu().numpy(), top_guesses(logits))


@torch.inference_mode()
def target_logits(pair: Pair, text: Sequence[int]) -> torch.Tensor:
    """Logits [text, vocabulary] of the target behind every position of `text`, in one teacher-forced pass."""
    model = TreeModel(pair.target, len(decoder_layers(decoder_of(pair.target))), capacity=len(text))
    count = len(text)
    positions = np.arange(count, dtype=np.int32)
    return model.forward(np.asarray(text, dtype=np.int32), positions, np.tri(count, dtype=np.bool_))


def grow_dense(
    pair: Pair,
    text: KnownText,
    envelope: Envelope,
    prior_table: PriorTable,
    chunk_positions: int = 16,
    sampling: Sampling | None = None,
    ranking: str = "",
    use_recycled: bool = True,
) -> tuple[Rounds, NodeTable]:
    """Trace tables of one text: a tree grown to `envelope` at each position that a round may start from.

    `envelope` should be the widened one of the policies that will be replayed (`Envelope.widened`). `sampling`, by
    default the text's temperature and seed alone, and `ranking` say how the draft's candidates are ranked. Without
    `use_recycled` that source does not exist. Raises
    `ParameterError` where they are to be ranked with noise and the text's seed is not known.
    """
    sampling = sampling or Sampling(text.temperature, seed=text.seed or 0)
    ranking = resolve_ranking(ranking, sampling.temperature)
    if pair.draft is not None and text.seed is None:
        require(ranking == PLAIN, "ranking", f"{PLAIN} where the seed of a text's noise is not known", ranking)
    tokens = (*text.prompt, *text.completion)
    first = len(text.prompt) - 1
    said = TargetSignals.of(pair, tokens[:-1])
    draft = None
    if pair.draft is not None:
        width = max(envelope.draft_width, 1)
        draft = DenseDraft(pair.draft, pair.description.vocab_size, width, tokens[:-1], sampling, ranking)
    policy = EverythingPolicy()
    # A chain offered whole keeps the priors of its offer; a policy that drafts first may be offered more.
    builder = RoundBuilder(envelope, prior_table, whole_chains=False, ranking=ranking)
    limit = min(text.max_new_tokens, pair.max_context_tokens - len(text.prompt))  # as the engine counts
    index = SuffixIndex(tokens[:first])
    # Above temperature 0 too the memory is of the target's unwarped distribution.
    memory = RecycledIndex(pair.recycled, tokens[:first]) if use_recycled else None
    rounds: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for start in range(first, len(tokens) - 1, chunk_positions):
        roots = list(range(start, min(start + chunk_positions, len(tokens) - 1)))
        lookups: list[SuffixIndex] = []
        memories: list[RecycledIndex] = []
        batch = []
        for root in roots:
            index.append(tokens[root])
            lookups.append(index.copy())
            if memory is not None:
                memory.append(tokens[root])
                memories.append(memory.copy())
                memory.remember(*said.top.at(root))
            progress = Progress(0, len(text.prompt), limit, text.temperature)
            progress.position = progress.draft_seen = root
            progress.generated_tokens = root - first
            batch.append(progress)
        if draft is not None:
            draft.open(roots)
        context = build_context(batch)
        root_tokens = np.asarray([tokens[root] for root in roots], dtype=np.int32)
        tree = builder.build(policy, context, root_tokens, lookups, draft, memories)
        depths = tree.forest.column("depth")

        def next_token(request: int, row: int, roots: list[int] = roots, depths: Int32Array = depths) -> int:
            place = roots[request] + int(depths[row]) + 1
            return tokens[place] if place < len(tokens) else -1

        result = walk(tree, len(roots), next_token)
        for request, root in enumerate(roots):
            number = root - first
            part = node_columns(tree.forest, 0, number, request, tree.kept, result.on_path, result.match)
            nodes.append(part)
            row = _round_row(text, limit, tree.forest.column, request, number, tokens, len(part["node"]))
            row["opening"] = LOOKUP | (DRAFT if draft is not None else 0) | (RECYCLED if memory is not None else 0)
            row["draft_agrees"] = [_agrees(-1 if draft is None else draft.first_guess(root), tokens[root + 1])]
            row["lookup_agrees"] = [_agrees(lookups[request].predict(), tokens[root + 1])]
            # the first root is the prompt's end: no distribution of this request gave it
            row["target_entropy"] = float(said.entropy[root - 1]) if number else float("nan")
            row["target_margin"] = float(said.margin[root - 1]) if number else float("nan")
            rounds.append(row)
    rounds[-1]["finish"] = text.finish
    return build_tables(rounds, nodes)


def _round_row(
    text: KnownText, limit: int, column: Any, request: int, number: int, tokens: Sequence[int], num_nodes: int
) -> dict[str, Any]:
    root = len(text.prompt) - 1 + number
    return {
        "request": 0,
        "prompt_id": text.prompt_id,
        "task": text.task,
        "round": number,
        "position": root,
        "generated_tokens": number,
        "remaining_tokens": limit - number,
        "prompt_tokens": len(text.prompt),
        "temperature": text.temperature,
        "seed": text.seed or 0,
        "root_token": tokens[root],
        "committed": [tokens[root + 1]],
        **{name: float(column(name)[request]) for name in ROOT_SIGNALS},
        "num_nodes": num_nodes,
        "finish": "",
    }


def _agrees(guess: int, token: int) -> int:
    return -1 if guess < 0 else int(guess == token)
