"""Floors in pyproject.toml, tested versions in constraints.txt: the second satisfies the first."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house.layout import ROOT, pyproject


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): Version(version) for name, version in pairs}


def requirements() -> list[Requirement]:
    project = pyproject()["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(text) for group in groups for text in group]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_requirement_is_pinned_above_its_floor(requirement: Requirement) -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    if requirement.name == "treewise":
        assert requirement.extras <= set(extras)
        return
    assert [part.operator for part in requirement.specifier] == [">="]
    assert requirement.specifier.contains(pins()[requirement.name])


def test_the_core_has_no_trainer_and_no_torch() -> None:
    names = {Requirement(text).name for text in pyproject()["project"]["dependencies"]}
    assert names == {"numpy", "pyarrow", "rich", "typer"}


def test_all_holds_every_extra_but_dev() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    (everything,) = [Requirement(text) for text in extras["all"]]
    assert everything.extras == set(extras) - {"all", "dev"}
