"""Running commands on traces of a made-up world."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.house.layout import ROOT
from tests.training.worlds import manifest
from treewise import cli
from treewise.data.envelope import Envelope
from treewise.data.trace_schema import TraceShard
from treewise.data.trace_writer import TraceWriter

ENVELOPE = Envelope(max_depth=4, draft_width=3)
EXAMPLE = "example-a100-70b"


def write_live(folder: Path, shards: list[TraceShard]) -> Path:
    """A live trace of `chain:3` on disk."""
    with TraceWriter(folder, manifest("live", ENVELOPE, "chain:3")) as writer:
        for shard in shards:
            writer.add(shard.rounds, shard.nodes)
    return folder


def run(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """Standard output of a command that ends with `status`, however Typer leaves."""
    try:
        found: object = cli.main(arguments)
    except SystemExit as leaving:
        found = leaving.code or 0
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.out


def checked(name: str, output: str) -> Any:
    """The JSON of a command, which must fit its schema."""
    schema = json.loads((ROOT / "treewise" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    validator = importlib.import_module("jsonschema").Draft202012Validator
    validator.check_schema(schema)
    value = json.loads(output)
    validator(schema).validate(value)
    return value
