"""The tiny pair, its prompts, its traces and a cache of its own, for tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.worlds import COST, World, dense, dense_trace, manifest, simulate
from tests.treewise.tiny import DRAFT, make_pair, write_prompts
from tests.treewise.trace_commands import ENVELOPE
from treewise.data.envelope import Envelope, PriorTable
from treewise.data.prompt_set import read_prompts
from treewise.data.trace_schema import TraceShard
from treewise.data.trace_writer import TraceWriter
from treewise.engine.collect import CollectSettings, collect_dense
from treewise.engine.pair import Pair, load_pair
from treewise.engine.profile import ProfileSettings
from treewise.policy.registry import parse_policy

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


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=4, num_texts=3, answer_tokens=22)


@pytest.fixture(scope="module")
def dense_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense trace on disk."""
    folder = tmp_path_factory.mktemp("traces") / "dense"
    with TraceWriter(folder, manifest("dense", ENVELOPE.widened())) as writer:
        for text in world.texts:
            shard = dense(world, text, ENVELOPE.widened())
            writer.add(shard.rounds, shard.nodes)
    return folder


@pytest.fixture(scope="module")
def live_shards(world: World) -> list[TraceShard]:
    """What `chain:3` would leave."""
    setting = dense_trace(world, ENVELOPE, world.texts[:1]).deployment(COST, ENVELOPE)
    policy = parse_policy("chain:3")
    policy.bind(setting)
    return [simulate(world, text, policy, setting)[1] for text in world.texts]
