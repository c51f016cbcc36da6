"""Spec strings."""

import re
from typing import Any

import pytest

from treewise.data.errors import PolicySpecError
from treewise.policy.hook import TreePolicy
from treewise.policy.registry import (
    FILED,
    RULES,
    describe_policies,
    parse_policy,
    policy_names,
    split_bundle,
    split_specs,
)
from treewise.policy.rule import RulePolicy, setting_names


def rule(spec: str) -> RulePolicy[Any]:
    policy = parse_policy(spec)
    assert isinstance(policy, RulePolicy)
    return policy


@pytest.mark.parametrize(
    ("spec", "canonical", "expected"),
    [
        ("plain", "plain", {}),
        ("chain:5", "chain:5", {"length": 5, "sources": "all"}),
        ("chain", "chain:5", {"length": 5}),
        ("chain:7,sources=draft", "chain:7,sources=draft", {"length": 7, "sources": "draft"}),
        ("chain:length=3", "chain:3", {"length": 3}),
        (" static:3x4 ", "static:3x4", {"width": 3, "depth": 4}),
        ("static:2", "static:2x4", {"width": 2, "depth": 4}),
        ("topn:24x4,beam=6", "topn:24x4,beam=6", {"nodes": 24, "depth": 4, "beam": 6}),
        ("entropy", "entropy", {"low_bits": 1.0, "high_bits": 2.2, "mid_width": 2, "max_depth": 8, "max_nodes": 48}),
        ("entropy:mid_width=3,low_bits=0.5", "entropy:low_bits=0.5,mid_width=3", {"mid_width": 3, "low_bits": 0.5}),
        ("cumulative:0.05x6", "cumulative:0.05x6", {"threshold": 0.05, "depth": 6}),
        ("frontier", "frontier", {"kappa": None, "rate": None}),
        ("frontier:kappa=0.25,rate=1e-06", "frontier:kappa=0.25,rate=1e-06", {"kappa": 0.25, "rate": 1e-6}),
        ("frontier:kappa=none", "frontier", {"kappa": None}),
        ("opt-tree", "opt-tree:24x0.3", {"nodes": 24, "threshold": 0.3, "beam": None}),
        ("opt-tree:16x0.5,beam=4", "opt-tree:16x0.5,beam=4", {"nodes": 16, "threshold": 0.5, "beam": 4}),
        ("feedback:24x3,headroom=1.5", "feedback:24x3,headroom=1.5", {"nodes": 24, "depth": 3, "headroom": 1.5}),
        ("switch:6x16x3", "switch:6x16x3", {"min_match": 6, "nodes": 16, "depth": 3}),
    ],
)
def test_specs_round_trip(spec: str, canonical: str, expected: dict[str, object]) -> None:
    policy = rule(spec)
    assert policy.spec == canonical
    assert rule(canonical).settings == policy.settings
    assert {name: getattr(policy.settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("wide:3", "policy must be one of plain, chain, .*learned, guarded, shared, got 'wide' in 'wide:3'"),
        ("", "policy must be one of plain, .*, got ''"),
        ("chain:five", "length must be a whole number, got 'five' in 'chain:five'"),
        ("chain:0", "length must be between 1 and 64, got 0 in policy 'chain:0'"),
        ("chain:", "policy must be chain or chain: and its settings, got 'chain:'"),
        ("chain:2.5", "length must be a whole number, got '2.5'"),
        ("chain:3x4", "policy must be written chain:LENGTH, got '3x4' in 'chain:3x4'; chain takes length, sources"),
        ("chain:3,4", "policy must be written chain:LENGTH, got '4'"),
        ("chain:5,sources=web", "sources must be one of all, both, draft, free, lookup, recycled, got 'web'"),
        ("chain:5,width=2", "setting must be one that chain takes length, sources, got 'width'"),
        ("chain:5,length=6", "length must be given once, got it twice in 'chain:5,length=6'"),
        ("plain:3", "policy must be written plain with settings by name only, got '3' .*plain takes no settings"),
        ("entropy:low_bits=nan", "low_bits must be a number, got 'nan'"),
        ("entropy:low_bits=3", r"high_bits must be at least low_bits \(3.0\), got 2.2"),
        ("frontier:rate=0", "rate must be above 0, or none, got 0.0"),
        ("learned", "policy must be learned:DIR with the folder of a bundle, got 'learned'"),
        ("learned:", "policy must be learned:DIR with the folder of a bundle, got 'learned:'"),
    ],
)
def test_bad_specs_say_what_was_given_and_the_rule(spec: str, message: str) -> None:
    with pytest.raises(PolicySpecError, match=message):
        parse_policy(spec)


def test_names_and_descriptions_agree() -> None:
    described = describe_policies()
    assert tuple(d.name for d in described) == policy_names() == (*RULES, *FILED, "learned", "guarded", "shared")
    filed = ["frontier-table:FILE", "sequoia:FILE", "by-task:FILE", "learned:DIR", "guarded:DIR", "shared:DIR"]
    assert [d.spec for d in described if d.name not in RULES] == filed
    for description in described[: len(RULES)]:
        policy = rule(description.spec)
        assert isinstance(policy, TreePolicy)
        assert [name for name, _ in description.settings] == list(setting_names(type(policy.settings)))
        assert re.fullmatch(r"[A-Z].*[.:,;a-z]", description.summary)


def test_lists_of_specs_keep_settings_together() -> None:
    text = "plain,topn:24x4,beam=6, entropy,mid_width=3,low_bits=0.5,learned:some/dir,chain:5"
    specs = ["plain", "topn:24x4,beam=6", "entropy:mid_width=3,low_bits=0.5", "learned:some/dir", "chain:5"]
    assert split_specs(text) == specs
    with pytest.raises(PolicySpecError, match="policies must be spec strings joined by commas, got 'plain,,chain'"):
        split_specs("plain,,chain")


@pytest.mark.parametrize(
    ("rest", "folder", "settings"),
    [
        ("runs/a", "runs/a", ""),
        ("runs/a,b", "runs/a,b", ""),
        ("runs/a,nodes=3,least=0.1", "runs/a", "nodes=3,least=0.1"),
        ("runs,lr=1/policy", "runs,lr=1/policy", ""),
        ("runs,lr=1/policy,nodes=3", "runs,lr=1/policy", "nodes=3"),
    ],
)
def test_a_bundle_s_folder_may_hold_commas(rest: str, folder: str, settings: str) -> None:
    assert split_bundle(rest) == (folder, settings)
