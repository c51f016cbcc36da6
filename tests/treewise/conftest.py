"""The tiny pair, its prompts, its traces and a cache of its own, for tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treewise.tiny import DRAFT, make_pair, write_prompts
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.prompt_set import read_prompts
from treewise.engine.collect import CollectSettings, collect_dense
from treewise.engine.pair import Pair, load_pair
from treewise.engine.profile import ProfileSettings

SMALL = ProfileSettings(verify_rows=(1, 4), draft_tokens=(1, 4), capacities=(32,), repeats=3, round_tokens=4)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny pair."""
    return make_pair(tmp_path_factory.mktemp("tiny") / "pair")


@pytest.fixture(scope="session")
def pair(tiny: Path) -> Pair:
    """The tiny pair itself."""
    return load_pair(str(tiny), DRAFT, threads=1)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of ten prompts."""
    return write_prompts(tmp_path_factory.mktemp("prompts") / "tiny.jsonl")


@pytest.fixture(scope="session")
def traces(pair: Pair, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense trace of the tiny pair on the ten prompts."""
    folder = tmp_path_factory.mktemp("traces") / "dense"
    settings = CollectSettings(max_new_tokens=20)
    collect_dense(pair, read_prompts(prompts), folder, Envelope(), PriorTable(), settings)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user's."""
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles of a few passes."""
    monkeypatch.setattr("treewise.profiles.quick_settings", lambda: SMALL)
    monkeypatch.setattr("treewise.demo.quick_settings", lambda: SMALL)
