"""The path oracle: the least time in which any policy could have committed the logged text from the logged trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treewise.policy.hook import LOOKUP, Deployment
from treewise.training.logged import LoggedRequest


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
    the fewest draft growths that offer it: one per node that the lookup does not offer, none for the rest. Which
    prefix is best depends on where the round leaves the root, so the rounds are chosen together, by a shortest path
    over positions. It pays no policy calls and no catch-up tokens. Raises `CoverageError` where a position is missing.
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
    needs_draft = (nodes.sources[rows][path] & LOOKUP) == 0
    lengths = np.arange(len(path) + 1)
    verify = cost.verify_ms([deployment.padded_rows(1 + length) for length in lengths.tolist()], position)
    growth_tokens = np.diff(np.flatnonzero(needs_draft) + 1, prepend=0)  # from the row last drafted to the parent
    spent = np.zeros(len(path) + 1)
    if growth_tokens.size:
        spent[1:][needs_draft] = cost.draft_ms(growth_tokens, position)
    ms = cost.round_ms + verify + np.cumsum(spent)
    growths = np.concatenate([[0], np.cumsum(needs_draft)])
    return [_Choice(*parts) for parts in zip(lengths.tolist(), growths.tolist(), ms.tolist(), strict=True)]
