"""Where the order of two policies flips: how much dearer drafts, or wide verify passes, would have to be."""

from __future__ import annotations

from dataclasses import dataclass

from treewise.training.tally import Tally


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Cost factors at which two policies are equally fast on their replayed rounds; 1 is the profile as it stands."""

    profile: str
    first: str
    policy: str
    ratio: float  # speed of `policy` over that of `first` at the profile as it stands
    draft_factor: float | None  # on every draft growth's milliseconds; None: no factor above 0 flips the order
    verify_factor: float | None  # on what a verify pass costs beyond one row; None likewise
    held: tuple[str, ...]  # of the two, those that read costs: their decisions are held as replayed

    def words(self) -> str:
        """The factors in a sentence."""
        parts = [
            _phrase("draft growths", self.draft_factor),
            _phrase("verify rows beyond the first", self.verify_factor),
        ]
        note = f"; {', '.join(self.held)} read the costs and are held to what they decided" if self.held else ""
        return f"{self.policy} and {self.first} change places {'; '.join(parts)}{note}"


def break_even(profile: str, first_name: str, first: Tally, policy_name: str, policy: Tally) -> BreakEven:
    """The factors at which `policy` and `first`, on the same requests, need equal time per token.

    With factor f on drafts and s on the slope of verification, a policy needs rest + f x draft + s x slope
    milliseconds, where draft are those of its growths, slope what its verify passes cost beyond passes of one row, and
    rest all others. Equal time per token, tokens_a x ms_b = tokens_b x ms_a, is linear in f and in s, so each has one
    solution, the other factor being 1; solutions at or below 0 are none.

    Assumes that nobody decides otherwise at other costs. That holds for rules that do not read the cost profile; one
    that does would adapt, so its decisions are held as replayed and the factor says how far the present decisions
    carry, not where the policy itself would lose.
    """
    mine, theirs = _Sums.of(policy), _Sums.of(first)
    return BreakEven(
        profile,
        first_name,
        policy_name,
        mine.tokens * theirs.ms / (theirs.tokens * mine.ms),
        _factor(mine, theirs, mine.draft_ms, theirs.draft_ms),
        _factor(mine, theirs, mine.slope_ms, theirs.slope_ms),
        tuple(name for name, tally in ((first_name, first), (policy_name, policy)) if tally.reads_costs),
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """Totals of one policy over its requests."""

    tokens: float
    ms: float
    draft_ms: float
    slope_ms: float

    @classmethod
    def of(cls, tally: Tally) -> _Sums:
        return cls(*(float(tally.columns[name].sum()) for name in ("tokens", "ms", "draft_ms", "slope_ms")))


def _factor(mine: _Sums, theirs: _Sums, my_part: float, their_part: float) -> float | None:
    """f with tokens_b x (ms_a - part_a + f part_a) = tokens_a x (ms_b - part_b + f part_b)."""
    slope = theirs.tokens * my_part - mine.tokens * their_part
    rest = mine.tokens * (theirs.ms - their_part) - theirs.tokens * (mine.ms - my_part)
    if abs(slope) <= 1e-9 * max(theirs.tokens * my_part, mine.tokens * their_part, 1e-300):
        return None  # both are touched alike
    factor = rest / slope
    return factor if factor > 0.0 else None


def _phrase(what: str, factor: float | None) -> str:
    return f"at no price of {what}" if factor is None else f"where {what} cost {factor:.2f} times as much"
