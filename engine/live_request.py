"""One request of a live engine between rounds: its text, its free sources, and what became of its guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from treewise.data.errors import ParameterError, PromptError, require
from treewise.data.recycled import RecycledIndex
from treewise.data.suffix import SuffixIndex
from treewise.engine.engine_settings import EngineSettings
from treewise.engine.pair import Pair
from treewise.engine.sampling import Sampling
from treewise.engine.top_guesses import TopGuesses
from treewise.policy.hook import RequestInfo
from treewise.policy.progress import Progress, append_committed, check_guesses


@dataclass(slots=True)
class LiveRequest:
    """What an engine keeps of a request that it decodes."""

    sampling: Sampling
    progress: Progress
    text: list[int]  # committed tokens, the root last
    index: SuffixIndex | None  # None: the lookup is no source
    memory: RecycledIndex | None  # None: the recycled guesses are no source
    first_guess: dict[int, int] | None  # position -> the draft's first token below it; None without a draft
    task: str = ""  # kind of task that the policy is told of
    num_rounds: int = 0
    finish: str = ""  # "eos" or "length" once its text is committed
    draft_agrees: tuple[int, ...] = field(default=(), init=False)  # of the round before, as a trace logs it
    agrees_from: int = field(default=0, init=False)
    lookup_agrees: tuple[int, ...] = field(default=(), init=False)

    @property
    def info(self) -> RequestInfo:
        """What the policy is told of it."""
        progress = self.progress
        return RequestInfo(
            progress.request_id, progress.prompt_tokens, progress.max_new_tokens, progress.temperature, self.task
        )

    def take(self, committed: Sequence[int], said: TopGuesses | None, first_said: int, drafted_path: int) -> None:
        """Append what a round committed; `said` from row `first_said` on is the target's opinion of each token."""
        self.lookup_agrees = (-1,) * len(committed)
        if self.index is not None:
            self.lookup_agrees = tuple(append_committed(self.index, committed))
        if self.memory is not None and said is not None:
            for place, token in enumerate(committed, first_said):
                self.memory.remember(*said.at(place))
                self.memory.append(token)
        self.text.extend(committed)
        self.agrees_from = self.progress.draft_seen
        self.draft_agrees = ()
        if self.first_guess is not None:
            self.draft_agrees = check_guesses(self.progress, self.text, drafted_path, self.first_guess)

    def advance(
        self,
        accepted: int,
        committed: Sequence[int],
        drafted_path: int,
        entropy: float,
        margin: float,
        eos: Sequence[int],
    ) -> None:
        """Move past the round whose tokens `take` has taken."""
        self.progress.advance(
            accepted, len(committed), drafted_path, self.draft_agrees, self.lookup_agrees, entropy, margin
        )
        self.num_rounds += 1
        if committed[-1] in eos:
            self.finish = "eos"
        elif self.progress.remaining_tokens <= 0:
            self.finish = "length"


TREE_ROOM = 256  # cache slots behind a text, for the trees of its last round


def capacity_of(pair: Pair, prompt: Sequence[int], max_new_tokens: int) -> int:
    """Cache slots that a request's text and trees take, in tokens."""
    return min(len(prompt) + max_new_tokens, pair.max_context_tokens) + TREE_ROOM


def open_request(
    pair: Pair,
    settings: EngineSettings,
    request_id: int,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    first_guess: dict[int, int] | None,
    task: str = "",
) -> LiveRequest:
    """A request that `check_request` has let pass, before its first round; `first_guess` as the draft fills it."""
    text = [int(token) for token in prompt]
    limit = min(max_new_tokens, pair.max_context_tokens - len(text))
    temperature = float(np.float32(sampling.temperature))  # as a trace keeps it
    return LiveRequest(
        sampling=sampling,
        progress=Progress(request_id, len(text), limit, temperature),
        text=text,
        index=SuffixIndex(text) if settings.use_lookup else None,
        memory=RecycledIndex(pair.recycled, text) if settings.use_recycled else None,
        first_guess=first_guess,
        task=task,
    )


def check_request(pair: Pair, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Refuse what cannot be decoded.

    Raises:
        ParameterError: a token id outside the vocabulary, or no room asked for.
        PromptError: an empty prompt, or one that leaves no room in the target's context.
    """
    whole = isinstance(max_new_tokens, int | np.integer)
    require(whole and max_new_tokens >= 1, "max_new_tokens", "a whole number >= 1", max_new_tokens)
    if len(prompt) == 0:
        raise PromptError("prompt must be at least one token, got an empty one")
    longest = pair.max_context_tokens
    if len(prompt) >= longest:
        raise PromptError(f"prompt must be shorter than the target's context of {longest} tokens, got {len(prompt)}")
    size = pair.description.vocab_size
    strays = [token for token in prompt if not (0 <= token < size and token == int(token))]
    if strays:
        raise ParameterError(f"prompt must be token ids between 0 and {size - 1}, got {strays[0]}")
