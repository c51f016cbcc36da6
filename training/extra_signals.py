"""Signals that are tried beside the features and belong to none of them: token identity and the target's own state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.hook import Float32Array, Int8Array, Int32Array, Nodes, RoundContext
from treewise.training.cross_fit import Int64Array
from treewise.training.dataset import DatasetSettings
from treewise.training.dataset_batch import BatchDatasetBuilder, fill_batched
from treewise.training.logged_trace import LoggedTrace
from treewise.training.rows import Dataset, MatchRows

PSEUDO_ROWS = 50.0  # that hold a token's rate at what the prior says


@dataclass(frozen=True, slots=True)
class ExtraSignals:
    """Beside the match rows of a data set."""

    token: Int32Array  # [rows] -1 without ids
    parent_token: Int32Array  # [rows]
    target_entropy: Float32Array  # [rows] bits, of the distribution that drew the root
    target_margin: Float32Array  # [rows]


class ExtraBuilder(BatchDatasetBuilder):
    """A builder of dense rows that keeps the extra signals as well."""

    def __init__(self, envelope: Envelope, prior_table: PriorTable, settings: DatasetSettings) -> None:
        super().__init__(envelope, prior_table, settings)
        self._extra: list[tuple[NDArray[np.int32], ...]] = []
        self._states: list[Float32Array] = []

    def signals(self) -> ExtraSignals:
        """In the order of the match rows."""
        token, parent_token = (np.concatenate(part) for part in zip(*self._extra, strict=True))
        entropy, margin = np.concatenate(self._states, axis=1)
        return ExtraSignals(token, parent_token, entropy, margin)

    def _add_match(
        self,
        nodes: Nodes,
        rows: Int32Array,
        match: Int8Array,
        context: RoundContext,
        prompt: int | Int32Array,
        weight: float | Float32Array,
    ) -> None:
        super()._add_match(nodes, rows, match, context, prompt, weight)
        if rows.size:
            request = nodes.request[rows]
            self._extra.append((nodes.token[rows].copy(), nodes.token[nodes.parent[rows]].copy()))
            self._states.append(np.stack([context.target_entropy[request], context.target_margin[request]]))


def build_with_extras(
    traces: Sequence[LoggedTrace],
    envelope: Envelope | None,
    settings: DatasetSettings,
    step: Callable[[], None] = lambda: None,
) -> tuple[Dataset, ExtraSignals]:
    """As `build_dataset_batched`, and what its match rows had beside their features."""
    builder = fill_batched(traces, envelope, settings, step, ExtraBuilder)
    return builder.finish(), builder.signals()


def token_surplus(match: MatchRows, tokens: Int32Array, fold: Int64Array) -> Float32Array:
    """How much more often than its prior says each row's token matches in the other folds, [rows].

    Out-of-fold target encoding: no row sees a label of its own fold, and a token that is rare there says little, for
    `PSEUDO_ROWS` hold it at 0.
    """
    _, token = np.unique(tokens, return_inverse=True)
    count = int(token.max(initial=-1)) + 1
    surplus = match.weight.astype(np.float64) * (match.label - match.prior)
    found = np.zeros(len(tokens), dtype=np.float32)
    for held_out in np.unique(fold):
        others = fold != held_out
        hits = np.bincount(token[others], surplus[others], count)
        mass = np.bincount(token[others], match.weight[others], count)
        found[~others] = (hits / (mass + PSEUDO_ROWS))[token[~others]]
    return found
