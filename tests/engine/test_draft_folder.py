"""Distilled drafts on disk: they come back as they were, and foreign or damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.disk_pairs import write_model
from treewise.data.errors import ChecksumError, PairError, SchemaVersionError
from treewise.engine.draft_folder import (
    DESCRIPTION_NAME,
    WEIGHTS_NAME,
    load_draft,
    read_description,
    save_draft,
    trainable_draft,
    trained_parameters,
)
from treewise.engine.draft_model import DraftModel
from treewise.engine.pair import Pair, load_pair

IDS = np.array([0, 1, 5, 9, 200], dtype=np.int32)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(str(write_model(tmp_path_factory.mktemp("target"), seed=1)), "none")


@pytest.fixture
def draft(pair: Pair) -> DraftModel:
    draft = trainable_draft(pair.target, (0, 1), IDS)
    with torch.no_grad():
        for parameter in trained_parameters(draft).values():
            parameter.mul_(1.5)
    return draft


@pytest.fixture
def stored(pair: Pair, draft: DraftModel, tmp_path: Path) -> Path:
    sha = pair.description.target_sha256
    save_draft(tmp_path / "draft", draft, target="tiny", target_sha256=sha, provenance={"command": "test"})
    return tmp_path / "draft"


def test_training_a_draft_leaves_the_target_alone(pair: Pair, draft: DraftModel) -> None:
    mine: Any = draft.model
    theirs: Any = pair.target.model
    assert torch.allclose(mine.layers[0].mlp.up_proj.weight, 1.5 * theirs.layers[0].mlp.up_proj.weight)
    assert mine.embed_tokens.weight.data_ptr() == theirs.embed_tokens.weight.data_ptr()
    names = set(trained_parameters(draft))
    assert "norm.weight" in names
    assert not any("embed" in name for name in names)


def test_a_stored_draft_comes_back(pair: Pair, draft: DraftModel, stored: Path) -> None:
    again = load_draft(stored, pair.target, target_sha256=pair.description.target_sha256)
    assert again.head_token_ids is not None
    assert again.head_token_ids.tolist() == IDS.tolist()
    for name, parameter in trained_parameters(again).items():
        expected = trained_parameters(draft)[name].to(torch.float16).to(torch.float32)
        assert torch.equal(parameter, expected), name
        assert not parameter.requires_grad
    hidden = again.model(input_ids=torch.arange(6)[None], use_cache=False).last_hidden_state[0]
    assert again.head(hidden).shape == (6, 5)
    expected = pair.target.get_output_embeddings()(hidden)[:, IDS.tolist()]
    assert torch.allclose(again.head(hidden), expected, atol=1e-6)
    assert sorted(path.name for path in stored.parent.iterdir()) == ["draft"]


def test_load_pair_takes_a_draft_folder(pair: Pair, stored: Path) -> None:
    loaded = load_pair(pair.description.target, str(stored))
    assert loaded.draft is not None
    assert loaded.description.draft_sha256 == read_description(stored).weights_sha256
    assert loaded.description.draft_head_size == 5


def test_damaged_weights_are_refused(pair: Pair, stored: Path) -> None:
    content = bytearray((stored / WEIGHTS_NAME).read_bytes())
    content[-1] ^= 1
    (stored / WEIGHTS_NAME).write_bytes(content)
    with pytest.raises(ChecksumError, match=r"draft\.safetensors must have sha256"):
        load_draft(stored, pair.target, target_sha256=pair.description.target_sha256)


def test_a_draft_of_another_target_is_refused(pair: Pair, stored: Path) -> None:
    with pytest.raises(PairError, match=r"was distilled from 'tiny' with weights .* got a target with weights abc"):
        load_draft(stored, pair.target, target_sha256="abc")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"schema_version": 2}, SchemaVersionError, "has schema version 2, this treewise reads 1"),
        ({"kind": "magic"}, PairError, "must be of kind"),
        ({"colour": "red"}, PairError, "must have the fields"),
    ],
)
def test_foreign_descriptions_are_refused(
    stored: Path, change: dict[str, object], error: type[Exception], message: str
) -> None:
    path = stored / DESCRIPTION_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(error, match=message):
        read_description(stored)


def test_a_description_that_is_no_json_is_refused(stored: Path) -> None:
    (stored / DESCRIPTION_NAME).write_text("{")
    with pytest.raises(PairError, match="cannot be read"):
        read_description(stored)


def test_a_full_head_is_not_a_distilled_draft(pair: Pair, draft: DraftModel, tmp_path: Path) -> None:
    full = DraftModel("full", draft.model, pair.target.lm_head.weight, None, "0")
    with pytest.raises(PairError, match="draft must have a cut head"):
        save_draft(tmp_path / "x", full, target="tiny", target_sha256="0", provenance={})
