"""Replay: a policy driven from logged trees, in the live engine's order, with the live engine's code."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from treewise.data.errors import CoverageError, require
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, Deployment, RequestInfo, TreePolicy, shares_budget
from treewise.policy.outcome import Walk, build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree
from treewise.training.as_recorded import RecordedRound
from treewise.training.batch_replay import BatchReplay
from treewise.training.logged import LoggedRequest
from treewise.training.logged_sources import LoggedDraft, LoggedLookup, LoggedRecycled
from treewise.training.logged_tree import LoggedTree
from treewise.training.replay_result import ReplayResult, RequestRows, joined_results, result_of
from treewise.training.stored_requests import grouped

Watcher = Callable[[LoggedRequest, int, RoundTree, Walk], None]  # (request, position of the root, tree, walk)
BATCH_REQUESTS = 256  # requests that take their next round in one call of the hook
PROBE_ROUNDS = 32  # first rounds of one request that a policy must decide alone as it did in a batch


class Replayer:
    """Drives one policy through logged requests.

    Binds on construction, which may raise `PolicyError`. Later failures are contained as in the live engine; no clock
    is obeyed. With `as_recorded`, rounds that the log says a fallback finished are taken from it as they are, whether
    or not the policy fails there again. Raises `CoverageError` where a policy asks for what the log does not hold.
    """

    def __init__(
        self, policy: TreePolicy, deployment: Deployment, watch: Watcher | None = None, as_recorded: bool = False
    ) -> None:
        self.deployment = deployment
        self.policy = policy if isinstance(policy, ContainedPolicy) else ContainedPolicy(policy, time_limit_ms=math.inf)
        self.policy.bind(deployment)
        self._watch = watch
        self._as_recorded = as_recorded
        self._builder = RoundBuilder(deployment.envelope, deployment.prior_table, ranking=deployment.ranking)
        self._prompts: list[tuple[str, str]] = []  # (id, task) of each request since the last part
        self._rows: list[RequestRows] = []  # of each of them
        self._parts: list[ReplayResult] = []  # what was replayed before
        self._seconds = 0.0
        has_limit = math.isfinite(self.policy.time_limit_ms)
        alone = watch is not None or as_recorded or has_limit or shares_budget(self.policy.policy)
        self.goes_in_batches = self.policy.state != "session" and not alone  # whether `run_all` does it side by side

    def run(self, request: LoggedRequest) -> None:
        """Replay one request, alone, from its first root to the end of its text."""
        self._alone(self._add(request), request)

    def run_all(
        self,
        requests: Sequence[LoggedRequest],
        advance: Callable[[], None] | None = None,
        batch_requests: int = BATCH_REQUESTS,
    ) -> None:
        """Replay `requests`, up to `batch_requests` of them side by side, with the result of `run` on each in order.

        `advance` is called after each. One at a time go all requests of a watched replay, of a policy of state
        "session" or with a time limit, and those of a group that it decides otherwise in a batch, which the first batch
        shows; a request with recorded suspensions; and, from their beginning, those that are under way when a policy
        fails. Nothing of a group is held once it is over, but its rounds. Raises `ParameterError` where
        `batch_requests` is below 1.
        """
        require(batch_requests >= 1, "batch_requests", "at least 1", batch_requests)
        for group in grouped(requests):
            self._run_group(group, advance, batch_requests)
            self._settle()

    def _run_group(
        self, group: Sequence[LoggedRequest], advance: Callable[[], None] | None, batch_requests: int
    ) -> None:
        numbered = [(self._add(request), request) for request in group]
        done = 0
        has_nodes = len(numbered[0][1].shard.nodes) > 0
        if self.goes_in_batches and has_nodes and min(batch_requests, len(numbered)) > 1:
            done = self._in_batches(numbered, advance, batch_requests)
        if done == len(numbered):
            return
        for place, (number, request) in enumerate(numbered):
            self._alone(number, request)
            request.release()
            if advance is not None and place >= done:
                advance()

    def result(self) -> ReplayResult:
        """Everything that was replayed so far."""
        self._settle()
        return joined_results(self._parts) if self._parts else result_of([], [], 0.0)

    def take_result(self) -> ReplayResult:
        """As `result`, and forget it: requests are counted anew."""
        result = self.result()
        self._parts.clear()
        return result

    def _settle(self) -> None:
        """Put the rounds since the last part into columns, a tenth of what they are as they are driven."""
        if self._rows:
            self._parts.append(result_of(self._prompts, self._rows, self._seconds))
            self._prompts, self._rows, self._seconds = [], [], 0.0

    def _add(self, request: LoggedRequest) -> int:
        ranking = self.deployment.ranking
        rule = f"that of the log of prompt {request.prompt_id}, {request.ranking!r}"
        require(request.ranking == ranking, "deployment.ranking", rule, ranking)
        self._prompts.append((request.prompt_id, request.task))
        self._rows.append(RequestRows())
        return len(self._rows) - 1

    def _in_batches(
        self, numbered: list[tuple[int, LoggedRequest]], advance: Callable[[], None] | None, batch_requests: int
    ) -> int:
        """Replay requests of one shard; how many were done until the policy decided otherwise than alone, if it did."""
        batch = BatchReplay(self.policy.policy, self.deployment, numbered[0][1].columns)
        done = 0
        for driven in batch.drive(numbered, batch_requests):
            number, request, rows = driven.number, driven.request, driven.rows
            if rows is None:
                self._alone(number, request)
            else:
                if driven.is_probe and not self._is_decided_alone(number, request, rows):
                    break
                self._rows[number] = rows
            request.release()
            done += 1
            if advance is not None:
                advance()
        self._seconds += batch.seconds
        return done

    def _is_decided_alone(self, number: int, request: LoggedRequest, rows: RequestRows) -> bool:
        """Whether the policy, alone, decides the first rounds of `request` as it did in a batch, which left `rows`."""
        seconds = self._seconds
        try:
            alone = self._drive(number, request, PROBE_ROUNDS)
        except CoverageError:
            return False
        self._seconds = seconds
        return alone.begins(rows)

    def _alone(self, number: int, request: LoggedRequest) -> None:
        self._rows[number] = self._drive(number, request)

    def _drive(self, number: int, request: LoggedRequest, num_rounds: int | None = None) -> RequestRows:
        """Replay the first rounds of `request`, by default all of them, one at a time."""
        self.policy.begin(
            RequestInfo(
                number, request.prompt_tokens, request.max_new_tokens, request.temperature, task=request.told_task
            )
        )
        progress = Progress(number, request.prompt_tokens, request.max_new_tokens, request.temperature)
        rows = RequestRows()
        while progress.position < request.end_position - 1 and len(rows.rounds) != num_rounds:
            self._round(request, progress, rows)
        self.policy.finish(number, request.finish)
        return rows

    def _round(self, request: LoggedRequest, progress: Progress, rows: RequestRows) -> None:
        position = progress.position
        logged = request.tree(position)
        context = replace(build_context([progress]), batch_size=request.batch_size(position))
        sources = self.deployment.sources
        suspended = request.is_suspended(position)
        recorded = self._as_recorded and request.fell_back(position)
        # A suspension came from a clock, so it is obeyed as recorded.
        deciding: TreePolicy = self.policy.fallback if suspended else self.policy
        tree = self._builder.build(
            RecordedRound(request, position) if recorded else deciding,
            context,
            np.asarray([logged.root_token], dtype=np.int32),
            [LoggedLookup(logged) if sources & LOOKUP else None],
            LoggedDraft(logged, request.draft_width, request.ranking) if sources & DRAFT else None,
            [LoggedRecycled(logged) if sources & RECYCLED else None],
        )
        result = self._walk(request, logged, position, tree)
        accepted, committed = int(result.accepted_length[0]), len(result.tokens[0])
        if not suspended and not request.is_suspended(position + committed):
            self.policy.observe(build_outcome(tree, context, result))
        decided = int((tree.kept & (result.match >= 0)).sum())
        self._record(rows, tree, (position, accepted, committed), decided, suspended, recorded)
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
        self,
        rows: RequestRows,
        tree: RoundTree,
        reached: tuple[int, int, int],
        decided: int,
        suspended: bool,
        recorded: bool,
    ) -> None:
        """Add a round; `reached`: position, accepted length, committed tokens; `decided`: nodes."""
        stood_in = suspended or recorded  # the policy itself was not asked
        calls = 0 if stood_in else self.policy.round_calls
        failed = int(recorded or (not suspended and self.policy.round_fallback))
        counts = (tree.num_nodes, decided, len(tree.growth_tokens), calls, failed)
        rows.rounds.append((len(rows.rounds), *reached, *counts))
        rows.digests.append(digest(tree))
        rows.growth_tokens.extend(tree.growth_tokens)
        self._seconds += 0.0 if stood_in else self.policy.round_ms / 1000.0


def replay(
    policy: TreePolicy,
    requests: Sequence[LoggedRequest],
    deployment: Deployment,
    advance: Callable[[], None] | None = None,
    batch_requests: int = BATCH_REQUESTS,
) -> ReplayResult:
    """Replay `policy` on `requests`, `batch_requests` of them side by side; `advance` is called after each of them.

    The result does not depend on `batch_requests`. The envelope of `deployment` cuts what the policy asks beyond it, as
    it would live; `ab` refuses such a policy (`check_reach`), because a wider log could have shown more. Raises
    `CoverageError` and, from `bind`, `PolicyError`.
    """
    replayer = Replayer(policy, deployment)
    replayer.run_all(requests, advance, batch_requests)
    return replayer.result()


def digest(tree: RoundTree) -> int:
    """64 bits over the shape of a tree of one request and its admitted, grown and kept rows."""
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
