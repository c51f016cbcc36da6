"""A tiny model's `generate` with our trees."""

from __future__ import annotations

from typing import Any

import torch

from tests.engine.tiny import (
    example_cost,
    lax_settings,
    tiny_model,
)
from treewise.engine.custom_generate import TreewiseGeneration
from treewise.policy.hook import TreePolicy

PROMPT = [5, 2, 9, 14]


def generation(policy: TreePolicy | str = "topn:12x3", draft: Any = "prune:1-1", **changes: Any) -> TreewiseGeneration:
    return TreewiseGeneration(policy, example_cost(), draft, lax_settings(), **changes)


def run(
    with_trees: TreewiseGeneration | None, prompt: list[int] | None = None, model: Any = None, **options: Any
) -> Any:
    """Token ids of `generate`, with trees or without."""
    model = tiny_model() if model is None else model
    ids = torch.tensor([PROMPT if prompt is None else prompt])
    if with_trees is not None:
        options["custom_generate"] = with_trees
    return model.generate(ids, **{"do_sample": False, "max_new_tokens": 24, **options})
