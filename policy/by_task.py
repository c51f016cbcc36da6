"""Starting settings by task: the rule that a table names for the kind of task that a request is of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from treewise.data.errors import require
from treewise.policy.hook import (
    BoolArray,
    Deployment,
    Expansion,
    ForestView,
    Level,
    Reach,
    RequestInfo,
    RoundContext,
    State,
)
from treewise.policy.request_part import RequestPart, expand_in_parts, select_in_parts
from treewise.policy.rule import RulePolicy
from treewise.policy.task_recogniser import UNKNOWN
from treewise.policy.task_table import TaskTable


@dataclass(frozen=True, slots=True)
class ByTaskSettings:
    """Settings of `ByTaskPolicy`."""

    table: str = ""  # file of the table; there is none by default


class ByTaskPolicy(RulePolicy[ByTaskSettings]):
    """The rule that a table of tasks names for the request's kind of task, as the request's begin tells it.

    A request of another kind, or of a kind that nobody told, is decided by the table's row for unknown tasks. The rules
    it may name remember nothing.
    """

    name = "by-task"
    settings_type = ByTaskSettings
    positional = ("table",)
    state: State = "request"

    def __init__(self, settings: ByTaskSettings | None = None) -> None:
        """Reads the table and its recogniser. Raises `ParameterError` where either is missing or damaged."""
        super().__init__(settings)
        self.table = TaskTable.load(self.settings.table)
        self.recogniser = self.table.load_recogniser(self.settings.table)
        self._rules = {spec: _rule(spec) for spec in self.table.settings.values()}
        self._spec_of: dict[int, str] = {}  # request -> the spec that decides it

    @property
    def sha256(self) -> str:
        """SHA-256, in hex, of the table's content and of its recogniser's."""
        content = json.dumps([self.table.to_json(), self.recogniser.sha256 if self.recogniser else ""], sort_keys=True)
        return hashlib.sha256(content.encode("utf-8")).hexdigest()

    @property
    def reach(self) -> Reach:
        """The most that any of its rules may ask for."""
        reaches = [rule.reach for rule in self._rules.values()]
        return Reach(max(reach.depth for reach in reaches), max(reach.draft_width for reach in reaches))

    @property
    def sources_asked(self) -> int:
        """Bits of the sources that any of its rules asks."""
        return int(np.bitwise_or.reduce([rule.sources_asked for rule in self._rules.values()]))

    def bind(self, deployment: Deployment) -> None:
        """Bind every rule."""
        super().bind(deployment)
        for rule in self._rules.values():
            rule.bind(deployment)

    def begin(self, request: RequestInfo) -> None:
        """Choose the request's rule."""
        self._spec_of[request.request_id] = self.table.settings[self.table.row_of(request.task)]

    def finish(self, request_id: int, reason: str) -> None:
        """Forget the request."""
        self._spec_of.pop(request_id, None)

    def expand(self, level: Level) -> Expansion:
        """Each request's rule answers for its candidates."""
        specs = self._specs(level.context)
        if len(set(specs)) == 1:
            return self._rules[specs[0]].expand(level)
        return expand_in_parts(((rule.expand, part) for rule, part in self._parts(specs, level)), level)

    def select(self, forest: ForestView) -> BoolArray:
        """Each request's rule answers for its rows."""
        specs = self._specs(forest.context)
        if len(set(specs)) == 1:
            return self._rules[specs[0]].select(forest)
        return select_in_parts(((rule.select, part) for rule, part in self._parts(specs, forest)), forest)

    def _specs(self, context: RoundContext) -> list[str]:
        spare = self.table.settings[UNKNOWN]
        return [self._spec_of.get(request, spare) for request in context.request_id.tolist()]

    def _parts(self, specs: list[str], view: Level | ForestView) -> Iterator[tuple[RulePolicy[Any], RequestPart]]:
        forest = view.forest if isinstance(view, Level) else view.nodes
        named = np.asarray(specs, dtype=np.str_)
        for spec in dict.fromkeys(specs):
            yield self._rules[spec], RequestPart(named == spec, forest)


def _rule(spec: str) -> RulePolicy[Any]:
    """The rule that a row of the table names. Raises `PolicySpecError`, or `ParameterError` on one with a memory."""
    from treewise.policy.registry import parse_policy  # which knows this module

    rule = "specs of rules that remember nothing"
    # Before it is read: a table may name itself.
    require(spec.partition(":")[0].strip() != ByTaskPolicy.name, "settings", rule, spec)
    policy = parse_policy(spec)
    require(isinstance(policy, RulePolicy) and policy.state == "none", "settings", rule, spec)
    assert isinstance(policy, RulePolicy)
    return policy
