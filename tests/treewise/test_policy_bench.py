"""The parts of the policy benchmark: what is asked, what is kept, and what follows from the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.worlds import COST, World, dense_trace
from treewise.code_hash import code_closure
from treewise.data.cost import CostProfile
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, PromptError
from treewise.data.prompt_set import Prompt
from treewise.policy.hook import DRAFT, FREE, LOOKUP
from treewise.policy_bench_cell import DRAFT_ONLY, FREE_ONLY, judge_cell, nodes_saved, shown, speedup_of, winners
from treewise.policy_bench_loss import losses
from treewise.policy_bench_plan import Cell, Condition, PolicyBenchSettings, prompt_parts, spread_prompts
from treewise.policy_bench_schedule import at_context, run_schedule, stages_of
from treewise.policy_bench_store import DEPTH, ORACLE, ReplayStore, StoredReplay, key_of
from treewise.training.tally import TALLY_COLUMNS, Tally

EXAMPLE = CostProfile.load("example-a100-70b")
DEAR = CostProfile.load("example-a100-70b-3ms")
CONDITION = Condition("default", 0.0)
SPECS = {
    "topn:8x2,sources=all": "topn",
    "topn:2x1,sources=all": "topn",
    "topn:8x2,sources=draft": "topn",
    "chain:3,sources=free": "chain",
    "frontier": "frontier",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ReplayStore:
    world = World(seed=5, num_texts=4, answer_tokens=24)
    trace = dense_trace(world, Envelope(max_depth=8, draft_width=3, min_path_prior=0.03, min_grow_prior=0.06))
    return ReplayStore(trace, tmp_path_factory.mktemp("store") / "replays.jsonl")


def tally(tokens: float, ms: float, nodes: float = 10.0, rounds: float = 10.0, prompts: int = 8) -> Tally:
    """The same figures on each of some prompts, a plain token taking 1 ms."""
    columns = {name: np.zeros(prompts) for name in TALLY_COLUMNS}
    for name, value in (("tokens", tokens), ("ms", ms), ("nodes", nodes), ("rounds", rounds)):
        columns[name] = np.full(prompts, value)
    names = np.asarray([f"p{number}" for number in range(prompts)])
    return Tally(names, np.where(np.arange(prompts) % 2, "chat", "rag"), np.full(prompts, tokens), columns)


def test_cells_cover_every_question_once() -> None:
    cells = PolicyBenchSettings(temperatures=(0.0,)).cells
    assert len(cells) == len(set(map(str, cells))) == (4 + 2) * 3
    assert str(cells[0]) == "default T0 draft here"
    assert {cell.sources for cell in cells if cell.condition.draft == "prune:12-17"} == {"draft", "all"}
    quick = PolicyBenchSettings().quick()
    assert [str(cell) for cell in quick.cells][-1] == "default T0 all a100-3ms"
    assert all(cell.is_a100 for cell in quick.cells)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": ("web",)}, "sources must be among draft, lookup, free, all, got"),
        ({"drafts": ("none", "none")}, "drafts must be at least one, each once"),
        ({"train_prompts": 2}, "train_prompts must be >= 3, got 2"),
        ({"train_prompts": 5, "leaves_tasks_out": True}, "train_prompts must be >= 6 to leave tasks out, got 5"),
        ({"policy": "topn"}, "policy must be learned or guarded, got 'topn'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(PolicyBenchSettings(), **settings)  # type: ignore[arg-type]


def test_prompts_are_spread_over_tasks_and_sources_whatever_their_order() -> None:
    prompts = [
        Prompt(f"{source}/{number}", task, "x", "train")
        for task, source in (("chat", "a"), ("chat", "b"), ("rag", "c"))
        for number in range(10)
    ]
    chosen = spread_prompts(prompts, 8)
    assert [prompt.task for prompt in chosen].count("rag") == 4
    assert {prompt.id.partition("/")[0] for prompt in chosen} == {"a", "b", "c"}
    assert sum(prompt.id.startswith("a/") for prompt in chosen) == 2
    assert spread_prompts(prompts[::-1], 8) == chosen
    assert spread_prompts(prompts, 3) == chosen[:3]


def test_the_projects_own_prompts_are_split_apart(tmp_path: Path) -> None:
    own = prompt_parts(None, PolicyBenchSettings(train_prompts=9, test_prompts=9))
    assert {prompt.split for prompt in own.train} == {"policy"}
    assert {prompt.split for prompt in own.test} == {"judge"}
    assert len({prompt.task for prompt in own.test}) == 9
    (tmp_path / "one.jsonl").write_text('{"id": "a/1", "task": "chat", "prompt": "x", "split": "train"}\n')
    with pytest.raises(PromptError, match="prompts must hold one of split 'test' to go on"):
        prompt_parts(tmp_path, PolicyBenchSettings())


def test_replays_are_kept_and_priced_for_each_profile(store: ReplayStore) -> None:
    learned = "topn:4x2"
    asked = [*SPECS, ORACLE, DEPTH + learned, learned]
    steps: list[int] = []
    found = store.tallies(DRAFT | FREE, [EXAMPLE, DEAR], asked, steps.append)
    assert sum(steps) == len(asked)
    assert set(found) == {(place, spec) for place in (0, 1) for spec in asked}
    for place in (0, 1):
        best = speedup_of(found[place, ORACLE])
        assert all(speedup_of(found[place, spec]) <= best for spec in asked)
        assert speedup_of(found[place, DEPTH + learned]) >= speedup_of(found[place, learned])
    assert speedup_of(found[0, "topn:8x2,sources=draft"]) > speedup_of(found[1, "topn:8x2,sources=draft"])
    again = ReplayStore(store.trace, store.path)
    steps.clear()
    kept = again.tallies(DRAFT | FREE, [DEAR], SPECS, steps.append)
    assert steps == [len(SPECS)]  # nothing was replayed
    for spec in SPECS:
        for name in TALLY_COLUMNS:
            assert np.allclose(kept[0, spec].columns[name], found[1, spec].columns[name])
    masked = again.tallies(LOOKUP, [EXAMPLE], ["topn:8x2,sources=all"])
    assert masked[0, "topn:8x2,sources=all"].columns["growths"].sum() == 0


def test_half_a_line_is_no_result(store: ReplayStore) -> None:
    line = StoredReplay(key_of("frontier", 7, "x"), True, {"ms": [1.0]}).to_line()
    assert StoredReplay.from_line(line) == StoredReplay(key_of("frontier", 7, "x"), True, {"ms": [1.0]})
    assert StoredReplay.from_line(line[:-8]) is None
    assert StoredReplay.from_line("[1, 2]") is None


def test_a_spec_with_a_file_is_told_by_its_content(tmp_path: Path) -> None:
    for name, content in (("a", "{}"), ("b", "{}"), ("c", "[]")):
        (tmp_path / name).write_text(content)
    keys = [key_of(f"frontier-table:{tmp_path / name},kappa=0.1", 7, "x") for name in "abc"]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] != key_of(f"frontier-table:{tmp_path / 'a'}", 7, "x")
    assert shown(f"frontier-table:{tmp_path / 'a'},kappa=0.1") == "frontier-table:TABLE,kappa=0.1"
    assert shown("learned:some/where") == "learned"


def test_code_that_a_module_imports_counts() -> None:
    rules = code_closure(("treewise.policy.registry",))
    assert rules == code_closure(("treewise.policy.registry",))
    assert len({rules, code_closure(("treewise.policy.topn",)), code_closure(("treewise.policy.learned",))}) == 3


def test_winners_are_the_fastest_of_their_family_and_sources() -> None:
    speeds = {"topn:8x2,sources=all": 2.0, "topn:2x1,sources=all": 1.5, "topn:8x2,sources=draft": 1.8}
    speeds |= {"chain:3,sources=free": 1.2, "frontier": 2.1}
    found = winners({spec: tally(10.0, 10.0 / speed) for spec, speed in speeds.items()}, SPECS)
    assert list(found.items()) == [
        ("frontier", "frontier"),
        ("topn", "topn:8x2,sources=all"),
        (DRAFT_ONLY, "topn:8x2,sources=draft"),
        ("chain", "chain:3,sources=free"),
        (FREE_ONLY, "chain:3,sources=free"),
    ]


def test_nodes_are_compared_at_equal_length() -> None:
    grid = [tally(20.0, 1.0, nodes) for nodes in (40.0,)] + [tally(30.0, 1.0, 120.0), tally(15.0, 1.0, 100.0)]
    saved = nodes_saved(tally(25.0, 1.0, 40.0), grid)  # between 4 nodes for 1 token and 12 nodes for 2
    assert (saved.accepted, saved.nodes) == (1.5, 4.0)
    assert saved.topn_nodes == pytest.approx(8.0)
    assert saved.share == pytest.approx(0.5)
    assert nodes_saved(tally(15.0, 1.0, 1.0), grid).topn_nodes == pytest.approx(2.0)  # a mixture with plain decoding
    assert np.isnan(nodes_saved(tally(35.0, 1.0, 10.0), grid).share)


def test_stages_change_batch_and_context() -> None:
    fixed = at_context(COST, 1024)
    assert fixed.verify_ms([4], 16)[0] == pytest.approx(COST.verify_ms([4], 1024)[0])
    names = [stage.name for stage in stages_of({"this-machine": COST, "example-a100-70b": EXAMPLE})]
    assert names == [
        "this-machine",
        "this-machine, 1024 tokens of context",
        "example-a100-70b",
        "example-a100-70b, batch 8",
        "example-a100-70b, batch 32",
    ]
    batches = [stage.cost.requests for stage in stages_of({"example-a100-70b": EXAMPLE})]
    assert batches == [1, 8, 32]


def test_a_schedule_takes_its_stages_in_turns(store: ReplayStore) -> None:
    stages = stages_of({"example-a100-70b": EXAMPLE, "example-a100-70b-3ms": DEAR})
    learned = "topn:4x2"
    found = run_schedule(CONDITION, stages, (store, store), DRAFT | FREE, SPECS, learned, 2000, lambda count: None)
    tallies = store.tallies(DRAFT | FREE, [stage.cost for stage in stages], [learned])
    parts = [tallies[place, learned].of(np.arange(4) == place) for place in range(4)]
    tokens = sum(part.columns["tokens"].sum() for part in parts)
    units = sum((part.columns["ms"] * part.columns["tokens"] / part.plain_ms).sum() for part in parts)
    assert found.speedup.value == pytest.approx(tokens / units)
    assert found.best.speedup.value == max(row.speedup.value for row in found.rows if row.name != "entropy, untuned")
    for row in found.rows:
        assert row.ratio.value == pytest.approx(found.speedup.value / row.speedup.value)


def test_losses_are_those_that_hold_together() -> None:
    def cell(fast: float, spread: float) -> dict[str, Tally]:
        mine, other = tally(10.0, 10.0, prompts=40), tally(10.0, 10.0 / fast, prompts=40)
        noise = 1.0 + spread * np.cos(np.arange(40))
        other = replace(other, columns=other.columns | {"ms": other.columns["ms"] * noise})
        return {"learned:x": mine, "topn:8x2": other, "entropy": tally(10.0, 20.0, prompts=40)}

    def result(fast: float, spread: float, cost: str) -> object:
        tallies = cell(fast, spread) | {ORACLE: tally(10.0, 1.0, prompts=40), DEPTH + "learned:x": tally(10.0, 2.0)}
        tallies[DEPTH + "learned:x"] = tally(10.0, 2.0, prompts=40)
        whole = {"all": np.ones(40, dtype=np.bool_)}
        return judge_cell(Cell(CONDITION, "free", cost), tallies, {"topn": "topn:8x2"}, "learned:x", whole, None, 2000)

    far, near, noisy = result(1.2, 0.02, "a"), result(1.005, 0.02, "b"), result(1.02, 0.9, "c")
    found = losses([far, near, noisy], 0.99)  # type: ignore[list-item]
    assert found.comparisons == 3 * 3 * 2  # cells, all prompts and two tasks, two opponents
    assert {loss.cell.cost for loss in found.significant} == {"a"}
    assert len(found.significant) == 3
    assert found.found[0].ratio == min(loss.ratio for loss in found.found)
    assert not losses([near], 0.99).found  # type: ignore[list-item]
