"""Policies by name: spec strings in, policies out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from treewise.data.errors import ParameterError, PolicySpecError
from treewise.policy.by_task import ByTaskPolicy
from treewise.policy.chain import ChainPolicy
from treewise.policy.cumulative import CumulativePolicy
from treewise.policy.entropy import EntropyPolicy
from treewise.policy.feedback import FeedbackPolicy
from treewise.policy.frontier import FrontierPolicy
from treewise.policy.frontier_table import FrontierTablePolicy
from treewise.policy.hook import TreePolicy
from treewise.policy.opt_tree import OptTreePolicy
from treewise.policy.plain import PlainPolicy
from treewise.policy.rule import RulePolicy, format_spec, format_value, setting_names
from treewise.policy.sequoia import SequoiaPolicy
from treewise.policy.static import StaticPolicy
from treewise.policy.switch import SwitchPolicy
from treewise.policy.topn import TopNPolicy

LEARNED = "learned"
GUARDED = "guarded"
SHARED = "shared"
RULES: dict[str, type[RulePolicy[Any]]] = {
    rule.name: rule
    for rule in (
        PlainPolicy,
        ChainPolicy,
        StaticPolicy,
        TopNPolicy,
        EntropyPolicy,
        CumulativePolicy,
        OptTreePolicy,
        FrontierPolicy,
        FeedbackPolicy,
        SwitchPolicy,
    )
}


# Rules that cannot do without a file: `name:FILE`, further settings behind it.
FILED: dict[str, type[RulePolicy[Any]]] = {
    rule.name: rule for rule in (FrontierTablePolicy, SequoiaPolicy, ByTaskPolicy)
}


# Settings of `learned:DIR` and their defaults; with either of them nodes are counted, not milliseconds.
_COUNTED = (("nodes", "0"), ("least", "0.0"))


class _Settable(Protocol):
    """A policy with settings, as a spec string gives them."""

    name: str
    settings_type: Any  # a dataclass
    positional: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """One registered policy, for people."""

    name: str
    spec: str  # with its defaults; `learned:DIR` and `sequoia:FILE` where it needs a folder or a file
    summary: str
    settings: tuple[tuple[str, str], ...]  # (name, default)


def policy_names() -> tuple[str, ...]:
    """Every name that a spec string may start with."""
    return (*RULES, *FILED, LEARNED, GUARDED, SHARED)


def describe_policies() -> tuple[PolicyDescription, ...]:
    """Name, default spec, one sentence and the settings of every policy."""
    rules = []
    for name, rule in (RULES | FILED).items():
        settings = rule.settings_type()
        names = setting_names(rule.settings_type)
        defaults = tuple((setting, format_value(getattr(settings, setting))) for setting in names)
        spec = f"{name}:FILE" if name in FILED else format_spec(name, rule.positional, settings)
        rules.append(PolicyDescription(name, spec, _summary(rule), defaults))
    learned = PolicyDescription(LEARNED, f"{LEARNED}:DIR", "A trained policy bundle.", _COUNTED)
    summary = "A trained policy bundle that recalibrates itself and steps aside while something simpler is faster."
    guarded = PolicyDescription(GUARDED, f"{GUARDED}:DIR", summary, ())
    shared = "A trained policy bundle with one verify budget for all requests of a batch."
    return (*rules, learned, guarded, PolicyDescription(SHARED, f"{SHARED}:DIR", shared, ()))


def parse_policy(spec: str) -> TreePolicy:
    """The policy that `spec` names: `name`, `name:5`, `name:3x4`, `name:key=value,...`, mixes, `name:FILE,key=value`,
    `learned:DIR`, `learned:DIR,key=value`, `guarded:DIR` or `shared:DIR`.

    Raises `PolicySpecError` on an unknown name, setting or value.
    """
    name, colon, rest = spec.strip().partition(":")
    if name in (LEARNED, GUARDED, SHARED):
        if not rest:
            raise PolicySpecError(f"policy must be {name}:DIR with the folder of a bundle, got {spec!r}")
        from treewise.policy.guard import GuardedPolicy  # the scorers' packages load only when a bundle is asked for
        from treewise.policy.learned import LearnedPolicy
        from treewise.policy.shared_budget import SharedBudgetPolicy

        folder, settings = split_bundle(rest)
        if name == LEARNED and settings:
            return _counted(folder, settings, spec)
        return {LEARNED: LearnedPolicy, GUARDED: GuardedPolicy, SHARED: SharedBudgetPolicy}[name].load(rest)
    rule = RULES.get(name) or FILED.get(name)
    if rule is None:
        raise PolicySpecError(f"policy must be one of {', '.join(policy_names())}, got {name!r} in {spec!r}")
    if colon and not rest:
        raise PolicySpecError(f"policy must be {name} or {name}: and its settings, got {spec!r}")
    values = _parse_settings(rule, rest, spec)
    try:
        return rule(rule.settings_type(**values))
    except ParameterError as error:
        raise PolicySpecError(f"{error} in policy {spec!r}") from error


def split_bundle(rest: str) -> tuple[str, str]:
    """(folder, settings) of what follows `learned:`; a folder's name may hold commas, but no setting."""
    folder, *settings = re.split(r",(?=\w+=[^/]*$)", rest)
    return folder, ",".join(settings)


