"""What every rule policy shares: the bound deployment, its settings and spec string, and no memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np

from treewise.data.envelope import Envelope
from treewise.data.errors import require
from treewise.policy.hook import (
    DRAFT,
    FREE,
    LOOKUP,
    RECYCLED,
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Reach,
    RequestInfo,
    RoundOutcome,
    State,
    UInt8Array,
)

Sources: TypeAlias = Literal["all", "both", "draft", "lookup", "recycled", "free"]
SettingsT = TypeVar("SettingsT")
_ALL = DRAFT | FREE
# Source bits by the name of a choice.
SOURCE_BITS: dict[str, int] = {
    "all": _ALL,
    "both": DRAFT | LOOKUP,
    "draft": DRAFT,
    "lookup": LOOKUP,
    "recycled": RECYCLED,
    "free": FREE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChoice:
    """Which of the deployment's sources a rule policy asks."""

    sources: Sources = "all"

    def __post_init__(self) -> None:
        require(self.sources in SOURCE_BITS, "sources", f"one of {', '.join(sorted(SOURCE_BITS))}", self.sources)


class RulePolicy(ABC, Generic[SettingsT]):
    """A policy of fixed rules: remembers nothing, keeps what it admitted.

    Subclasses name themselves, their settings and the settings that a spec string gives by place (`3x4`), and answer
    `expand`.
    """

    name: str
    settings_type: type[SettingsT]
    positional: tuple[str, ...] = ()
    state: State = "none"

    def __init__(self, settings: SettingsT | None = None) -> None:
        self.settings: SettingsT = self.settings_type() if settings is None else settings
        choice = self.settings
        self._wanted = SOURCE_BITS[choice.sources] if isinstance(choice, SourceChoice) else _ALL
        self._bits = self._wanted
        self._envelope = Envelope()

    @property
    def reach(self) -> Reach:
        """Whatever the deployment's envelope offers; the default envelope before `bind`."""
        return self._reach(None)

    @property
    def sources_asked(self) -> int:
        """Bits of the sources that it ever asks; once bound, of those that exist."""
        return self._bits

    @property
    def spec(self) -> str:
        """The spec string that makes this policy again."""
        return format_spec(self.name, self.positional, self.settings)

    def bind(self, deployment: Deployment) -> None:
        """Take the deployment's envelope and the sources that exist there."""
        self._envelope = deployment.envelope
        self._bits = self._wanted & deployment.sources

    def begin(self, request: RequestInfo) -> None:
        """Nothing to prepare."""

    @abstractmethod
    def expand(self, level: Level) -> Expansion:
        """Each rule's own."""

    def select(self, forest: ForestView) -> BoolArray:
        """Everything that was admitted."""
        return forest.nodes.admitted.copy()

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to remember."""

    def finish(self, request_id: int, reason: str) -> None:
        """Nothing to forget."""

    def _reach(self, depth: int | None, width: int | None = None) -> Reach:
        """Reach with the envelope's bound where the rule sets none."""
        envelope = self._envelope
        drafts = bool(self._bits & DRAFT)
        width = envelope.draft_width if width is None else width
        return Reach(envelope.max_depth if depth is None else depth, width if drafts else 0)

    def _grow(self, level: Level, where: BoolArray, bits: int | None = None) -> UInt8Array:
        """Growth bits [candidates]: this policy's sources (or `bits` of them) `where` the envelope allows them."""
        wanted = np.uint8(self._bits if bits is None else self._bits & bits)
        return np.where(where, level.candidates.may_grow & wanted, 0).astype(np.uint8)


def setting_names(settings_type: type[object]) -> tuple[str, ...]:
    """Names of a policy's settings, its own before those that it shares with others."""
    names = [setting.name for setting in fields(settings_type)]  # type: ignore[arg-type]
    return tuple(sorted(names, key=SourceChoice.__dataclass_fields__.__contains__))


def format_spec(name: str, positional: tuple[str, ...], settings: object) -> str:
    """`name`, then the positional settings joined by `x`, then every other setting that is not its default."""
    parts = []
    if positional:
        parts.append("x".join(format_value(getattr(settings, setting)) for setting in positional))
    defaults = type(settings)()
    for setting in setting_names(type(settings)):
        value = getattr(settings, setting)
        if setting not in positional and value != getattr(defaults, setting):
            parts.append(f"{setting}={format_value(value)}")
    return f"{name}:{','.join(parts)}" if parts else name


def format_value(value: object) -> str:
    """A setting's value as a spec string writes it."""
    return "none" if value is None else str(value)
