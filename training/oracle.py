"""Oracles: what a policy could have done had it known the text.

The path oracle takes the least time in which any policy could have committed the logged text from the logged trees; the
depth oracle keeps a policy's own trees and knows only how deep to grow each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treewise.policy.hook import DRAFT, FREE, Deployment
from treewise.policy.outcome import Walk
from treewise.policy.round import RoundTree
from treewise.training.logged import LoggedRequest
from treewise.training.replay_result import ReplayResult


@dataclass(frozen=True, slots=True)
class OracleRun:
    """One request, decoded by the oracle."""

    rounds: int
    tokens: int
    nodes: int  # verified
    growths: int  # forward passes of the draft
    ms: float  # modelled


@dataclass(frozen=True, slots=True)
class _Choice:
    """One way to spend a round: verify the first `length` nodes of the true path."""

    length: int
    growths: int
    ms: float  # the round alone


def oracle_run(request: LoggedRequest, deployment: Deployment) -> OracleRun:
    """Decode a densely logged request in the least modelled time; an upper bound on every policy's speed.

    The oracle knows the text. In each round it verifies a prefix of the true path that the log's tree holds, and pays
    the fewest draft growths that offer it: one per node that no free source offers, none for the rest. Nodes that only
    sources outside the deployment's offered do not exist for it. Which prefix is best depends on where the round leaves
    the root, so the rounds are chosen together, by a shortest path over positions. It pays no policy calls and no
    catch-up tokens. Raises `CoverageError` where a position is missing.
    """
    last = request.end_position - 1
    count = last - request.first_position
    best = np.zeros(count + 1, dtype=np.float64)  # milliseconds from each position to the end of the text
    taken: list[_Choice] = []
    for position in range(last - 1, request.first_position - 1, -1):
        place = position - request.first_position
        choices = _choices(request, position, deployment)
        totals = [choice.ms + best[min(place + choice.length + 1, count)] for choice in choices]
        chosen = int(np.argmin(totals))
        best[place] = totals[chosen]
        taken.append(choices[chosen])
    taken.reverse()
    rounds = nodes = growths = place = 0
    while place < count:
        choice = taken[place]
        rounds, nodes, growths = rounds + 1, nodes + choice.length, growths + choice.growths
        place += choice.length + 1
    return OracleRun(rounds, count, nodes, growths, float(best[0]))


def _choices(request: LoggedRequest, position: int, deployment: Deployment) -> list[_Choice]:
    """Every prefix of the true path below the root at `position`, the empty one first."""
    cost, nodes = deployment.cost, request.shard.nodes
    rows = request.node_rows(request.row_at(position))
    path = np.flatnonzero(nodes.survives[rows])  # rows are sorted parents first: depths 1, 2, ...
    path = path[nodes.depth[rows][path] <= deployment.envelope.max_depth]
    offered = nodes.sources[rows][path] & deployment.sources  # the log may hold more sources than there are here
    reached = int(np.logical_and.accumulate(offered > 0).sum())
    path, needs_draft = path[:reached], (offered[:reached] & FREE) == 0
    lengths = np.arange(len(path) + 1)
    verify = cost.verify_ms([deployment.padded_rows(1 + length) for length in lengths.tolist()], position)
    growth_tokens = np.diff(np.flatnonzero(needs_draft) + 1, prepend=0)  # from the row last drafted to the parent
    spent = np.zeros(len(path) + 1)
    if growth_tokens.size:
        spent[1:][needs_draft] = cost.draft_ms(growth_tokens, position)
    ms = cost.round_ms + verify + np.cumsum(spent)
    growths = np.concatenate([[0], np.cumsum(needs_draft)])
    return [_Choice(*parts) for parts in zip(lengths.tolist(), growths.tolist(), ms.tolist(), strict=True)]


def depth_oracle(name: str) -> str:
    """What the depth oracle of the policy `name` is called."""
    return f"depth oracle of {name}"


class DepthOracle:
    """Watches a replay and cuts each of the policy's trees at the depth that was accepted: right depth, own width.

    Cutting there keeps the accepted path, so every round commits the same tokens and the next round starts at the same
    root: the rounds are those of the replay. A cut round verifies the kept nodes down to the accepted depth, runs the
    draft growths that offered something down to it, and makes the policy calls of those levels; a round that accepted
    nothing becomes plain decoding.

    Assumes that a policy's later rounds would not change: growths left out would have had the draft see fewer tokens,
    and catch-up tokens are charged as they were replayed. It bounds what better depth decisions can bring to this
    policy; it is no bound on trees of another shape, nor on paying for less than the whole accepted path.
    """

    def __init__(self) -> None:
        self._nodes: list[int] = []  # [rounds] verified nodes of the cut tree
        self._decided: list[int] = []  # [rounds] those of them below the path
        self._needed: list[bool] = []  # [growths in all] whether the cut tree makes the growth

    def watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        """Take one round, in the order of replay; a `Watcher`."""
        column = tree.forest.column
        depth, accepted = column("depth"), int(walk.accepted_length[0])
        cut = tree.kept & (depth > 0) & (depth <= accepted)
        self._nodes.append(int(cut.sum()))
        self._decided.append(int((cut & (walk.match >= 0)).sum()))
        drafted = (column("grown") & DRAFT) > 0
        level = column("level")[drafted]
        # One growth a level, in order; what it brings lies one below the shallowest row that it ran on, or deeper.
        self._needed.extend(int(depth[drafted][level == one].min()) < accepted for one in np.unique(level).tolist())

    def cut(self, result: ReplayResult) -> ReplayResult:
        """What the oracle did in the rounds of `result`, all of which it has watched."""
        needed = np.asarray(self._needed, dtype=np.bool_)
        assert len(self._nodes) == len(result) and len(needed) == len(result.growth_tokens), "every round is watched"
        growth_round = np.repeat(np.arange(len(result)), result.growths)
        growths = np.bincount(growth_round[needed], minlength=len(result)).astype(np.int32)
        return replace(
            result,
            verified_nodes=np.asarray(self._nodes, dtype=np.int32),
            decided_nodes=np.asarray(self._decided, dtype=np.int32),
            growths=growths,
            growth_offsets=np.concatenate([[0], np.cumsum(growths, dtype=np.int64)]),
            growth_tokens=result.growth_tokens[needed],
            policy_calls=np.maximum(
                result.policy_calls - (result.growths - growths), np.minimum(result.policy_calls, 2)
            ),
        )
