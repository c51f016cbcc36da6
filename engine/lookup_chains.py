"""Chains of guesses from the suffix lookup, for engines that show a request's whole text and take token lists.

The engine is never told of here: it hands over the text as it stands, and gets the tokens that may come next. What was
accepted of the chain before is read off the text's new end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import require
from treewise.policy.chain import ChainPolicy, ChainSettings
from treewise.policy.controller import Controller, ControllerCounters, ControllerSettings, ProposedTree
from treewise.policy.controller_settings import is_number, is_whole
from treewise.policy.hook import LOOKUP, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy

EXAMPLE_COST = "example-a100-70b"  # serves policies that read no prices
Tokens = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class LookupChainSettings:
    """Settings of `LookupChains`."""

    policy: str = ""  # spec string; "": the plain rule, `max_tokens` of the lookup's best chain
    cost: str = ""  # profile file or built-in name; needed beside a policy
    max_tokens: int = 8  # longest chain
    max_text_tokens: int = 1 << 20  # prompt and completion of one request; no guesses from there on
    time_limit_ms: float = 5.0  # of one policy call; three slower ones in a row leave the request to the plain rule

    def __post_init__(self) -> None:
        for name in ("policy", "cost"):
            require(isinstance(getattr(self, name), str), name, "a str", getattr(self, name))
        whole, longest = is_whole(self.max_tokens), is_whole(self.max_text_tokens)
        require(whole and 1 <= self.max_tokens <= 64, "max_tokens", "between 1 and 64", self.max_tokens)
        require(longest and self.max_text_tokens >= 2, "max_text_tokens", "at least 2", self.max_text_tokens)
        limited = is_number(self.time_limit_ms) and self.time_limit_ms > 0.0
        require(limited, "time_limit_ms", "a number above 0", self.time_limit_ms)
        require(not self.policy or bool(self.cost), "cost", "given beside a policy, which may read prices", self.cost)


@dataclass(slots=True)
class LookupChain:
    """One request: the text that was last shown, and the chain that was proposed behind it."""

    text: NDArray[np.int32]  # [tokens]
    request: int  # of the controller
    tree: ProposedTree | None = None  # waits for the target's tokens

    def continues(self, text: Tokens, new_tokens: int | None = None) -> bool:
        """Whether `text` is this request's, one or more tokens (exactly `new_tokens` where given) longer."""
        grown = len(text) - len(self.text)
        fits = grown >= 1 if new_tokens is None else grown == new_tokens
        return fits and bool(np.array_equal(text[: len(self.text)], self.text))


class LookupChains:
    """A policy over the suffix lookup alone, held to chains; a policy that fails leaves the round to the plain rule.

    `counters.fallbacks` and `.suspensions` count those rounds, `.failures` the exceptions; `num_restarts` counts texts
    whose index was built anew because they did not continue what was shown before. Raises what the policy raises where
    it cannot serve without a draft.
    """

    def __init__(
        self, vocab_size: int, settings: LookupChainSettings | None = None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.settings = settings = LookupChainSettings() if settings is None else settings
        plain = ChainPolicy(ChainSettings(length=settings.max_tokens, sources="lookup"))
        policy: TreePolicy = parse_policy(settings.policy) if settings.policy else plain
        envelope = policy.bundle.envelope if isinstance(policy, LearnedPolicy) else Envelope()
        narrow = replace(
            envelope,
            max_depth=min(settings.max_tokens, 64 if policy is plain else envelope.max_depth),
            lookup_width=1,  # below every node one candidate: every tree is a chain
        )
        self._controller = Controller(
            policy,
            cost=CostProfile.load(settings.cost or EXAMPLE_COST),
            vocab_size=vocab_size,
            sources=LOOKUP,
            settings=ControllerSettings(envelope=narrow, time_limit_ms=settings.time_limit_ms),
            fallback=plain,
            clock=clock,
        )
        self.num_restarts = 0

    @property
    def counters(self) -> ControllerCounters:
        """Of all requests."""
        return self._controller.counters

    def start(self, text: ArrayLike) -> LookupChain:
        """A request whose text so far is `text` [tokens]; its index is built here, microseconds a token."""
        shown = np.asarray(text)
        most = max(1, self.settings.max_text_tokens - shown.size)
        request = self._controller.begin(shown, most)  # refuses what int32 cannot hold
        return LookupChain(np.array(shown, dtype=np.int32), request)

    def propose(self, chain: LookupChain, text: ArrayLike, most: int | None = None) -> list[int]:
        """The tokens that may follow `text` [tokens], at most `most` of them; none where the lookup knows nothing.

        `text` is the chain's own text, or continues it, or is another one: then the request starts over. A text of
        `max_text_tokens` or more gets none, and the request stands where it stood.
        """
        limit = self.settings.max_tokens if most is None else min(most, self.settings.max_tokens)
        if limit < 1:
            return []
        shown = np.asarray(text)
        if len(shown) >= self.settings.max_text_tokens:
            return []
        if not np.array_equal(shown, chain.text):
            self._advance(chain, shown)
        if chain.tree is None:
            chain.tree = self._controller.propose(chain.request)
        tree = chain.tree
        assert np.array_equal(tree.parents, np.arange(tree.num_rows) - 1), "a lookup of width 1 draws chains"
        return [int(token) for token in tree.tokens[1 : limit + 1]]

    def drop(self, chain: LookupChain, reason: str = "length") -> None:
        """End a request."""
        if chain.tree is not None:
            self._controller.withdraw(chain.request)
        self._controller.finish(chain.request, reason)

    def _advance(self, chain: LookupChain, text: Tokens) -> None:
        """Tell the controller what the target said, read off the text's new end."""
        tree, continues = chain.tree, chain.continues(text)
        said = text[len(chain.text) :].tolist() if continues else []
        # An engine that cut the chain may end a round on a token that the cut part held too: nothing was said below it.
        walked = 0
        if tree is not None:
            guessed = tree.tokens[1:].tolist()
            while walked < min(len(said), len(guessed)) and said[walked] == guessed[walked]:
                walked += 1
        if tree is None or walked + 1 != len(said):
            self._restart(chain, text)
            return
        chosen = np.full(tree.num_rows, said[-1], dtype=text.dtype)
        chosen[: len(said)] = said
        self._controller.accept(chain.request, chosen)
        chain.text, chain.tree = np.array(text, dtype=np.int32), None

    def _restart(self, chain: LookupChain, text: Tokens) -> None:
        fresh = self.start(text)  # may raise; the chain then keeps the request that it has
        self.num_restarts += 1
        self.drop(chain)
        chain.text, chain.request, chain.tree = fresh.text, fresh.request, None
