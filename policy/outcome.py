"""What a round brought: the walk along the target's tokens, the same for the live engine and replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treewise.policy.hook import BoolArray, Int8Array, Int32Array, RoundContext, RoundOutcome
from treewise.policy.round import RoundTree

NextToken = Callable[[int, int], int]  # (request, forest row on the path) -> the target's token there, -1: text is over


@dataclass(frozen=True, slots=True)
class Walk:
    """The committed path of every request of a round."""

    on_path: BoolArray  # [rows]
    match: Int8Array  # [rows]
    accepted_length: Int32Array  # [requests]
    tokens: tuple[tuple[int, ...], ...]  # [requests] committed by the round, bonus token included
    drafted_path: Int32Array  # [requests] rows of the path that the draft ran on, from the root on
    path_rows: tuple[tuple[int, ...], ...]  # [requests] forest rows of the path, root first


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One request's part of a finished round, as recorders and tests see it; valid until the next round.

    Milliseconds are its share where several requests ran together; context, tree and walk are those of all of them.
    """

    index: int
    context: RoundContext
    tree: RoundTree
    walk: Walk
    committed: tuple[int, ...]
    draft_agrees: tuple[int, ...]  # aligned with the positions that became checkable
    agrees_from: int  # position of the first of them
    lookup_agrees: tuple[int, ...]  # aligned with `committed`
    root_token: int
    fallback: bool
    suspended: bool
    draft_ms: float
    verify_ms: float
    policy_ms: float
    policy_calls: int  # expand and select of the round that reached the policy, the fallback's aside
    policy_failures: int  # exceptions and violations of the policy, of any call since the driver's record before
    verify_rows: int  # of the whole pass, dead ones included
    finish: str  # "" while the request goes on
    growth_tokens: tuple[int, ...]  # draft tokens that each growth ran for this request, catch-up included
    place: int = 0  # of this request in the round's batch

    @property
    def accepted_length(self) -> int:
        """Depth of the deepest accepted node."""
        return int(self.walk.accepted_length[self.place])

    @property
    def num_nodes(self) -> int:
        """Verified nodes of this request."""
        if len(self.context.request_id) == 1:
            return self.tree.num_nodes
        return int((self.tree.kept & (self.tree.forest.column("request") == self.place)).sum()) - 1

    @property
    def levels(self) -> int:
        """Levels that were asked about this request, the opening one included."""
        level = self.tree.forest.column("level")
        if len(self.context.request_id) > 1:
            level = level[self.tree.forest.column("request") == self.place]
        return 1 + int(level.max())

    @property
    def own_policy_calls(self) -> int:
        """Expand and select that reached the policy and asked about this request."""
        if self.suspended:
            return 0
        if not self.fallback:
            return self.levels + 1
        selects = int(self.policy_calls == self.tree.policy_calls)  # else it failed before the selection
        return min(self.policy_calls - selects, self.levels) + selects


def walk(tree: RoundTree, num_requests: int, next_token: NextToken) -> Walk:
    """Follow the target's token from each root through kept rows, as far as they agree.

    `next_token` is called once per path row, in order. Where it returns -1 the text is over (an accepted token ended
    it) and no bonus token is committed.
    """
    forest = tree.forest
    parent, token, drafted = forest.column("parent"), forest.column("token"), forest.column("drafted")
    on_path = np.zeros(forest.num_rows, dtype=np.bool_)
    match = np.full(forest.num_rows, -1, dtype=np.int8)
    accepted = np.zeros(num_requests, dtype=np.int32)
    drafted_path = np.zeros(num_requests, dtype=np.int32)
    texts: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = []
    for request in range(num_requests):
        row = request
        text: list[int] = []
        path: list[int] = []
        while True:
            path.append(row)
            on_path[row] = True
            if drafted[row] and drafted_path[request] == len(path) - 1:
                drafted_path[request] = len(path)
            truth = next_token(request, row)
            if truth < 0:
                break
            text.append(truth)
            children = np.flatnonzero(parent == row)
            agrees = token[children] == truth
            match[children] = agrees
            taken = children[agrees & tree.kept[children]]
            if not taken.size:
                break
            row = int(taken[0])
            accepted[request] += 1
        texts.append(tuple(text))
        paths.append(tuple(path))
    return Walk(on_path, match, accepted, tuple(texts), drafted_path, tuple(paths))


def build_outcome(tree: RoundTree, context: RoundContext, result: Walk) -> RoundOutcome:
    """The outcome that `observe` is shown."""
    return RoundOutcome(
        nodes=tree.forest.view(),
        context=context,
        kept=tree.kept,
        on_path=result.on_path,
        match=result.match,
        accepted_length=result.accepted_length,
        committed_tokens=np.asarray([len(tokens) for tokens in result.tokens], dtype=np.int32),
    )
