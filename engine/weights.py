"""One hash for a model's weights, the same whatever file they came from."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def weights_sha256(model: nn.Module) -> str:
    """SHA-256 over the parameters in name order: name, dtype, shape, bytes. Tied parameters count once."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        tensor = parameter.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
