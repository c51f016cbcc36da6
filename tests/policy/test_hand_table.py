"""The hand table, and the frontier rule that reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.policy.conformance import CHECKS, Check, sizes
from tests.policy.scripted import Decision, World, example_cost, example_deployment, play
from treewise.data.errors import ParameterError, PolicySpecError
from treewise.policy.frontier_table import FrontierTablePolicy, FrontierTableSettings
from treewise.policy.hand_table import HandTable, TableBins
from treewise.policy.hook import DRAFT, FREE
from treewise.policy.registry import parse_policy

NAN = float("nan")


def flat(value: float) -> HandTable:
    return HandTable(np.full(TableBins().shape, value))


def write(path: Path, table: HandTable) -> str:
    path.write_text(json.dumps(table.to_json()), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that believes the draft's bins and long matches."""
    bins = TableBins()
    match = np.full(bins.shape, 0.1)
    match[1:] = np.linspace(0.02, 0.95, bins.shape[0] - 1)[:, None, None, None]
    match[:, 3:, :, 2:] = np.maximum(match[:, 3:, :, 2:], 0.8)
    return write(tmp_path_factory.mktemp("x-tables") / "own x.json", HandTable(match))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kappa", [None, 0.3])
def test_conforms(check: Check, kappa: float | None, file: str) -> None:
    assert check(lambda: FrontierTablePolicy(FrontierTableSettings(table=file, kappa=kappa))) > 0


def test_every_signal_has_its_bin() -> None:
    bins = TableBins(draft=(0.1, 0.5), match=(1.0, 4.0), recycled=(1e-9, 0.5), agreement=(1e-9, 0.9))
    assert bins.shape == (4, 3, 4, 3)

    def place(draft: float, match: float, recycled: float, share: float) -> tuple[int, ...]:
        columns = (np.asarray([value], dtype=np.float32) for value in (draft, match, recycled, share))
        return tuple(int(axis[0]) for axis in np.unravel_index(bins.places(*columns), bins.shape))

    assert place(NAN, NAN, NAN, NAN) == (0, 0, 0, 0)
    assert place(0.05, 0.0, 0.0, 1.0) == (1, 0, 1, 0)  # a share without a match says nothing
    assert place(0.1, 1.0, 1e-3, 0.0) == (2, 1, 2, 0)
    assert place(0.5, 4.0, 0.5, 1.0) == (3, 2, 3, 2)


def test_a_sparser_table_keeps_fewer_nodes(tmp_path: Path) -> None:
    def kept(value: float) -> float:
        table = write(tmp_path / f"{value}.json", flat(value))
        bound = example_deployment(DRAFT | FREE, example_cost(1.0))
        policy = FrontierTablePolicy(FrontierTableSettings(table=table))
        decisions: list[Decision] = play(policy, World(4, DRAFT | FREE), max_new_tokens=30, deployment=bound)[0]
        return float(np.mean(sizes(decisions)))

    assert kept(0.9) > kept(0.2) > kept(0.001) == 0.0


def test_tables_round_trip(file: str) -> None:
    table = HandTable.load(file)
    again = HandTable.from_json(table.to_json())
    assert again.bins == table.bins
    assert np.array_equal(again.match, table.match)


def test_specs_name_the_file_whatever_letters_it_has(file: str) -> None:
    policy = parse_policy(f"frontier-table:{file},kappa=0.2")
    assert isinstance(policy, FrontierTablePolicy)
    assert policy.settings.kappa == 0.2
    assert policy.spec == f"frontier-table:{file},kappa=0.2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "table must be a JSON file"),
        ("[]", "table must be one JSON object, got 'list'"),
        ("{}", "table must be a hand table of match probabilities: 'schema_version'"),
        ('{"schema_version": 9}', "schema_version must be 1, got 9"),
    ],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PolicySpecError, match=message):
        parse_policy(f"frontier-table:{path}")


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicySpecError, match="table must be a file that exists, got ''"):
        parse_policy("frontier-table")
    with pytest.raises(ParameterError, match="match must be probabilities"):
        flat(1.5)
    with pytest.raises(ParameterError, match="draft must be ascending edges above 0"):
        TableBins(draft=(0.5, 0.2))
    with pytest.raises(ParameterError, match="match must be of shape"):
        HandTable(np.zeros((2, 2)))
