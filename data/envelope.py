"""The envelope: what may be grown at all, read off a candidate's own path."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from treewise.data.errors import ParameterError, require
from treewise.data.stored_json import check_names

SLACK = 0.9  # a covering log is grown this much below the prior bounds it stands for, so that float noise stays covered


@dataclass(frozen=True, slots=True)
class Envelope:
    """Bounds that hold whatever the policy says; the engine and replay enforce them with the same code.

    Every bound is a function of the candidate's own path, so what is allowed does not depend on what else was pruned,
    and a log made at a slightly wider envelope covers every policy inside this one.
    """

    max_depth: int = 10  # deepest node
    draft_width: int = 5  # draft candidates offered below one node: ranks 0 .. draft_width - 1
    lookup_width: int = 3  # lookup candidates offered below one node
    min_path_prior: float = 0.01  # a candidate with a smaller path prior is not offered
    min_grow_prior: float = 0.03  # below a node with a smaller path prior only the lookup is asked
    recycled_width: int = 4  # recycled candidates offered below one node

    def __post_init__(self) -> None:
        require(1 <= self.max_depth <= 64, "max_depth", "between 1 and 64", self.max_depth)
        require(0 <= self.draft_width <= 64, "draft_width", "between 0 and 64", self.draft_width)
        require(0 <= self.lookup_width <= 64, "lookup_width", "between 0 and 64", self.lookup_width)
        require(0 <= self.recycled_width <= 64, "recycled_width", "between 0 and 64", self.recycled_width)
        require(0.0 < self.min_path_prior < 1.0, "min_path_prior", "between 0 and 1", self.min_path_prior)
        require(
            self.min_path_prior <= self.min_grow_prior < 1.0,
            "min_grow_prior",
            f"between min_path_prior ({self.min_path_prior}) and 1",
            self.min_grow_prior,
        )

    def widened(self, factor: float = SLACK) -> Envelope:
        """The same envelope with its prior bounds scaled by `factor`: what a covering log is grown to."""
        return replace(self, min_path_prior=self.min_path_prior * factor, min_grow_prior=self.min_grow_prior * factor)

    def covers(self, other: Envelope) -> list[str]:
        """The bounds of `other` that reach outside this envelope, in words; empty when every one is covered."""
        gaps = []
        for name in ("max_depth", "draft_width", "lookup_width", "recycled_width"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if theirs > mine:
                gaps.append(f"{name} {theirs} > {mine}")
        for name in ("min_path_prior", "min_grow_prior"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if theirs < mine:
                gaps.append(f"{name} {theirs:g} < {mine:g}")
        return gaps

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Envelope:
        """The envelope that `to_json` wrote. Raises `ParameterError` on unknown or missing names."""
        check_names(value, cls.__dataclass_fields__, "envelope", ParameterError)
        return cls(**value)


@dataclass(frozen=True, slots=True)
class PriorTable:
    """Match probability of the lookup's continuations by match length: the prior where no draft ran.

    `by_match_length[m]` is for a match of m tokens; longer matches use the last entry. A continuation's prior is that
    entry times its share of the continuations, so siblings split one mass.
    """

    by_match_length: tuple[float, ...] = (
        0.0, 0.38, 0.60, 0.70, 0.75, 0.80, 0.82, 0.85, 0.87, 0.87, 0.88, 0.88, 0.96,
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(len(self.by_match_length) >= 2, "by_match_length", "at least two entries", self.by_match_length)
        for value in self.by_match_length:
            require(0.0 <= value <= 1.0, "by_match_length", "probabilities", self.by_match_length)

    def prior(self, match_length: int, share: float) -> float:
        """Prior of one continuation: table entry for the match length (tokens) times its share in [0, 1]."""
        table = self.by_match_length
        return table[min(match_length, len(table) - 1)] * share
