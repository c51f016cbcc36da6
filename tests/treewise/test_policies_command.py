"""`treewise policies`."""

from __future__ import annotations

import json

import pytest

from tests.treewise.test_models_command import schema
from tests.treewise.test_traces_command import fits, run
from treewise.policy.registry import RULES, parse_policy, policy_names


def test_every_policy_is_listed_with_a_spec_that_makes_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(["policies", "--json"], capsys))
    assert fits(found, schema("policies"))
    assert tuple(row["name"] for row in found["policies"]) == policy_names()
    for row in found["policies"]:
        if row["name"] in RULES:
            assert parse_policy(row["spec"]).reach is not None
            named = ",".join(f"{name}={value}" for name, value in row["settings"].items())
            again = parse_policy(f"{row['name']}:{named}" if named else row["name"])
            assert getattr(again, "spec") == row["spec"]  # noqa: B009  # not part of the hook


def test_the_table_fits(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(["policies"], capsys)
    assert max(len(line) for line in shown.splitlines()) <= 100
    assert "frontier" in shown
