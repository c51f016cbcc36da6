"""What a controller records replays decision by decision; several requests at once, failures and suspensions too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.policy.loops import COST, VOCAB, Loop, TableModel, drawn, greedy, plain_text
from tests.policy.models import tiny_bundle
from treewise import cli
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.policy.controller import Controller, ControllerSettings
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, LOOKUP, BoolArray, Expansion, ForestView, Level, TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import open_trace

TARGET, DRAFT_MODEL = TableModel(), TableModel(noise=1.0)
PROMPTS = [[3, 7, 1, 3, 7, 2, 3, 7], [5], [9, 9, 9, 4]]
SMALL = Envelope(max_depth=5, draft_width=3)
PAIR = {"target": "table", "draft": "noisy table"}


def write(
    policy: TreePolicy | str, folder: Path, sources: int = LOOKUP | DRAFT, temperature: float = 0.0, **settings: Any
) -> Controller:
    """Decode three interleaved requests, of which the last is ended by the loop after two rounds."""
    controller = Controller(
        policy, cost=COST, vocab_size=VOCAB, sources=sources, settings=ControllerSettings(**settings)
    )
    manifest = controller.manifest(PAIR, "0" * 64, 30, temperature=temperature)
    choose = drawn(TARGET, temperature, 3) if temperature else greedy(TARGET)
    with TraceWriter(folder, manifest) as writer:
        controller.record(writer)
        loop = Loop(controller, choose, DRAFT_MODEL if sources & DRAFT else None)
        cut = loop.begin(PROMPTS[2], 30, temperature, "cut")
        for _ in range(2):
            tree = loop.propose(cut)
            loop.accept(cut, tree, loop.verify(cut, tree))
        controller.finish(cut, "eos")
        loop.finishes[cut] = "eos"
        for number, prompt in enumerate(PROMPTS[:2]):
            loop.begin(prompt, 30, temperature, f"p{number}")
        loop.run()
    for number, prompt in enumerate(PROMPTS[:2]):
        assert loop.completion(number + 1, prompt) == plain_text(prompt, choose, 30, settings.get("eos_token_ids", ()))
    return controller


def assert_replays(folder: Path, policy: TreePolicy, controller: Controller, buckets: tuple[int, ...] = ()) -> None:
    check = replay_live(open_trace(folder), policy, COST, buckets)
    assert check.mismatches == ()
    assert check.compared == check.rounds == controller.counters.rounds > 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("sources", [LOOKUP | DRAFT, DRAFT, LOOKUP])
@pytest.mark.parametrize("spec", ["topn:12x3", "frontier", "entropy", "chain:4", "switch", "plain"])
def test_replay_decides_the_same_in_every_round(spec: str, sources: int, temperature: float, tmp_path: Path) -> None:
    controller = write(spec, tmp_path, sources, temperature, envelope=SMALL, row_buckets=(4, 16))
    assert_replays(tmp_path, parse_policy(spec), controller, (4, 16))
    rounds = TraceReader(tmp_path).read_all().rounds
    assert sorted(set(rounds.prompt_id.tolist())) == ["cut", "p0", "p1"]
    assert sorted(rounds.finish.tolist(), reverse=True)[:3] == ["length", "length", "eos"]
    assert int(rounds.draft_growths.sum()) == controller.counters.growths
    assert len(rounds.committed) == controller.counters.committed_tokens


def test_a_learned_policy_replays(tmp_path: Path) -> None:
    controller = write(LearnedPolicy(tiny_bundle(), "flat"), tmp_path)
    assert_replays(tmp_path, LearnedPolicy(tiny_bundle(), "flat"), controller)
    assert controller.counters.growths > 0


def test_the_replay_command_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    COST.save(tmp_path / "cost.json")
    controller = write("frontier", tmp_path / "trace", envelope=SMALL)
    with pytest.raises(SystemExit) as leaving:
        cli.main(["replay", str(tmp_path / "trace"), "--cost", str(tmp_path / "cost.json"), "--json"])
    assert leaving.value.code == 0
    (told,) = json.loads(capsys.readouterr().out)["traces"]
    assert (told["policy"], told["compared"], told["mismatches"]) == ("frontier", controller.counters.rounds, [])


class FailsAtTimes(EverythingPolicy):
    """Goes wrong in the rounds whose position is a multiple of three, at the place named."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def expand(self, level: Level) -> Expansion:
        if self.place == "expand" and level.index == 1 and level.context.position[0] % 3 == 0:
            raise ValueError("not here")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        if self.place == "select" and forest.context.position[0] % 3 == 0:
            raise ValueError("not these")
        return super().select(forest)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("place", ["expand", "select"])
def test_rounds_that_fell_back_replay(place: str, tmp_path: Path) -> None:
    controller = write(FailsAtTimes(place), tmp_path, envelope=SMALL)
    assert 0 < controller.counters.fallbacks < controller.counters.rounds
    assert int(TraceReader(tmp_path).read_all().rounds.fallback.sum()) == controller.counters.fallbacks
    assert_replays(tmp_path, FailsAtTimes(place), controller)


def test_suspended_rounds_are_marked_and_obeyed(tmp_path: Path) -> None:
    controller = write(EverythingPolicy(), tmp_path, envelope=SMALL, time_limit_ms=1e-6)
    suspended = TraceReader(tmp_path).read_all().rounds.suspended
    assert int(suspended.sum()) == controller.counters.suspensions > 0
    assert_replays(tmp_path, EverythingPolicy(), controller)


def test_a_text_cut_by_an_end_token_replays(tmp_path: Path) -> None:
    eos = plain_text(PROMPTS[0], greedy(TARGET), 30)[11]
    controller = write("topn:24x4", tmp_path, envelope=SMALL, eos_token_ids=(eos,))
    assert_replays(tmp_path, parse_policy("topn:24x4"), controller)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("envelope", Envelope(), "recorder's envelope must be the controller's"),
        ("vocab_size", 99, "recorder's vocab_size must be the controller's 24, got 99"),
        ("kind", "dense", "recorder's kind must be the controller's 'live', got 'dense'"),
        ("ranking", "both", "recorder's ranking must be the controller's 'plain', got 'both'"),
        ("verification", "threshold:0.3", "recorder's verification must be the controller's 'exact', got 'threshold"),
        ("draft_reads", "none", "recorder's draft_reads none must be the controller's False, got True"),
        ("suffix_corpus_hash", "ab", "recorder's suffix_corpus_hash must be the controller's None, got 'ab'"),
    ],
)
def test_a_recorder_of_other_conditions_is_refused(name: str, value: Any, message: str, tmp_path: Path) -> None:
    controller = Controller("topn", cost=COST, vocab_size=VOCAB, settings=ControllerSettings(envelope=SMALL))
    parts: dict[str, Any] = {name: value}
    with (
        TraceWriter(tmp_path, controller.manifest(PAIR, "0" * 64, 30, **parts)) as writer,
        pytest.raises(ParameterError, match=message),
    ):
        controller.record(writer)


def test_a_request_without_rounds_leaves_nothing(tmp_path: Path) -> None:
    controller = Controller("topn", cost=COST, vocab_size=VOCAB)
    with TraceWriter(tmp_path, controller.manifest(PAIR, "0" * 64, 30)) as writer:
        controller.record(writer)
        controller.finish(controller.begin([1, 2], 5), "error")
        assert writer.open_rounds == 0
