"""The description of a target/draft pair: names and hashes that traces, profiles and bundles carry. No models here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from treewise.data.errors import ParameterError, require

DRAFT_READS = ("prefix", "target_features")


@dataclass(frozen=True, slots=True)
class PairDescription:
    """Target, draft (or none) and tokenizer by name and content.

    Two pairs with equal hashes say the same things on the same prompt, in the same dtype; names are for people.
    """

    target: str  # the name or path it was loaded by
    target_sha256: str  # over the weights
    tokenizer_sha256: str  # over vocabulary, merges, normalizer, pre-tokenizer and chat template
    vocab_size: int  # width of the target's logits, padding rows included
    draft: str | None = None  # None: lookup only
    draft_sha256: str | None = None
    draft_head_size: int | None = None  # tokens the draft can say; None without a draft
    draft_reads: str = "prefix"  # prefix: token ids alone; target_features: the target's hidden states as well

    def __post_init__(self) -> None:
        for name in ("target", "target_sha256", "tokenizer_sha256"):
            value = getattr(self, name)
            require(isinstance(value, str) and value != "", name, "non-empty text", value)
        require(self.vocab_size >= 1, "vocab_size", ">= 1", self.vocab_size)
        require(self.draft_reads in DRAFT_READS, "draft_reads", f"one of {DRAFT_READS}", self.draft_reads)
        with_draft = self.draft is not None
        require((self.draft_sha256 is not None) == with_draft, "draft_sha256", "given with a draft", self.draft_sha256)
        require(
            (self.draft_head_size is not None) == with_draft,
            "draft_head_size",
            "given with a draft",
            self.draft_head_size,
        )

    @property
    def name(self) -> str:
        """Target and draft in one word, such as `smollm2-135m+default`."""
        return f"{self.target}+{self.draft or 'none'}"

    def differences(self, other: PairDescription) -> list[str]:
        """What makes `other` another pair, in words; empty when every hash and size agrees. Names do not count."""
        compared = (f.name for f in fields(self) if f.name not in ("target", "draft"))
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in compared)
        return [f"{name} {mine!r} here, {theirs!r} there" for name, mine, theirs in pairs if mine != theirs]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PairDescription:
        """Read what `to_json` wrote.

        Raises:
            ParameterError: a field is unknown, missing or breaks its rule.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(stored) - known):
            raise ParameterError(f"pair description must have only the fields {sorted(known)}, got {unknown}")
        if missing := sorted({"target", "target_sha256", "tokenizer_sha256", "vocab_size"} - set(stored)):
            raise ParameterError(f"pair description must name {missing}, got {sorted(stored)}")
        return cls(**stored)
