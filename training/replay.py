"""Replay: a policy driven from logged trees, in the live engine's order, with the live engine's code."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from treewise.data.errors import CoverageError
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, LOOKUP, Deployment, RequestInfo, TreePolicy
from treewise.policy.outcome import Walk, build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree
from treewise.training.logged import LoggedDraft, LoggedLookup, LoggedRequest, LoggedTree
from treewise.training.replay_result import ReplayResult

Watcher = Callable[[LoggedRequest, int, RoundTree, Walk], None]  # (request, position of the root, tree, walk)
_COLUMNS = ("request", "round", "position", "accepted_length", "committed_tokens", "verified_nodes", "growths")


class Replayer:
    """Drives one policy through logged requests, a batch of one at a time.

    Binds on construction, which may raise `PolicyError`. Later failures are contained as in the live engine; no clock
    is obeyed. Raises `CoverageError` where a policy asks for what the log does not hold.
    """

    def __init__(self, policy: TreePolicy, deployment: Deployment, watch: Watcher | None = None) -> None:
        self.deployment = deployment
        self.policy = policy if isinstance(policy, ContainedPolicy) else ContainedPolicy(policy, time_limit_ms=math.inf)
        self.policy.bind(deployment)
        self._watch = watch
        self._builder = RoundBuilder(deployment.envelope, deployment.prior_table)
        self._columns: dict[str, list[int]] = {name: [] for name in (*_COLUMNS, "policy_calls", "fallback", "digest")}
        self._growth_tokens: list[int] = []
        self._requests: list[LoggedRequest] = []
        self._seconds = 0.0

    def run(self, request: LoggedRequest) -> None:
        """Replay one request from its first root to the end of its text."""
        number = len(self._requests)
        self._requests.append(request)
        self.policy.begin(
            RequestInfo(number, request.prompt_tokens, request.max_new_tokens, temperature=request.temperature)
        )
        progress = Progress(number, request.prompt_tokens, request.max_new_tokens, request.temperature)
        index = 0
        while progress.position < request.end_position - 1:
            self._round(request, progress, index)
            index += 1
        self.policy.finish(number, request.finish)

    def result(self) -> ReplayResult:
        """Everything that was replayed so far."""
        columns = {name: np.asarray(self._columns[name], dtype=np.int32) for name in (*_COLUMNS, "policy_calls")}
        return ReplayResult(
            **columns,
            growth_offsets=np.concatenate([[0], np.cumsum(columns["growths"], dtype=np.int64)]),
            growth_tokens=np.asarray(self._growth_tokens, dtype=np.int32),
            fallback=np.asarray(self._columns["fallback"], dtype=np.bool_),
            digest=np.asarray(self._columns["digest"], dtype=np.uint64),
            prompt_id=np.asarray([request.prompt_id for request in self._requests], dtype=np.str_),
            task=np.asarray([request.task for request in self._requests], dtype=np.str_),
            policy_seconds=self._seconds,
        )

    def _round(self, request: LoggedRequest, progress: Progress, index: int) -> None:
        position = progress.position
        logged = request.tree(position)
        context = build_context([progress])
        has_lookup, has_draft = self.deployment.sources & LOOKUP, self.deployment.sources & DRAFT
        suspended = request.is_suspended(position)
        tree = self._builder.build(
            # A suspension came from a clock, so it is obeyed as recorded.
            self.policy.fallback if suspended else self.policy,
            context,
            np.asarray([logged.root_token], dtype=np.int32),
            [LoggedLookup(logged) if has_lookup else None],
            LoggedDraft(logged, request.draft_width) if has_draft else None,
        )
        result = self._walk(request, logged, position, tree)
        accepted, committed = int(result.accepted_length[0]), len(result.tokens[0])
        if not suspended and not request.is_suspended(position + committed):
            self.policy.observe(build_outcome(tree, context, result))
        self._record(progress, index, tree, (accepted, committed), suspended)
        if self._watch is not None:
            self._watch(request, position, tree, result)
        drafted_path = int(result.drafted_path[0])
        checkable = (progress.draft_seen, position + drafted_path) if drafted_path else (position, position)
        progress.advance(
            accepted,
            committed,
            drafted_path,
            request.draft_agreement(*checkable),
            request.lookup_agreement(position, position + committed),
            *request.target_state(position + committed),
        )

    @staticmethod
    def _walk(request: LoggedRequest, logged: LoggedTree, position: int, tree: RoundTree) -> Walk:
        depth, token = tree.forest.column("depth"), tree.forest.column("token")
        return walk(tree, 1, lambda _, row: request.token_after(logged, position, int(depth[row]), int(token[row])))

    def _record(
        self, progress: Progress, index: int, tree: RoundTree, lengths: tuple[int, int], suspended: bool
    ) -> None:
        accepted, committed = lengths
        values = (
            progress.request_id,
            index,
            progress.position,
            accepted,
            committed,
            tree.num_nodes,
            len(tree.growth_tokens),
            0 if suspended else self.policy.round_calls,
            int(not suspended and self.policy.round_fallback),
            digest(tree),
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        self._growth_tokens.extend(tree.growth_tokens)
        self._seconds += 0.0 if suspended else self.policy.round_ms / 1000.0


def replay(
    policy: TreePolicy,
    requests: Sequence[LoggedRequest],
    deployment: Deployment,
    advance: Callable[[], None] | None = None,
) -> ReplayResult:
    """Replay `policy` on `requests`, in order; `advance` is called after each of them.

    The envelope of `deployment` cuts what the policy asks beyond it, as it would live; `ab` refuses such a policy
    (`check_reach`), because a wider log could have shown more. Trees that the requests built are kept only while their
    request runs. Raises `CoverageError` and, from `bind`, `PolicyError`.
    """
    replayer = Replayer(policy, deployment)
    for request in requests:
        replayer.run(request)
        request.release()
        if advance is not None:
            advance()
    return replayer.result()


def digest(tree: RoundTree) -> int:
    """64 bits over the tree's shape and the admitted, grown and kept rows."""
    column = tree.forest.column
    parts = (column("parent"), column("admitted"), column("grown"), tree.kept)
    return int.from_bytes(hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=8).digest(), "big")


def check_reach(policy: TreePolicy, deployment: Deployment, name: str) -> None:
    """Raise `CoverageError`, in words, where the bound `policy` may ask for more than the deployment's envelope."""
    reach, envelope = policy.reach, deployment.envelope
    gaps = []
    if reach.depth > envelope.max_depth:
        gaps.append(f"nodes of depth {reach.depth} where the log ends at {envelope.max_depth}")
    if reach.draft_width > envelope.draft_width:
        gaps.append(f"{reach.draft_width} draft candidates below a node where the log holds {envelope.draft_width}")
    if gaps:
        raise CoverageError(f"policy {name} may ask for {' and '.join(gaps)}: use a trace with a wider envelope")
