"""What one decoded request brought and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field

from treewise.policy.outcome import RoundRecord


@dataclass(frozen=True, slots=True)
class Completion:
    """One decoded request and what it took.

    Of a pass that several requests share, each took its share of the seconds, so that totals over requests are right.
    """

    tokens: tuple[int, ...]  # committed completion tokens, end of text included
    finish: str  # "eos" or "length"; "stopped" where a caller's stopping criterion cut the text
    accepted_lengths: tuple[int, ...]  # [rounds]
    verified_nodes: tuple[int, ...]  # [rounds]
    growths: int
    policy_calls: int  # that reached the policy
    fallbacks: int
    suspensions: int
    prefill_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    policy_seconds: float

    @property
    def num_rounds(self) -> int:
        """Verify passes."""
        return len(self.accepted_lengths)

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens over decode time, prefill left out."""
        return len(self.tokens) / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens over verify passes; 1 for plain decoding."""
        return len(self.tokens) / max(self.num_rounds, 1)

    @property
    def nodes_per_round(self) -> float:
        """Verified nodes over verify passes."""
        return sum(self.verified_nodes) / max(self.num_rounds, 1)


@dataclass(slots=True)
class RoundSums:
    """The rounds of one request, summed up as they pass."""

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    growths: int = 0
    calls: int = 0
    fallbacks: int = 0
    suspensions: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    policy_ms: float = 0.0
    finish: str = ""

    def add(self, record: RoundRecord) -> None:
        """Take the next round."""
        self.tokens.extend(record.committed)
        self.accepted.append(record.accepted_length)
        self.nodes.append(record.num_nodes)
        self.growths += len(record.growth_tokens)
        self.calls += record.own_policy_calls
        self.fallbacks += record.fallback
        self.suspensions += record.suspended
        self.draft_ms += record.draft_ms
        self.verify_ms += record.verify_ms
        self.policy_ms += record.policy_ms
        self.finish = record.finish

    def completion(self, prefill_seconds: float, decode_seconds: float) -> Completion:
        """The sums, with the two times that no round knows."""
        return Completion(
            tokens=tuple(self.tokens),
            finish=self.finish,
            accepted_lengths=tuple(self.accepted),
            verified_nodes=tuple(self.nodes),
            growths=self.growths,
            policy_calls=self.calls,
            fallbacks=self.fallbacks,
            suspensions=self.suspensions,
            prefill_seconds=prefill_seconds,
            decode_seconds=decode_seconds,
            draft_seconds=self.draft_ms / 1e3,
            verify_seconds=self.verify_ms / 1e3,
            policy_seconds=self.policy_ms / 1e3,
        )