def _counted(folder: str, settings: str, spec: str) -> TreePolicy:
    """The bundle in `folder` where nodes are counted."""
    from treewise.policy.bundle import Bundle
    from treewise.policy.counted import CountedPolicy

    values = _parse_settings(CountedPolicy, settings, spec)
    try:
        price = CountedPolicy.settings_type(**values)
    except ParameterError as error:
        raise PolicySpecError(f"{error} in policy {spec!r}") from error
    return CountedPolicy(Bundle.load(folder), folder=folder, price=price)


def split_specs(text: str) -> list[str]:
    """Spec strings of a comma-separated list; a part `key=value` belongs to the spec before it.

    Raises `PolicySpecError` on an empty part.
    """
    specs: list[str] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            raise PolicySpecError(f"policies must be spec strings joined by commas, got {text!r}")
        if specs and re.match(r"\w+=", part):
            joint = "," if ":" in specs[-1] else ":"
            specs[-1] = f"{specs[-1]}{joint}{part}"
        else:
            specs.append(part)
    return specs


def _parse_settings(rule: type[_Settable], rest: str, spec: str) -> dict[str, object]:
    """Settings by name; the part without `=` comes first and fills the positional ones."""
    types = get_type_hints(rule.settings_type)
    known = setting_names(rule.settings_type)
    takes = f"{rule.name} takes {', '.join(known) or 'no settings'}"
    values: dict[str, object] = {}
    for place, part in enumerate(rest.split(",") if rest else ()):
        key, equals, text = part.partition("=")
        if equals:
            pairs = [(key.strip(), text)]
        else:
            given = [part] if rule.name in FILED else part.split("x")  # a file's name may hold an x
            if place or len(given) > len(rule.positional):
                form = "x".join(rule.positional).upper()
                shape = f"{rule.name}:{form}" if form else f"{rule.name} with settings by name only"
                raise PolicySpecError(f"policy must be written {shape}, got {part!r} in {spec!r}; {takes}")
            pairs = list(zip(rule.positional, given, strict=False))
        for name, value in pairs:
            if name not in known:
                raise PolicySpecError(f"setting must be one that {takes}, got {name!r} in {spec!r}")
            if name in values:
                raise PolicySpecError(f"{name} must be given once, got it twice in {spec!r}")
            values[name] = _parse_value(name, value.strip(), types[name], spec)
    return values


def _parse_value(name: str, text: str, kind: Any, spec: str) -> object:
    """`text` as an int, a float, None or one of a few words."""
    if get_origin(kind) is Literal:
        return text  # the settings' own rule names the words
    choices = get_args(kind) or (kind,)
    if NoneType in choices and text == "none":
        return None
    if str in choices:
        return text
    number: type[int] | type[float] = int if int in choices else float
    rule = "a whole number" if number is int else "a number"
    try:
        value = number(text)
    except ValueError:
        raise PolicySpecError(f"{name} must be {rule}, got {text!r} in {spec!r}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise PolicySpecError(f"{name} must be {rule}, got {text!r} in {spec!r}")
    return value


def _summary(rule: type[RulePolicy[Any]]) -> str:
    return (rule.__doc__ or "").strip().splitlines()[0]
