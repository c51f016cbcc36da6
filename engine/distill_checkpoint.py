"""Checkpoints of a distillation: safetensors, never pickles."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from treewise.data.errors import PairError
from treewise.engine.hub import write_atomically


def store_checkpoint(
    path: Path, identity: str, step: int, parameters: dict[str, nn.Parameter], optimiser: torch.optim.Optimizer
) -> None:
    """Write weights, both moments and the step as one atomic safetensors file; `identity` says of which run."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in parameters.items():
        state = optimiser.state[parameter]
        tensors[f"value/{name}"] = parameter.detach().cpu().contiguous()
        tensors[f"first/{name}"] = state["exp_avg"].cpu().contiguous()
        tensors[f"second/{name}"] = state["exp_avg_sq"].cpu().contiguous()
    write_atomically(path, save(tensors, metadata={"identity": identity, "step": str(step)}))


@torch.no_grad()
def restore_checkpoint(
    path: Path, identity: str, parameters: dict[str, nn.Parameter], optimiser: torch.optim.Optimizer
) -> int:
    """Load a checkpoint of the same run; returns the step to go on from, 0 when there is none."""
    if not path.is_file():
        return 0
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("identity") != identity:
                return 0
            step = int(metadata["step"])
            for name, parameter in parameters.items():
                parameter.copy_(stored.get_tensor(f"value/{name}"))
                optimiser.state[parameter] = {
                    "step": torch.tensor(float(step), device=parameter.device),
                    "exp_avg": stored.get_tensor(f"first/{name}").to(parameter.device),
                    "exp_avg_sq": stored.get_tensor(f"second/{name}").to(parameter.device),
                }
    except (OSError, SafetensorError) as error:
        raise PairError(f"checkpoint {path} cannot be read ({error}); delete it to start anew") from error
    return step
