"""Exploration: some requests of a live collection are decided by another policy, drawn with a known probability."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from treewise.data.errors import require
from treewise.policy.registry import parse_policy

EXPLORERS = ("chain:5", "topn:24x4")  # one path, and wide beams: what a pruned log seldom holds


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides one request, and how probable that was."""

    explorer: str  # spec string; empty: the collection's own policy
    propensity: float


@dataclass(frozen=True, slots=True)
class Exploration:
    """With `probability` a request is decided by one of `policies`, each as probable.

    The choice is made once a request, not once a round. Where another policy's round ends, roots stand that the policy
    would never have come to, and no weight per round repairs that; a request that one policy decides from its first
    root on is a sample of that policy, its propensity is one number, and a policy that remembers the request sees
    nothing strange. Raises `ParameterError` and `PolicySpecError`.
    """

    probability: float
    policies: tuple[str, ...] = EXPLORERS

    def __post_init__(self) -> None:
        require(0.0 < self.probability < 1.0, "explore", "above 0 and below 1", self.probability)
        distinct = len(self.policies) > 0 and len(set(self.policies)) == len(self.policies)
        require(distinct, "explore_policies", "at least one, each named once", self.policies)
        for spec in self.policies:
            parse_policy(spec)

    def draw(self, generator: np.random.Generator, requests: int) -> list[Decider]:
        """Who decides each of `requests`. Two numbers of `generator` are used for each, whoever it is."""
        explored = generator.random(requests) < self.probability
        chosen = generator.integers(len(self.policies), size=requests).tolist()
        each = self.probability / len(self.policies)
        return [
            Decider(self.policies[place], each) if explores else Decider("", 1.0 - self.probability)
            for explores, place in zip(explored.tolist(), chosen, strict=True)
        ]

    @property
    def sha256(self) -> str:
        """Hash of probability and policies, in hex."""
        return hashlib.sha256(json.dumps([self.probability, *self.policies]).encode()).hexdigest()
