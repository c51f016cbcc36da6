"""Distilled drafts on disk: a few of the target's layers, trained further, and which tokens its tied head keeps."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from treewise.data.errors import ChecksumError, PairError, SchemaVersionError
from treewise.engine.draft_model import DraftModel, decoder_layers, decoder_of, decoder_with_layers
from treewise.engine.hub import atomic_folder, file_sha256

DRAFT_SCHEMA_VERSION = 1
DRAFT_KIND = "layers+tied head"
DESCRIPTION_NAME = "draft.json"
WEIGHTS_NAME = "draft.safetensors"
HEAD_KEY = "head_token_ids"


@dataclass(frozen=True, slots=True)
class DraftDescription:
    """What `draft.json` says: which target it belongs to and how it was made."""

    target: str
    target_sha256: str
    num_layers: int
    head_size: int
    weights_sha256: str  # of draft.safetensors, bytes as stored
    provenance: Mapping[str, Any]  # command, input hashes, tokens seen, agreement, licence notice
    schema_version: int = DRAFT_SCHEMA_VERSION
    kind: str = DRAFT_KIND

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)


def trainable_draft(
    target: PreTrainedModel, from_layers: Sequence[int], head_token_ids: NDArray[np.int32]
) -> DraftModel:
    """Some of the target's layers and its final norm as copies that can be trained, its embedding and head tied.

    Args:
        from_layers: the layers to copy, in the order in which the draft runs them.
        head_token_ids: [head_size] the tokens the draft can say, rising.

    Raises as `check_layers`.
    """
    check_layers(target, from_layers)
    decoder = decoder_of(target)
    smaller = decoder_with_layers(decoder, from_layers)
    smaller.layers = copy.deepcopy(decoder_layers(smaller))
    smaller.norm = copy.deepcopy(_final_norm(decoder))
    rows = torch.from_numpy(head_token_ids.astype(np.int64)).to(target.device)
    head = target.get_output_embeddings().weight.detach()[rows].contiguous()
    return DraftModel("untrained", smaller, head, head_token_ids, "untrained")


def check_layers(target: PreTrainedModel, from_layers: Sequence[int]) -> None:
    """Whether a draft can start from these layers of the target.

    Raises:
        PairError: the target has no such layer, or its layers are of several kinds and these are not of the kinds of
            its first ones, which is how a stored draft is built again.
    """
    decoder = decoder_of(target)
    available = len(decoder_layers(decoder))
    if not from_layers or not all(0 <= layer < available for layer in from_layers):
        raise PairError(f"from_layers must be of the target's {available}, from 0, got {tuple(from_layers)}")
    kinds = getattr(decoder.config, "layer_types", None)
    if kinds is not None and [kinds[layer] for layer in from_layers] != list(kinds[: len(from_layers)]):
        raise PairError(f"from_layers must be of the kinds of the first {len(from_layers)}, got {tuple(from_layers)}")


def trained_parameters(draft: DraftModel) -> dict[str, nn.Parameter]:
    """The parameters that a distilled draft does not share with its target, by stored name."""
    found: dict[str, nn.Parameter] = {}
    for part in ("layers", "norm"):
        for name, parameter in getattr(draft.model, part).named_parameters():
            found[f"{part}.{name}"] = parameter
    return found


def _final_norm(decoder: PreTrainedModel) -> nn.Module:
    norm = getattr(decoder, "norm", None)
    if not isinstance(norm, nn.Module):
        raise PairError(f"decoder must keep its final norm in `norm`, got {type(decoder).__name__}")
    return norm


def save_draft(
    folder: Path, draft: DraftModel, *, target: str, target_sha256: str, provenance: Mapping[str, Any]
) -> DraftDescription:
    """Write a distilled draft as float16, whole or not at all."""
    if draft.head_token_ids is None:
        raise PairError("draft must have a cut head to be stored, got the full vocabulary")
    tensors = {name: value.detach().to(torch.float16).cpu() for name, value in trained_parameters(draft).items()}
    tensors[HEAD_KEY] = torch.from_numpy(np.ascontiguousarray(draft.head_token_ids, dtype=np.int32))
    with atomic_folder(folder) as building:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, building / WEIGHTS_NAME)
        description = DraftDescription(
            target=target,
            target_sha256=target_sha256,
            num_layers=draft.num_layers,
            head_size=draft.head_size,
            weights_sha256=file_sha256(building / WEIGHTS_NAME),
            provenance=dict(provenance),
        )
        text = json.dumps(description.to_json(), indent=2) + "\n"
        (building / DESCRIPTION_NAME).write_text(text, encoding="utf-8")
        (building / WEIGHTS_NAME).chmod(0o644)
    return description


def is_draft_folder(folder: Path) -> bool:
    """Whether a folder holds a distilled draft."""
    return (folder / DESCRIPTION_NAME).is_file()


def read_description(folder: Path) -> DraftDescription:
    """The checked `draft.json` of a folder.

    Raises:
        PairError: it cannot be read, or is of another kind.
        SchemaVersionError: written by another treewise.
    """
    path = folder / DESCRIPTION_NAME
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PairError(f"{path} cannot be read: {error}") from error
    if not isinstance(stored, dict):
        raise PairError(f"{path} must hold a JSON object, got {type(stored).__name__}")
    if stored.get("schema_version") != DRAFT_SCHEMA_VERSION:
        cure = "distill the draft again with `treewise distill`"
        raise SchemaVersionError(str(path), stored.get("schema_version"), DRAFT_SCHEMA_VERSION, cure)
    names = {field.name for field in fields(DraftDescription)}
    if set(stored) != names:
        raise PairError(f"{path} must have the fields {sorted(names)}, got {sorted(stored)}")
    description = DraftDescription(**stored)
    if description.kind != DRAFT_KIND:
        raise PairError(f"{path} must be of kind {DRAFT_KIND!r}, got {description.kind!r}")
    return description


def load_draft(folder: Path, target: PreTrainedModel, *, target_sha256: str, name: str | None = None) -> DraftModel:
    """Read a distilled draft and join it to its target, in the target's dtype and on its device.

    Raises:
        ChecksumError: the weights are not the bytes that `draft.json` promises.
        PairError: it was distilled from another target, or does not fit it.
    """
    description = read_description(folder)
    found = file_sha256(folder / WEIGHTS_NAME) if (folder / WEIGHTS_NAME).is_file() else "no file"
    if found != description.weights_sha256:
        raise ChecksumError(f"{folder / WEIGHTS_NAME} must have sha256 {description.weights_sha256}, got {found}")
    if description.target_sha256 != target_sha256:
        raise PairError(
            f"draft {folder} was distilled from {description.target!r} with weights {description.target_sha256}, "
            f"got a target with weights {target_sha256}"
        )
    tensors = load_file(folder / WEIGHTS_NAME)
    ids = tensors.pop(HEAD_KEY).numpy()
    if ids.dtype != np.int32 or ids.shape != (description.head_size,):
        raise PairError(f"{HEAD_KEY} must be int32 [{description.head_size}], got {ids.dtype} {list(ids.shape)}")
    draft = trainable_draft(target, range(description.num_layers), ids)
    parameters = trained_parameters(draft)
    if set(parameters) != set(tensors):
        wrong = sorted(set(parameters) ^ set(tensors))
        raise PairError(f"{folder / WEIGHTS_NAME} must hold the target's layer parameters, got a difference in {wrong}")
    with torch.no_grad():
        for key, parameter in parameters.items():
            if parameter.shape != tensors[key].shape:
                raise PairError(f"{key} must have shape {list(parameter.shape)}, got {list(tensors[key].shape)}")
            parameter.copy_(tensors[key])
            parameter.requires_grad_(False)
    draft.model.eval()
    return DraftModel(name or str(folder), draft.model, draft.head_weight, ids, description.weights_sha256)
