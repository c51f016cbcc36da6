"""A complete tree-decoding loop with models, caches, masks and verification of its own, on numpy alone.

It knows one tree: the two best children everywhere, three deep. The lines marked `treewise` let a policy decide width,
depth and budget instead; nothing else changes, and neither does the text.

    python examples/tree_loop.py [POLICY]       # "frontier" by default, "learned:FOLDER" for a trained bundle
"""

import sys
from typing import NamedTuple

import numpy as np

from treewise.data.cost import CostProfile  # treewise
from treewise.policy.controller import Controller  # treewise

VOCAB, SIZE = 96, 48


class TinyModel:
    """One attention layer with made-up weights and a key-value cache; `noise` makes a draft of the target."""

    def __init__(self, noise=0.0):
        rng, other = np.random.default_rng(5), np.random.default_rng(6)
        shapes = [(VOCAB, SIZE), (SIZE, SIZE), (SIZE, SIZE), (SIZE, SIZE), (SIZE, VOCAB)]
        self.weights = [rng.normal(size=s) + noise * other.normal(size=s) for s in shapes]
        self.keys = self.values = np.zeros((0, SIZE))

    def forward(self, tokens, positions, mask):
        """Softmax below every row. `mask` [rows, slots]: the last slots, these rows' own included; all see the rest."""
        embedding, query, key, value, head = self.weights
        waves = np.sin(np.asarray(positions)[:, None] / 1.7 ** np.arange(SIZE) + np.arange(SIZE))
        hidden = embedding[tokens] + waves
        self.keys = np.concatenate([self.keys, hidden @ key])
        self.values = np.concatenate([self.values, hidden @ value])
        scores = (hidden @ query) @ self.keys.T / SIZE**1.5
        scores[:, len(self.keys) - mask.shape[1] :][~mask] = -np.inf
        logits = (hidden + softmax(scores) @ self.values / 4.0) @ head / SIZE**0.5
        return softmax(logits)

    def keep(self, length, slots):
        """Drop everything behind `length` but these of the slots behind it."""
        self.keys, self.values = (
            np.concatenate([part[:length], part[length:][list(slots)]]) for part in (self.keys, self.values)
        )


class Tree(NamedTuple):
    """Rows of a verify pass, the root first."""

    tokens: list
    parents: list  # -1: the root


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def run_rows(model, seen, tokens, parents):
    """One pass over rows of this round; `seen` holds, for every row so far, the places that it sees."""
    cached = len(model.keys) - len(seen)
    for parent in parents:
        place = len(seen)
        seen.append([*(range(place) if parent < 0 else seen[parent]), place])
    mask = np.zeros((len(tokens), len(seen)), dtype=bool)
    for row, places in enumerate(seen[len(seen) - len(tokens) :]):
        mask[row, places] = True
    return model.forward(np.asarray(tokens), cached + mask.sum(axis=1) - 1, mask)


def own_tree(draft, seen, text, width=2, depth=3):
    """The loop's own rule: the `width` best children of every node, `depth` levels."""
    late = text[len(draft.keys) : -1]  # committed tokens that the draft's cache lacks
    tokens, parents, level = [text[-1]], [-1], [0]
    probs = run_rows(draft, seen, [*late, text[-1]], [-1] * (len(late) + 1))[-1:]
    for below in range(1, depth + 1):
        best = np.argsort(-probs, axis=1)[:, :width]
        fresh = [(int(token), row) for row, guesses in zip(level, best, strict=True) for token in guesses]
        level = list(range(len(tokens), len(tokens) + len(fresh)))
        tokens += [token for token, _ in fresh]
        parents += [row for _, row in fresh]
        if below < depth:
            places = [row + len(late) for _, row in fresh]
            probs = run_rows(draft, seen, [token for token, _ in fresh], places)
    return Tree(tokens, parents)


def decode(prompt, max_new_tokens, controller=None):
    """Greedy text and the rounds that it took; without a controller the loop's own tree."""
    target, draft = TinyModel(), TinyModel(noise=0.12)
    for model in (target, draft):
        run_rows(model, [], prompt[:-1], [-1] * (len(prompt) - 1))
    text, seen, rounds = list(prompt), [], 0
    request = controller.begin(prompt, max_new_tokens) if controller else None  # treewise
    while len(text) < len(prompt) + max_new_tokens:
        position, drafted = len(text) - 1, len(draft.keys)
        seen.clear()
        tree = own_tree(draft, seen, text) if controller is None else None
        if controller:  # treewise
            tree = controller.propose(request, lambda c: run_rows(draft, seen, c.tokens, c.parents))  # treewise
        chosen = run_rows(target, [], tree.tokens, tree.parents).argmax(axis=1)
        path = [0]
        while agrees := [r for r, p in enumerate(tree.parents) if p == path[-1] and tree.tokens[r] == chosen[p]]:
            path.append(agrees[0])
        late = position - drafted
        kept = [*range(late), *(row + late for row in path if row + late < len(seen))]
        if controller:  # treewise
            kept = controller.accept(request, chosen).draft_places  # treewise
        target.keep(position, path)
        draft.keep(drafted, kept)
        text += [int(chosen[row]) for row in path]
        rounds += 1
    if controller:  # treewise
        controller.finish(request, "length")  # treewise
    return text[len(prompt) : len(prompt) + max_new_tokens], rounds


def main():
    policy = sys.argv[1] if len(sys.argv) > 1 else "frontier"
    controller = Controller(policy, cost=CostProfile.load("example-a100-70b"), vocab_size=VOCAB)  # treewise
    prompts = [[7, 3, 9, 3, 7, 3], [11, 40, 2], [5] * 4]
    own = [decode(prompt, 60) for prompt in prompts]
    mine = [decode(prompt, 60, controller) for prompt in prompts]
    print("texts are equal:", [text for text, _ in own] == [text for text, _ in mine])
    for name, answers in (("own tree", own), (policy.partition(":")[0], mine)):
        tokens, rounds = sum(len(text) for text, _ in answers), sum(rounds for _, rounds in answers)
        print(f"{name}: {tokens / rounds:.2f} tokens/round")


if __name__ == "__main__":
    main()
