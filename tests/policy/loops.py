"""A decoding loop that is not ours, for tests of the controller: table models and a draft cache that checks itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.policy.scripted import example_cost
from treewise.policy.controller import AcceptedStep, Controller, DraftCall, ProposedTree

VOCAB = 24
Float32Array = NDArray[np.float32]


class TableModel:
    """Softmax below a text by its last two tokens; `noise` makes a draft of the target with the same `seed`."""

    def __init__(self, seed: int = 0, noise: float = 0.0, columns: int = VOCAB) -> None:
        rng, other = np.random.default_rng([1, seed]), np.random.default_rng([2, seed])
        shape = (VOCAB, VOCAB, VOCAB)
        scores = 2.0 * rng.normal(size=shape) + noise * other.normal(size=shape)
        weights = np.exp(scores[:, :, :columns])
        self.probs: Float32Array = (weights / weights.sum(axis=2, keepdims=True)).astype(np.float32)

    def below(self, text: list[int]) -> Float32Array:
        """[columns]"""
        return np.asarray(self.probs[text[-2] if len(text) > 1 else 0, text[-1]])


Choose = Callable[[list[int]], int]  # text -> the target's token behind it


def greedy(model: TableModel) -> Choose:
    return lambda text: int(model.below(text).argmax())


def drawn(model: TableModel, temperature: float, seed: int) -> Choose:
    """Tokens drawn by a loop whose noise is a function of the position."""

    def choose(text: list[int]) -> int:
        noise = np.random.default_rng([seed, len(text)]).gumbel(size=VOCAB)
        return int((np.log(model.below(text)) / temperature + noise).argmax())

    return choose


def plain_text(prompt: list[int], choose: Choose, max_new_tokens: int, eos: tuple[int, ...] = ()) -> list[int]:
    text = list(prompt)
    while len(text) < len(prompt) + max_new_tokens:
        text.append(choose(text))
        if text[-1] in eos:
            break
    return text[len(prompt) :]


@dataclass
class CheckedDraft:
    """A draft with a cache of tokens, which asserts that every call says what the cache needs."""

    model: TableModel
    text: list[int]  # the loop's own, the root last
    cache: list[int] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)  # by place: the text that ends in the row
    calls: int = 0
    sees_late: bool = True  # answers for the catch-up rows too

    def __post_init__(self) -> None:
        self.cache = self.text[:-1]

    def __call__(self, call: DraftCall) -> Float32Array:
        self.calls += 1
        assert call.first_place == len(self.rows)
        assert call.places().tolist() == list(range(len(self.rows), len(self.rows) + call.num_rows))
        for row, (token, parent) in enumerate(zip(call.tokens.tolist(), call.parents.tolist(), strict=True)):
            committed = [*self.cache, *(text[-1] for text in self.rows)]
            above = committed if parent < 0 else self.rows[parent]
            assert call.positions[row] == len(above)
            assert (parent < 0) == (len(above) < len(self.text))
            self.rows.append([*above, token])
            assert self.rows[-1][: len(self.text)] == self.text[: len(self.rows[-1])]
        assert all(len(text) < len(self.text) for text in self.rows[call.first_place :][: call.catch_up])
        for row, token in zip(call.extra_rows.tolist(), call.extra_tokens.tolist(), strict=True):
            assert call.catch_up <= row < call.num_rows and 0 <= token < VOCAB
        fresh = self.rows[call.first_place :]
        return np.stack([self.model.below(text) for text in (fresh if self.sees_late else fresh[call.catch_up :])])

    def commit(self, step: AcceptedStep) -> None:
        self.cache += [self.rows[place][-1] for place in step.draft_places]
        self.text += step.tokens
        self.rows.clear()
        assert self.cache == self.text[: len(self.cache)] and len(self.cache) < len(self.text)


def check_tree(tree: ProposedTree, text: list[int]) -> list[list[int]]:
    """Assert that the arrays agree with each other; the text that ends in each row."""
    paths: list[list[int]] = []
    assert tree.tokens[0] == text[-1] and tree.parents[0] == -1
    for row, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True)):
        assert parent < row and (parent >= 0) == (row > 0)
        paths.append([*paths[parent], token] if row else list(text))
        seen = np.zeros(tree.num_rows, dtype=np.bool_)
        while row >= 0:
            seen[row] = True
            row = int(tree.parents[row])
        assert (tree.mask[len(paths) - 1] == seen).all()
    assert tree.positions.tolist() == [len(path) - 1 for path in paths]
    assert tree.depths.tolist() == [len(path) - len(text) for path in paths]
    assert len({tuple(path) for path in paths}) == len(paths)
    assert tree.padded_rows >= tree.num_rows == 1 + tree.num_nodes
    return paths


class Loop:
    """Decodes requests through a controller, all of them in turn, and checks every array on the way."""

    def __init__(self, controller: Controller, choose: Choose, draft: TableModel | None) -> None:
        self.controller, self.choose, self.draft = controller, choose, draft
        self.texts: dict[int, list[int]] = {}  # request -> prompt and completion
        self.drafts: dict[int, CheckedDraft] = {}
        self.finishes: dict[int, str] = {}
        self.accepted: dict[int, list[int]] = {}

    def begin(self, prompt: list[int], max_new_tokens: int, temperature: float = 0.0, prompt_id: str = "") -> int:
        request = self.controller.begin(prompt, max_new_tokens, temperature, prompt_id, "chat")
        self.texts[request] = list(prompt)
        self.accepted[request] = []
        if self.draft is not None:
            self.drafts[request] = CheckedDraft(self.draft, list(prompt), sees_late=bool(request % 2))
        return request

    def propose(self, request: int) -> ProposedTree:
        draft = self.drafts.get(request)
        if draft is not None:
            draft.rows.clear()
        return self.controller.propose(request, draft)

    def verify(self, request: int, tree: ProposedTree) -> list[int]:
        return [self.choose(path) for path in check_tree(tree, self.texts[request])]

    def accept(self, request: int, tree: ProposedTree, chosen: list[int]) -> AcceptedStep:
        step = self.controller.accept(request, chosen)
        assert tree.parents[list(step.places)].tolist() == [-1, *step.places[:-1]]
        assert len(step.places) == len(step.tokens) >= 1
        self.texts[request] += step.tokens
        self.accepted[request].append(step.accepted_length)
        if request in self.drafts:
            self.drafts[request].commit(step)
        if step.finish:
            self.finishes[request] = step.finish
            self.controller.finish(request, step.finish)
        return step

    def run(self) -> None:
        """Every open request to its end: all propose, then all accept in the other order."""
        while waiting := [request for request in self.texts if request not in self.finishes]:
            trees = {request: self.propose(request) for request in waiting}
            for request in reversed(waiting):
                self.accept(request, trees[request], self.verify(request, trees[request]))

    def completion(self, request: int, prompt: list[int]) -> list[int]:
        return self.texts[request][len(prompt) :]


COST = example_cost()
