"""A policy under test, and what it looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treewise.policy.hook import Deployment, TreePolicy
from treewise.policy.registry import parse_policy


@dataclass(frozen=True, slots=True)
class FromSpec:
    """Makes the policy of a spec string, in any process."""

    spec: str

    def __call__(self) -> TreePolicy:
        """A new one. Raises `PolicySpecError` and `BundleError`."""
        return parse_policy(self.spec)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy under test, by the name that the report shows. Each replay gets a policy of its own."""

    name: str
    make: Callable[[], TreePolicy]

    @classmethod
    def of(cls, policy: str | TreePolicy | Contender) -> Contender:
        """From a spec string or a policy, which is copied; one of these stays itself. Raises `PolicySpecError`."""
        if isinstance(policy, Contender):
            return policy
        if isinstance(policy, str):
            parse_policy(policy)
            return cls(policy, FromSpec(policy))
        return cls(str(getattr(policy, "spec", type(policy).__name__)), lambda: copy.deepcopy(policy))

    @property
    def is_made_anywhere(self) -> bool:
        """Whether another process can make it: objects that somebody built stay where they are."""
        return isinstance(self.make, FromSpec)


class WatchedDeployment(Deployment):
    """A deployment that knows whether anyone looked at its cost profile.

    A policy that never did decides the same under every profile, so one replay serves them all.
    """

    cost_was_read: bool

    @classmethod
    def of(cls, deployment: Deployment) -> WatchedDeployment:
        """A copy of `deployment` whose cost nobody has read yet."""
        watched = cls(*(getattr(deployment, name) for name in Deployment.__dataclass_fields__))
        object.__setattr__(watched, "cost_was_read", False)
        return watched

    def __getattribute__(self, name: str) -> Any:
        if name == "cost":
            object.__setattr__(self, "cost_was_read", True)
        return super().__getattribute__(name)
