"""A complete batched engine that drafts chains and takes one draft length for the batch, on numpy alone.

Its own length is 4, always. The lines marked `treewise` let a policy choose it anew in every round; the text stays.

    python examples/chain_loop.py [POLICY]       # "frontier" by default, "learned:FOLDER" for a trained bundle
"""

import sys

import numpy as np

from treewise.data.cost import CostProfile  # treewise
from treewise.policy.chain_controller import ChainController, ChainSignals  # treewise

VOCAB, OWN_LENGTH = 64, 4
VERIFY_MS, DRAFT_MS = 26.0, 3.0  # what one pass of the target and of the draft takes


class TinyModel:
    """Scores of the next token by the last two, made up; `noise` makes a draft of the target."""

    def __init__(self, noise=0.0):
        shape = (VOCAB, VOCAB, VOCAB)
        self.scores = np.random.default_rng(1).normal(size=shape) + noise * np.random.default_rng(2).normal(size=shape)

    def next_tokens(self, texts):
        """The best token behind every text, in one pass."""
        before, last = np.asarray([text[-2:] for text in texts]).T
        return self.scores[before, last].argmax(axis=1)


def draft_chains(draft, texts, length):
    """`length` guesses behind every text, one pass each."""
    chains = [list(text) for text in texts]
    for _ in range(length):
        for chain, token in zip(chains, draft.next_tokens(chains), strict=True):
            chain.append(int(token))
    return [chain[len(text) :] for chain, text in zip(chains, texts, strict=True)]


def verify(target, texts, chains):
    """The tokens that the target commits in one pass, and how many guesses it accepted, per text."""
    rows = [
        [*text, *chain[:depth]] for text, chain in zip(texts, chains, strict=True) for depth in range(len(chain) + 1)
    ]
    said = target.next_tokens(rows).reshape(len(texts), -1)
    accepted = []
    for text, chain, tokens in zip(texts, chains, said.tolist(), strict=True):
        count = 0
        while count < len(chain) and chain[count] == tokens[count]:
            count += 1
        text.extend(tokens[: count + 1])
        accepted.append(count)
    return accepted


def decode(prompts, max_new_tokens, noise, controller=None):
    """Texts of a batch and the modelled milliseconds that they took."""
    target, draft = TinyModel(), TinyModel(noise)
    texts, ms = [list(prompt) for prompt in prompts], 0.0
    while min(len(text) - len(prompt) for text, prompt in zip(texts, prompts, strict=True)) < max_new_tokens:
        length = OWN_LENGTH
        if controller:  # treewise
            length = controller.depth(ChainSignals.of([len(text) for text in texts]))  # treewise
        accepted = verify(target, texts, draft_chains(draft, texts, length))
        if controller:  # treewise
            controller.observe(accepted, length)  # treewise
        ms += VERIFY_MS + length * DRAFT_MS
    return [text[len(prompt) :][:max_new_tokens] for text, prompt in zip(texts, prompts, strict=True)], ms


def main():
    policy = sys.argv[1] if len(sys.argv) > 1 else "frontier"
    prompts = [[1, 2], [3, 4], [5, 6], [7, 8]]
    for name, noise in (("good draft", 0.1), ("poor draft", 1.5)):
        controller = ChainController(policy, cost=CostProfile.load("example-a100-70b-3ms"))  # treewise
        own, own_ms = decode(prompts, 300, noise)
        mine, mine_ms = decode(prompts, 300, noise, controller)
        tokens = 300 * len(prompts)
        print(f"{name}: texts are equal: {own == mine}")
        print(f"{name}: {tokens / own_ms:.3f} tokens/ms at length {OWN_LENGTH}, {tokens / mine_ms:.3f} with the policy")


if __name__ == "__main__":
    main()
