"""Replay over a completed log: a policy walks the known text on its own roots, lent answers among the logged ones."""

from __future__ import annotations

import math

import numpy as np

from treewise.data.errors import CoverageError
from treewise.policy.contain import ContainedPolicy
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, BoolArray, Deployment, RequestInfo, TreePolicy
from treewise.policy.outcome import build_outcome, walk
from treewise.policy.progress import Progress, build_context
from treewise.policy.round import RoundBuilder, RoundTree
from treewise.training.completed import CompletedRequest, CompletedRound
from treewise.training.donors import DraftDonors
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import digest
from treewise.training.replay_result import ROUND_COLUMNS, ReplayResult, RequestRows, result_of


class CompletedReplayer:
    """Drives one policy through the texts of a log of pruned trees; where the log answers it all, as `Replayer` does.

    Binds on construction, which may raise `PolicyError`.
    """

    def __init__(self, policy: TreePolicy, deployment: Deployment, donors: DraftDonors) -> None:
        self.deployment = deployment
        self.policy = ContainedPolicy(policy, time_limit_ms=math.inf)
        self.policy.bind(deployment)
        self._donors = donors
        self._builder = RoundBuilder(deployment.envelope, deployment.prior_table, ranking=deployment.ranking)
        self._requests: list[LoggedRequest] = []
        self._rows: list[RequestRows] = []
        self._imputed: list[bool] = []
        self.was_lent = False  # whether the last request took an answer of a donor

    def run(self, request: LoggedRequest) -> None:
        """Replay one request from its first root to the end of its text."""
        self.was_lent = False
        number, rows = len(self._requests), RequestRows()
        self._requests.append(request)
        self._rows.append(rows)
        completed = CompletedRequest(request, self._donors, self.deployment.vocab_size)
        self.policy.begin(
            RequestInfo(
                number, request.prompt_tokens, request.max_new_tokens, request.temperature, task=request.told_task
            )
        )
        progress = Progress(number, request.prompt_tokens, request.max_new_tokens, request.temperature)
        while progress.position < request.end_position - 1:
            self._round(completed, progress, rows)
        self.policy.finish(number, request.finish)

    def repeat(self, other: CompletedReplayer) -> None:
        """Take the last request of `other` as it went there: for a policy that no donor lent anything in it."""
        rounds = len(other._rows[-1].rounds)
        self._requests.append(other._requests[-1])
        self._rows.append(other._rows[-1])
        self._imputed.extend(other._imputed[len(other._imputed) - rounds :])

    @property
    def imputed(self) -> BoolArray:
        """[rounds] whether an answer on the text was lent."""
        return np.asarray(self._imputed, dtype=np.bool_)

    def result(self) -> ReplayResult:
        """Everything that was replayed so far; no time of the policy's calls is taken."""
        return result_of([(request.prompt_id, request.task) for request in self._requests], self._rows, 0.0)

    def _round(self, completed: CompletedRequest, progress: Progress, rows: RequestRows) -> None:
        request, position = completed.request, progress.position
        view, context, sources = CompletedRound(completed, position), build_context([progress]), self.deployment.sources
        tree = self._builder.build(
            self.policy,
            context,
            np.asarray([completed.token_at(position)], dtype=np.int32),
            [view if sources & LOOKUP else None],
            view if sources & DRAFT else None,
            [view if sources & RECYCLED else None],
        )
        depth = tree.forest.column("depth")
        result = walk(tree, 1, lambda _, row: completed.token_at(position + int(depth[row]) + 1))
        accepted, committed = int(result.accepted_length[0]), len(result.tokens[0])
        self.policy.observe(build_outcome(tree, context, result))
        decided = int((tree.kept & (result.match >= 0)).sum())
        self._record(rows, tree, position, accepted, committed, decided)
        self._imputed.append(view.is_imputed)
        self.was_lent |= view.is_lent
        drafted_path = int(result.drafted_path[0])
        checkable = (progress.draft_seen, position + drafted_path) if drafted_path else (position, position)
        after = position + committed
        progress.advance(
            accepted,
            committed,
            drafted_path,
            request.draft_agreement(*checkable),
            request.lookup_agreement(position, after),
            *(request.target_state(after) if after in request.rows else (math.nan, math.nan)),
        )

    def _record(
        self, rows: RequestRows, tree: RoundTree, position: int, accepted: int, committed: int, decided: int
    ) -> None:
        values = {
            "round": len(rows.rounds),
            "position": position,
            "accepted_length": accepted,
            "committed_tokens": committed,
            "verified_nodes": tree.num_nodes,
            "decided_nodes": decided,
            "growths": len(tree.growth_tokens),
            "policy_calls": self.policy.round_calls,
            "fallback": int(self.policy.round_fallback),
        }
        rows.rounds.append(tuple(values[name] for name in ROUND_COLUMNS))
        rows.digests.append(digest(tree))
        rows.growth_tokens.extend(tree.growth_tokens)


def check_completable(trace: LoggedTrace) -> None:
    """Raise `CoverageError` where a log of pruned trees cannot be completed."""
    if not trace.manifest.tokens_included:
        raise CoverageError(f"trace {trace.name} must hold token ids for an estimate, got none")
    if trace.manifest.draft_reads == "target_features":
        raise CoverageError(
            f"trace {trace.name} is of a draft that reads the target's features: what it says below a token depends on "
            "the round, so that rounds cannot complete one another; use a dense trace"
        )
