"""`treewise export vllm`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.training.worlds import COST, World, dense, manifest
from treewise import cli
from treewise.data.envelope import Envelope
from treewise.data.trace_writer import TraceWriter

ENVELOPE = Envelope(max_depth=4, draft_width=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense trace on disk, and a cost profile beside it."""
    world = World(seed=4, num_texts=3, answer_tokens=22)
    made = tmp_path_factory.mktemp("export")
    with TraceWriter(made / "dense", manifest("dense", ENVELOPE.widened())) as writer:
        for text in world.texts:
            shard = dense(world, text, ENVELOPE.widened())
            writer.add(shard.rounds, shard.nodes)
    COST.save(made / "cost.json")
    return made


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Standard output of a command that ends well."""
    with pytest.raises(SystemExit) as leaving:
        cli.main(arguments)
    captured = capsys.readouterr()
    assert not leaving.value.code, captured.err
    return captured.out


def test_json_fits_its_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = ["--cost", f"1={folder / 'cost.json'}", "--cost", f"8={folder / 'cost.json'}"]
    output = run(["export", "vllm", str(folder / "dense"), *costs, "--method", "eagle3", "--json"], capsys)
    schema = json.loads((ROOT / "treewise" / "schemas" / "export_vllm.json").read_text(encoding="utf-8"))
    validator = importlib.import_module("jsonschema").Draft202012Validator
    validator.check_schema(schema)
    value: Any = json.loads(output)
    validator(schema).validate(value)
    assert value["speculative_config"]["method"] == "eagle3"
    assert [(row["batch_size"], row["tokens"]) for row in value["rows"]] == [
        (size, tokens) for size in (1, 8) for tokens in range(5)
    ]
    ((first, last, tokens),) = value["speculative_config"]["num_speculative_tokens_per_batch_size"]
    assert (first, last) == (1, 8)  # the same profile twice: one range
    assert tokens == value["speculative_config"]["num_speculative_tokens"]


def test_one_profile_is_scaled_and_the_config_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "config.json"
    arguments = ["export", "vllm", str(folder / "dense"), "--cost", str(folder / "cost.json")]
    output = run(
        [*arguments, "--batch-sizes", "1,4", "--max-batch-size", "64", "--longest", "2", "-o", str(out)], capsys
    )
    config = json.loads(out.read_text(encoding="utf-8"))
    assert json.loads(output.splitlines()[-1]) == config
    assert config["num_speculative_tokens"] <= 2
    assert config["num_speculative_tokens_per_batch_size"][-1][1] == 64
    assert "4 x rows in profile world, an assumption" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cost", "a.json", "--cost", "b.json"], "cost must be BATCH=PROFILE for every batch size"),
        (["--cost", "1=a.json", "--cost", "b.json"], "cost must be BATCH=PROFILE for every batch size"),
        (["--cost", "example-a100-70b", "--batch-sizes", "1,x"], "batch_sizes must be whole numbers"),
        (["--cost", "example-a100-70b", "--sources", "both"], "sources must be draft or lookup, got 'both'"),
        (["--cost", "example-a100-70b", "--longest", "9"], "may ask for nodes of depth 9 where the log ends at 4"),
    ],
)
def test_it_refuses_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert cli.main(["export", "vllm", str(folder / "dense"), *options]) == cli.EXIT_ERROR
    assert message in " ".join(capsys.readouterr().err.split())
