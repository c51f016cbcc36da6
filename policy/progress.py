"""What a driver keeps per request between rounds, and shows policies as the round's context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from treewise.data.suffix import SuffixIndex
from treewise.policy.hook import RoundContext

DECAY = 0.9  # weight of the past in every recent share and moving average


@dataclass(slots=True)
class RecentShare:
    """Exponentially weighted mean of a series, unbiased from the first value on; NaN before it."""

    weighted: float = 0.0
    weight: float = 0.0

    def add(self, value: float) -> None:
        """Take the next value of the series."""
        self.weighted = DECAY * self.weighted + value
        self.weight = DECAY * self.weight + 1.0

    @property
    def mean(self) -> float:
        """The weighted mean, NaN before the first value."""
        return self.weighted / self.weight if self.weight else float("nan")


@dataclass(slots=True)
class Progress:
    """One request between rounds. Both drivers advance it with the same calls, so contexts come out equal."""

    request_id: int
    prompt_tokens: int
    max_new_tokens: int
    temperature: float = 0.0
    position: int = field(init=False)  # absolute position of the root
    generated_tokens: int = 0
    draft_seen: int = field(init=False)  # committed tokens that the draft cache holds: positions 0 .. draft_seen - 1
    draft_share: RecentShare = field(default_factory=RecentShare)
    lookup_share: RecentShare = field(default_factory=RecentShare)
    accepted: RecentShare = field(default_factory=RecentShare)
    last_accepted: float = float("nan")
    target_entropy: float = float("nan")
    target_margin: float = float("nan")

    def __post_init__(self) -> None:
        self.position = self.prompt_tokens - 1
        self.draft_seen = self.prompt_tokens - 1  # prefill leaves both caches at the root

    @property
    def remaining_tokens(self) -> int:
        """Completion tokens that may still be committed."""
        return self.max_new_tokens - self.generated_tokens

    @property
    def catch_up(self) -> int:
        """Committed tokens before the root that the draft cache has not seen."""
        return self.position - self.draft_seen

    def advance(
        self,
        accepted_length: int,
        committed_tokens: int,
        drafted_path: int,
        draft_agrees: Sequence[int],
        lookup_agrees: Sequence[int],
        target_entropy: float,
        target_margin: float,
    ) -> None:
        """Move past one round.

        `drafted_path`: rows of the committed path that the draft ran on, from the root on (0: the root was not run).
        `draft_agrees`, `lookup_agrees`: 1, 0 or -1 (unknown) for the guesses that became checkable in this round, in
        order of position. Entropy (bits) and margin belong to the distribution that the new root was drawn from.
        """
        if drafted_path:
            self.draft_seen = self.position + drafted_path
        self.position += committed_tokens
        self.generated_tokens += committed_tokens
        for agrees in draft_agrees:
            if agrees >= 0:
                self.draft_share.add(float(agrees))
        for agrees in lookup_agrees:
            if agrees >= 0:
                self.lookup_share.add(float(agrees))
        self.accepted.add(float(accepted_length))
        self.last_accepted = float(accepted_length)
        self.target_entropy = target_entropy
        self.target_margin = target_margin


def build_context(batch: Sequence[Progress]) -> RoundContext:
    """The context of a round over `batch`, one entry per request."""

    def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.asarray(values, dtype=np.int32)

    def floats(values: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.asarray(values, dtype=np.float32)

    return RoundContext(
        request_id=ints([p.request_id for p in batch]),
        position=ints([p.position for p in batch]),
        generated_tokens=ints([p.generated_tokens for p in batch]),
        remaining_tokens=ints([p.remaining_tokens for p in batch]),
        catch_up=ints([p.catch_up for p in batch]),
        draft_agreement=floats([p.draft_share.mean for p in batch]),
        lookup_agreement=floats([p.lookup_share.mean for p in batch]),
        accepted_recent=floats([p.accepted.mean for p in batch]),
        last_accepted=floats([p.last_accepted for p in batch]),
        target_entropy=floats([p.target_entropy for p in batch]),
        target_margin=floats([p.target_margin for p in batch]),
        temperature=floats([p.temperature for p in batch]),
        batch_size=len(batch),
    )


def check_guesses(
    progress: Progress, text: Sequence[int], drafted_path: int, first_guess: dict[int, int]
) -> tuple[int, ...]:
    """Compare the draft's first guesses that a round made checkable with the text: 1, 0 or -1 (unknown).

    Called before `advance`, with the round's tokens in `text` already; entry i is of position `draft_seen` + i. What is
    compared leaves `first_guess` (position -> the draft's first token below it, where it ran).
    """
    if not drafted_path:
        return ()
    agrees = []
    for place in range(progress.draft_seen, progress.position + drafted_path):
        if place + 1 < len(text):
            guess = first_guess.pop(place, -1)
            agrees.append(-1 if guess < 0 else int(guess == text[place + 1]))
    return tuple(agrees)


def append_committed(index: SuffixIndex, committed: Sequence[int]) -> Iterator[int]:
    """Append committed tokens; yields 1, 0 or -1: whether the lookup's first continuation was the token."""
    for token in committed:
        guess = index.predict()
        yield -1 if guess < 0 else int(guess == token)
        index.append(token)
