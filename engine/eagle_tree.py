"""EAGLE's own arrays: candidates in, the four tensors of a draft tree out. Numpy; tensors come and go as they are.

`topK_genrate` of EAGLE's reference code (SafeAILab/EAGLE, `eagle/model/cnets.py`; arXiv 2406.16858) collects three
lists, one entry for the first draft pass and one for each of its depth loop:

    scores_list   [1, k], then [k, k] each: log probability of the whole path to the candidate
    ss_token      [1, k], then [k, k] each: the candidates' token ids, most probable first
    parents_list  [1] holding 0, then [k] each: what every row of `ss_token` hangs below, 0 the root, else 1 + candidate

Candidates are numbered through all entries in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treewise.data.errors import ParameterError

Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]


class EagleDraft(NamedTuple):
    """What `topK_genrate` returns: arrays, or tensors where it was given tensors. Row 0 is the last committed token."""

    draft_tokens: Any  # [1, rows] int64
    retrieve_indices: Any  # [leaves, longest path] int64: rows from the root to each leaf, padded with -1
    tree_mask: Any  # [1, 1, rows, rows] float32: 1 where a row sees another
    tree_position_ids: Any  # [rows] int64: depth


@dataclass(frozen=True, slots=True)
class EagleCandidates:
    """Every candidate of one round."""

    scores: Float32Array  # [candidates] log probability of the path; NaN became minus infinity
    tokens: Int64Array  # [candidates]
    parents: Int64Array  # [candidates] candidate above, -1 for the root
    ends: tuple[int, ...]  # [entries] where each entry's candidates end
    width: int  # candidates of one parent, k

    @classmethod
    def read(cls, scores_list: Sequence[Any], ss_token: Sequence[Any], parents_list: Sequence[Any]) -> EagleCandidates:
        """The three lists, as far as they have come.

        Raises:
            ParameterError: shapes that do not fit each other.
        """
        scores = [as_array(entry).astype(np.float32) for entry in scores_list]
        tokens = [as_array(entry).astype(np.int64) for entry in ss_token]
        above = [as_array(entry).astype(np.int64).reshape(-1) for entry in parents_list]
        if not scores:
            raise ParameterError("scores_list must hold at least one entry, got none")
        width = scores[0].shape[-1] if scores[0].ndim else 0
        shapes = [(1, width)] + [(width, width)] * (len(scores) - 1)
        lengths = [(1,)] + [(width,)] * (len(scores) - 1)
        for name, entries, expected in (
            ("scores_list", scores, shapes),
            ("ss_token", tokens, shapes),
            ("parents_list", above, lengths),
        ):
            found = [entry.shape for entry in entries]
            if found != expected:
                raise ParameterError(f"{name} must hold entries of shapes {expected}, got {found}")
        flat = np.concatenate([entry.reshape(-1) for entry in scores])
        parents = np.repeat(np.concatenate(above) - 1, width)
        if not ((parents >= -1) & (parents < np.arange(len(parents)))).all():
            raise ParameterError("parents_list must name earlier candidates, got a later one or none")
        flat = np.where(np.isnan(flat), np.float32(-np.inf), flat)
        if (flat > np.where(parents < 0, np.float32(0.0), flat[parents])).any():
            raise ParameterError("scores_list must hold log probabilities of whole paths, got one above its parent's")
        return cls(
            scores=flat,
            tokens=np.concatenate([entry.reshape(-1) for entry in tokens]),
            parents=parents,
            ends=tuple(np.cumsum([entry.size for entry in scores]).tolist()),
            width=width,
        )

    def beam(self, entry: int) -> Int64Array:
        """The candidates of `entry` that EAGLE drafts below next: the k best of it, [k], rising."""
        start = self.ends[entry - 1] if entry else 0
        return np.sort(start + best(self.scores[start : self.ends[entry]], self.width))

    def own_choice(self, count: int) -> Int64Array:
        """EAGLE's own rule: the `count` best candidates of all, rising; closed under parents."""
        return np.sort(best(self.scores, count))

    def draft(self, chosen: Int64Array, root_token: int, *, sort_leaves: bool) -> EagleDraft:
        """The outputs for the candidates `chosen` [nodes], rising and closed under parents, as arrays.

        `sort_leaves`: order the paths as EAGLE does when it samples.
        """
        rows = len(chosen) + 1
        tokens = np.concatenate([[root_token], self.tokens[chosen]]).astype(np.int64)
        above = self.parents[chosen]
        place = np.zeros(rows, dtype=np.int64)
        place[1:] = np.where(above < 0, 0, np.searchsorted(chosen, above) + 1)
        assert ((above < 0) | (chosen[np.maximum(place[1:] - 1, 0)] == above)).all(), "chosen nodes are closed upward"
        mask = np.eye(rows, dtype=np.bool_)
        for row in range(1, rows):
            mask[row] |= mask[place[row]]
        depths = mask.sum(axis=1, dtype=np.int64) - 1
        leaves = np.setdiff1d(np.arange(rows), place[1:])
        paths = np.full((len(leaves), int(depths.max()) + 1), -1, dtype=np.int64)
        for line, leaf in enumerate(leaves.tolist()):
            # Parents have lower rows, so the rows that a leaf sees are its path from the root on.
            paths[line, : depths[leaf] + 1] = np.flatnonzero(mask[leaf])
        if sort_leaves:
            paths = paths[np.lexsort(np.where(paths < 0, rows, paths).T[::-1])]
        return EagleDraft(tokens[None], paths, mask.astype(np.float32)[None, None], depths)


def best(scores: Float32Array, count: int) -> Int64Array:
    """Places of the `count` highest `scores` [n], best first; ties go to the lower place."""
    return np.argsort(-scores, kind="stable")[:count].astype(np.int64)


def as_array(value: Any) -> NDArray[Any]:
    """`value` as a numpy array: an array, a number, or a tensor of any device and float type."""
    if hasattr(value, "detach"):
        plain = value.detach().cpu()
        return np.asarray((plain.float() if plain.is_floating_point() else plain).numpy())
    return np.asarray(value)


def token_of(name: str, value: Any, lowest: int = 0) -> int:
    """The first token id of an array, a tensor or a number. Raises `ParameterError` where there is none."""
    found = as_array(value).reshape(-1)
    if not found.size or found.dtype.kind not in "iu" or not lowest <= int(found[0]) < 2**31:
        raise ParameterError(f"{name} must be a token id, at least {lowest}, got {value!r}")
    return int(found[0])


def like(draft: EagleDraft, given: Any) -> EagleDraft:
    """`draft` as tensors, each on the device where EAGLE has it, if `given` is a tensor; else as it is."""
    if not hasattr(given, "detach"):
        return draft
    import torch  # loaded already, or there were no tensor

    tokens, paths, mask, depths = (torch.from_numpy(part) for part in draft)
    return EagleDraft(tokens.to(given.device), paths, mask, depths.to(given.device))
