"""Settings by task: the table, who tells the task, and the rule that obeys it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.policy.conformance import CHECKS, WORLDS, Check, Wrapped, check_spec
from tests.policy.loops import COST, VOCAB, TableModel, greedy, plain_text
from tests.policy.recognisers import SETTINGS, tiny_recogniser, write_table
from tests.policy.scripted import play
from treewise.data.errors import ParameterError, PolicySpecError, SchemaVersionError
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter
from treewise.policy.by_task import ByTaskPolicy, ByTaskSettings
from treewise.policy.contain import ContainedPolicy
from treewise.policy.controller import Controller
from treewise.policy.hook import RequestInfo
from treewise.policy.registry import parse_policy
from treewise.policy.task_table import TaskTable, told_task
from treewise.training.live_check import replay_live
from treewise.training.logged_trace import open_trace

TASKS = ("chat", "code", "")  # of requests 0, 1, 2, 3 = 0, ..


class Told(Wrapped):
    """Tells the policy a task by the request's number."""

    def begin(self, request: RequestInfo) -> None:
        task = TASKS[request.request_id % len(TASKS)]
        self.policy.begin(RequestInfo(request.request_id, request.prompt_tokens, 64, request.temperature, task))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_table(tmp_path_factory.mktemp("x-tables"))


def policy(file: str) -> ByTaskPolicy:
    return ByTaskPolicy(ByTaskSettings(file))


@pytest.mark.parametrize("check", CHECKS)
def test_conforms_whatever_it_is_told(check: Check, file: str) -> None:
    assert check(lambda: policy(file) if check is check_spec else Told(policy(file))) > 0


def test_each_request_is_decided_by_its_own_rule(file: str) -> None:
    for world in WORLDS:
        together = play(Told(policy(file)), world, (0, 1, 2), batch_size=3)
        for request, spec in enumerate(("static:2x3", "topn:12x3", "chain:2")):
            assert together[request] == play(parse_policy(spec), world, (request,), batch_size=3)[request]


def test_rows_are_found_by_name_then_by_kind() -> None:
    table = TaskTable({**SETTINGS, "poems": "plain"})
    assert [table.row_of(task) for task in ("chat", "poems", "code", "Function-Calling", "rag", "")] == [
        *("chat", "poems", "structured", "structured", "unknown", "unknown")
    ]


def test_a_recogniser_has_the_word_where_there_is_a_text(file: str) -> None:
    by_task = policy(file)
    assert told_task(by_task, "rag", "hello") == "chat"
    assert told_task(ContainedPolicy(by_task), "rag", "gibberish") == "unknown"
    assert told_task(by_task, "rag", "") == "rag"
    assert told_task(parse_policy("plain"), "rag", "hello") == "rag"


def test_what_a_controller_was_told_is_replayed(file: str, tmp_path: Path) -> None:
    target = TableModel()
    controller = Controller(f"by-task:{file}", cost=COST, vocab_size=VOCAB, sources=1)
    with TraceWriter(tmp_path / "live", controller.manifest({"target": "table"}, "0" * 64, 30)) as writer:
        controller.record(writer)
        for number, (text, task) in enumerate((("hello", "rag"), ("json", ""), ("", "chat"), ("what", "chat"))):
            prompt = [3, 7, number, 3, 7]
            request = controller.begin(prompt, 30, prompt_id=f"p{number}", task=task, prompt_text=text)
            tokens = list(prompt)
            finish = ""
            while not finish:
                tree = controller.propose(request)
                paths = [tokens + path_tokens(tree, row) for row in range(len(tree.parents))]
                step = controller.accept(request, [greedy(target)(path) for path in paths])
                tokens.extend(step.tokens)
                finish = step.finish
            assert tokens[len(prompt) :] == plain_text(prompt, greedy(target), 30)
            controller.finish(request, finish)
    rounds = TraceReader(tmp_path / "live").read_all().rounds
    told = dict(zip(rounds.prompt_id.tolist(), rounds.told_task.tolist(), strict=True))
    assert told == {"p0": "chat", "p1": "structured", "p2": "chat", "p3": "unknown"}
    check = replay_live(open_trace(tmp_path / "live"), policy(file), COST)
    assert check.mismatches == ()
    assert check.compared == check.rounds == len(rounds) > 4


def path_tokens(tree: Any, row: int) -> list[int]:
    found: list[int] = []
    while tree.parents[row] >= 0:
        found.insert(0, int(tree.tokens[row]))
        row = int(tree.parents[row])
    return found


def test_tables_round_trip_and_name_their_content(file: str, tmp_path: Path) -> None:
    table = TaskTable.load(file)
    table.save(tmp_path / "again.json")
    assert TaskTable.load(tmp_path / "again.json") == table
    assert policy(file).spec == f"by-task:{file}"
    other = write_table(tmp_path, {**SETTINGS, "chat": "plain"})
    assert policy(file).sha256 != policy(other).sha256


def edited(**changes: Any) -> str:
    return json.dumps({**TaskTable(SETTINGS).to_json(), **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "table must be a JSON file"),
        ("{}", "table must be a JSON object of kind treewise-task-table, got None"),
        (edited(setings={}), r"table must be of recogniser, settings and fitted, got \['setings'\]"),
        (edited(settings=[]), "settings must be a JSON object, got 'list'"),
        (edited(settings={"chat": "plain"}), "settings must be a table that holds 'unknown'"),
        (edited(settings={"unknown": 3}), "settings must be spec strings by task"),
        (edited(settings={"unknown": "top:3"}), "policy must be one of"),
        (edited(settings={"unknown": "frontier"}), "settings must be specs of rules that remember nothing"),
        (edited(settings={"unknown": "by-task:table.json"}), "settings must be specs of rules that remember nothing"),
        (edited(recogniser={"file": "r.json", "sha": "ab"}), r"recogniser must be of file and sha256, got \['sha'\]"),
        (edited(recogniser=[1]), "recogniser must be a JSON object"),
        (edited(recogniser={"file": 1}), "recogniser_file must be a string"),
        (edited(recogniser={"file": "none.json"}), "recogniser must be a file that exists"),
    ],
)
def test_other_tables_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PolicySpecError, match=message):
        parse_policy(f"by-task:{path}")


def test_tables_that_name_each_other_are_refused(tmp_path: Path) -> None:
    for own, other in (("a.json", "b.json"), ("b.json", "a.json")):
        content = edited(settings={"unknown": f" by-task:{tmp_path / other}"})
        (tmp_path / own).write_text(content, encoding="utf-8")
    with pytest.raises(PolicySpecError, match="settings must be specs of rules that remember nothing"):
        parse_policy(f"by-task:{tmp_path / 'a.json'}")


def test_another_version_or_recogniser_names_its_cure(file: str, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(edited(schema_version=0), encoding="utf-8")
    with pytest.raises(SchemaVersionError, match="fit it again with `treewise tasks fit`"):
        TaskTable.load(tmp_path / "old.json")
    path = write_table(tmp_path)
    tiny_recogniser(0.7).save(tmp_path / "recogniser.json")
    with pytest.raises(PolicySpecError, match="recogniser must be that of the table"):
        parse_policy(f"by-task:{path}")
    with pytest.raises(ParameterError, match="table must be a file that exists, got ''"):
        parse_policy("by-task")
