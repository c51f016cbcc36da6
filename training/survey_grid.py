"""The grid of fixed trees that a survey replays, and which of them a trace can answer for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import CoverageError, require
from treewise.policy.chain import ChainPolicy, ChainSettings
from treewise.policy.entropy import EntropyPolicy, EntropySettings
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, TreePolicy
from treewise.policy.rule import RulePolicy, Sources
from treewise.policy.static import StaticPolicy, StaticSettings
from treewise.training.contender import Contender
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import check_reach

CHAIN_WIDTH = 1  # a tree of one child below each node


@dataclass(frozen=True, slots=True)
class SurveyGrid:
    """Chains and static trees by width and depth, and the entropy rule."""

    widths: tuple[int, ...] = (2, 3, 4, 5)  # of static trees; chains come by themselves
    depths: tuple[int, ...] = (3, 4, 5, 6, 7, 8)  # of both
    sources: Sources = "all"  # that the grid's policies ask

    def __post_init__(self) -> None:
        for name, least in (("widths", 2), ("depths", 1)):
            values = getattr(self, name)
            sound = bool(values) and all(low < high for low, high in pairwise(values))
            require(sound, name, "ascending whole numbers", values)
            require(least <= values[0] and values[-1] <= 64, name, f"between {least} and 64", values)

    @property
    def rows(self) -> tuple[int, ...]:
        """Widths of the heat map, chains first."""
        return (CHAIN_WIDTH, *self.widths)

    def spec(self, width: int, depth: int) -> str:
        """The spec string of the chain or static tree."""
        if width == CHAIN_WIDTH:
            return ChainPolicy(ChainSettings(depth, sources=self.sources)).spec
        return StaticPolicy(StaticSettings(width, depth, sources=self.sources)).spec

    @property
    def entropy(self) -> str:
        """The spec string of the entropy rule, with its usual settings."""
        return EntropyPolicy(EntropySettings(sources=self.sources)).spec

    @property
    def chains(self) -> tuple[str, ...]:
        """Spec strings of the chains."""
        return tuple(self.spec(CHAIN_WIDTH, depth) for depth in self.depths)

    @property
    def trees(self) -> tuple[str, ...]:
        """Spec strings of the static trees, by width and then by depth."""
        return tuple(self.spec(width, depth) for width in self.widths for depth in self.depths)

    @property
    def specs(self) -> tuple[str, ...]:
        """Everything: chains, static trees, the entropy rule."""
        return (*self.chains, *self.trees, self.entropy)

    def envelope(self, least: Envelope | None = None) -> Envelope:
        """`least`, by default the usual envelope, made as deep and as wide as the whole grid asks for."""
        least = least or Envelope()
        depth = max(least.max_depth, self.depths[-1], EntropySettings().max_depth)
        width = max(least.draft_width, self.widths[-1], EntropySettings().mid_width)
        return replace(least, max_depth=depth, draft_width=width)


def gap(contender: Contender, traces: Sequence[LoggedTrace], cost: CostProfile) -> str:
    """Why some of `traces` cannot say what the contender would do, in words; empty where all can.

    Reach and width count: where fewer candidates than a tree's own width are offered below a node, its replay would be
    that of a narrower tree. The envelope's bounds on path priors hold live as they do here, and are no gap. Raises
    `PolicyError` where the policy cannot be bound.
    """
    for trace in traces:
        policy, deployment = contender.make(), trace.deployment(cost)
        policy.bind(deployment)
        try:
            check_reach(policy, deployment, contender.name)
        except CoverageError as error:
            return str(error)
        width, offered = _width(policy), _offered(policy, deployment.envelope)
        if width > offered:
            return (
                f"policy {contender.name} may keep {width} nodes below a node where the log holds {offered}: "
                "use a trace with a wider envelope"
            )
    return ""


def _width(policy: TreePolicy) -> int:
    if isinstance(policy, StaticPolicy):
        return policy.settings.width
    if isinstance(policy, ChainPolicy):
        return CHAIN_WIDTH
    return policy.settings.mid_width if isinstance(policy, EntropyPolicy) else 0


def _offered(policy: TreePolicy, envelope: Envelope) -> int:
    """Candidates that can be offered below one node by the sources that the bound policy asks."""
    asked = policy.sources_asked if isinstance(policy, RulePolicy) else 0
    if asked & DRAFT:
        return envelope.draft_width  # free sources may add theirs, or may hold nothing
    return (envelope.lookup_width if asked & LOOKUP else 0) + (envelope.recycled_width if asked & RECYCLED else 0)
