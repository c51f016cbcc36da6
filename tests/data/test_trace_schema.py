"""Traces in memory: columns, rules and selections."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.traces import manifest, request, same
from tests.house.layout import ROOT
from treewise.data.envelope import Envelope
from treewise.data.errors import ParameterError, SchemaVersionError, TraceError
from treewise.data.trace_columns import NODE_COLUMNS, ROUND_COLUMNS
from treewise.data.trace_schema import (
    NODES_SCHEMA,
    ROUNDS_SCHEMA,
    NodeTable,
    Rounds,
    TraceManifest,
    TraceShard,
    concatenate,
)


def test_arrays_and_columns_have_the_same_names_in_the_same_order() -> None:
    rounds = [item.name for item in fields(Rounds) if item.name != "committed_offsets"]
    assert rounds == ROUNDS_SCHEMA.names == [column.name for column in ROUND_COLUMNS]
    assert [item.name for item in fields(NodeTable)] == NODES_SCHEMA.names


def test_every_column_is_described() -> None:
    for field in (*ROUNDS_SCHEMA, *NODES_SCHEMA):
        assert len(field.metadata[b"description"]) > 10
        assert not field.nullable


def test_the_documentation_lists_every_column() -> None:
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    for column in (*ROUND_COLUMNS, *NODE_COLUMNS):
        kind = str(column.type).replace("item: ", "").replace(" not null", "")
        assert f"| `{column.name}` | {kind} | {column.description} |" in text


def test_made_up_requests_follow_the_rules() -> None:
    shards = [TraceShard(*request("p", seed)) for seed in range(20)] + [TraceShard(*request("p", num_rounds=1))]
    for shard in shards:
        shard.check()  # raises on a breach
        assert len(shard.rounds) > 0
        assert int(shard.rounds.num_nodes.sum()) == len(shard.nodes)
    assert len(shards[-1].rounds) == 1


def changed(table: str, column: str, row: int, value: Any) -> TraceShard:
    """A good shard of two requests with one value changed."""
    shard = concatenate([TraceShard(*request("a", 1, 5)), TraceShard(*request("b", 2, 5))])
    part: Any = getattr(shard, table)
    array = getattr(part, column).copy()
    array[row] = value
    broken: Any = replace(part, **{column: array})
    return TraceShard(broken, shard.nodes) if table == "rounds" else TraceShard(shard.rounds, broken)


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "message"),
    [
        ("rounds", "request", 0, 5, "rounds.request must be in order, without gaps, got a breach at row 1"),
        ("rounds", "round", 1, 7, "rounds.round must be ascending within a request, got a breach at row 2"),
        ("rounds", "prompt_id", 0, "c", "rounds.prompt_id must be one per request, got a breach at row 1"),
        ("rounds", "finish", 0, "eos", "rounds.finish must be empty before the last round of a request"),
        ("rounds", "finish", 4, "leng", "rounds.finish must be one of"),
        ("rounds", "propensity", 1, 0.0, "rounds.propensity must be above 0, at most 1, got a breach at row 1"),
        ("rounds", "propensity", 1, 1.5, "rounds.propensity must be above 0, at most 1"),
        ("rounds", "propensity", 1, 0.5, "rounds.propensity must be one per request, got a breach at row 1"),
        ("rounds", "num_nodes", 0, 60, "rounds.num_nodes must add up to"),
        ("rounds", "num_nodes", 0, -1, "rounds.num_nodes must be >= 0, got a breach at row 0"),
        ("nodes", "request", 0, 1, "nodes.request must be that of its round, got a breach at row 0"),
        ("nodes", "round", 0, 3, "nodes.round must be that of its round, got a breach at row 0"),
        ("nodes", "node", 1, 9, "nodes.node must be 1, 2, ... within a round, got a breach at row 1"),
        ("nodes", "parent", 0, 1, "nodes.parent must be an earlier row, got a breach at row 0"),
        ("nodes", "parent", 0, -1, "nodes.parent must be an earlier row, got a breach at row 0"),
        ("nodes", "depth", 0, 2, "nodes.depth must be one more than its parent's, got a breach at row 0"),
        ("nodes", "match", 0, 2, "nodes.match must be 1, 0 or -1, got a breach at row 0"),
    ],
)
def test_a_broken_rule_is_named(table: str, column: str, row: int, value: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        changed(table, column, row, value).check()
    assert message in str(caught.value)


def test_survival_and_keeping_are_closed_under_parents() -> None:
    chain = {"request": [0, 0], "round": [0, 0], "node": [1, 2], "parent": [0, 1], "depth": [1, 2], "level": [1, 2]}
    rounds = request("a", num_rounds=1)[0]
    rounds = replace(rounds, request=np.zeros(1, np.int32), num_nodes=np.array([2], np.int32))
    nodes = NodeTable.build(**chain, sources=[2, 2], match=[0, 1], survives=[False, True])
    with pytest.raises(TraceError, match="survives must be set only on a path of matches, got a breach at row 1"):
        TraceShard(rounds, nodes).check()
    nodes = NodeTable.build(**chain, sources=[2, 2], kept=[False, True])
    with pytest.raises(TraceError, match="kept must be closed under parents, got a breach at row 1"):
        TraceShard(rounds, nodes).check()
    TraceShard(rounds, NodeTable.build(**chain, sources=[2, 2], match=[1, 1], survives=[True, True])).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token": [1, 2]}, r"nodes.token must be int32 of \[1\], got int32 of \[2\]"),
        ({"colour": [1]}, r"nodes must hold its columns, got \[\] missing and \['colour'\] unknown"),
        ({"token": ["x"]}, "nodes.token must be int32: "),
        ({"token": [2**31]}, "nodes.token must be int32: "),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    columns = {"request": [0], "round": [0], "node": [1], "parent": [0], "depth": [1], "level": [0], "sources": [1]}
    assert len(NodeTable.build(**columns)) == 1
    with pytest.raises(ParameterError, match=message):
        NodeTable.build(**{**columns, **changes})
    with pytest.raises(ParameterError, match=r"got \['depth'\] missing"):
        NodeTable.build(**{name: column for name, column in columns.items() if name != "depth"})


def test_lists_must_be_aligned() -> None:
    rounds = request("a")[0]
    with pytest.raises(ParameterError, match="committed_offsets must be int64 offsets"):
        replace(rounds, committed_offsets=rounds.committed_offsets + 1)
    with pytest.raises(ParameterError, match="must be of one length"):
        replace(rounds, draft_agrees=rounds.draft_agrees[1:])


def test_taking_rounds_brings_their_nodes_and_lists() -> None:
    whole = concatenate([TraceShard(*request(name, 3, 6)) for name in "ab"])
    part = whole.take(np.array([7, 2]))
    assert part.rounds.prompt_id.tolist() == ["b", "a"]
    for new, old in enumerate((7, 2)):
        assert part.rounds.committed_of(new).tolist() == whole.rounds.committed_of(old).tolist()
        mine = part.nodes.token[part.node_offsets[new] : part.node_offsets[new + 1]]
        theirs = whole.nodes.token[whole.node_offsets[old] : whole.node_offsets[old + 1]]
        assert mine.tolist() == theirs.tolist()
    mask = whole.rounds.prompt_id == "b"
    assert same(whole.take(mask).renumbered(0), TraceShard(*request("b", 3, 6)).renumbered(0))


def test_parent_rows_point_into_the_table() -> None:
    shard = concatenate([TraceShard(*request(name, 3, 6)) for name in "ab"])
    rows = shard.parent_rows()
    inner = rows >= 0
    assert inner.any()
    assert (~inner == (shard.nodes.parent == 0)).all()
    assert (shard.nodes.node[rows[inner]] == shard.nodes.parent[inner]).all()
    assert (shard.round_rows()[rows[inner]] == shard.round_rows()[inner]).all()


def test_manifest_round_trip(tmp_path: Path) -> None:
    original = manifest(temperature=0.8, seed=-3, top_k=5, suffix_corpus_hash="cd", input_hashes={"prompts": "ef"})
    original.save(tmp_path / "manifest.json")
    assert TraceManifest.load(tmp_path) == original
    assert TraceManifest.load(tmp_path).identity() == original.identity()


def test_manifest_identity_ignores_when_and_how() -> None:
    assert manifest(created="later", command="other").identity() == manifest().identity()
    assert manifest(created="later").differences(manifest()) == []
    assert manifest(seed=1).identity() != manifest().identity()
    assert manifest(seed=1).differences(manifest()) == ["seed 1 != 0"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kind", "frozen", "kind must be one of live, dense, got 'frozen'"),
        ("pair", "tiny", "pair must be a mapping, got 'tiny'"),
        ("vocab_size", 0, "vocab_size must be >= 1, got 0"),
        ("max_new_tokens", True, "max_new_tokens must be >= 1, got True"),
        ("seed", 2**63, "seed must be a 64-bit integer, got 9223372036854775808"),
        ("temperature", float("nan"), "temperature must be finite and >= 0, got nan"),
        ("top_k", -1, "top_k must be >= 0, got -1"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1, got 0.0"),
        ("min_p", 1.5, "min_p must be between 0 and 1, got 1.5"),
        ("typical_p", 0.0, "typical_p must be above 0 and at most 1, got 0.0"),
        ("verification", "typical", "verification must be one of exact, relaxed-top-n, threshold, got 'typical'"),
        ("draft_reads", "minds", "draft_reads must be one of prefix, target_features, none, got 'minds'"),
        ("tokens_included", 1, "tokens_included must be True or False, got 1"),
        ("versions", {"torch": 2}, "versions must be a mapping of strings, got {'torch': 2}"),
        ("policy", 3, "policy must be a string or None, got 3"),
        ("envelope", None, "envelope must be an Envelope, got None"),
    ],
)
def test_manifest_refuses(name: str, value: Any, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        manifest(**{name: value})
    assert str(caught.value) == message


def test_another_schema_version_names_both_and_the_cure() -> None:
    value = {**manifest().to_json(), "schema_version": 7}
    with pytest.raises(SchemaVersionError, match=r"schema version 7, this treewise reads 3: collect the trace again"):
        TraceManifest.from_json(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, r"\[\] missing and \['extra'\] unknown"),
        ({"seed": "one"}, "trace manifest: seed must be a 64-bit integer"),
        ({"envelope": {"max_depth": 1}}, "trace manifest: envelope must hold the names"),
        ({"prior_table": 3}, "trace manifest: "),
    ],
)
def test_a_malformed_manifest_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        TraceManifest.from_json({**manifest().to_json(), **change})


def test_a_missing_or_unreadable_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"trace must be a folder with a manifest\.json"):
        TraceManifest.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(TraceError, match="trace manifest must be a JSON file, got "):
        TraceManifest.load(tmp_path)
    with pytest.raises(TraceError, match="must be a JSON object, got list"):
        TraceManifest.from_json([])
    assert manifest(envelope=Envelope(max_depth=4)).to_json()["envelope"]["max_depth"] == 4
