"""The learned policy with one verify budget for the batch: what the whole pass pays for, spent where it is surest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from treewise.data.errors import require
from treewise.policy.budget import Float64Array, best_prefix, verify_curve
from treewise.policy.bundle import Bundle
from treewise.policy.hook import BoolArray, ForestView, RoundContext
from treewise.policy.learned import Compiled, LearnedPolicy, ScorerName


class SharedBudgetPolicy(LearnedPolicy):
    """Keeps the rows of the batch that are expected to save the most time, as many as their common pass is worth.

    A place in the batch is what requests compete for: a token spares its request 1 / rate milliseconds of that place,
    `rate` being the tokens per millisecond that the request comes to. So rows rank by survival over rate, those of all
    requests together, and their number is chosen once, on the price of the pass that they really make; `LearnedPolicy`
    prices each request's rows as though its mates did alike. Ranked by survival alone, requests that are fast anyway
    would take the rows of slow ones, which then hold the batch up. Growths are decided request by request. Alone, a
    request is decided as `LearnedPolicy` decides it, unless the number of nodes is given.
    """

    shares_budget = True

    def __init__(
        self,
        bundle: Bundle,
        scorer: ScorerName = "auto",
        folder: str | Path = "",
        compiled: Compiled = "auto",
        nodes: int = 0,
    ) -> None:
        """As the learned policy; `nodes`: so many for each request of the batch, 0: what the pass pays for."""
        require(isinstance(nodes, int) and nodes >= 0, "nodes", "a whole number >= 0", nodes)
        super().__init__(bundle, scorer, folder, compiled)
        self.nodes = nodes

    @property
    def spec(self) -> str:
        """The spec string that makes this policy again, without a number of nodes."""
        return f"shared:{self._folder}"

    def select(self, forest: ForestView) -> BoolArray:
        """The rows of all requests that save the most after the price of the pass."""
        nodes, context = forest.nodes, forest.context
        requests = len(context.request_id)
        if not self.nodes and (requests == 1 or self._bound.cost.requests > 1):
            return super().select(forest)
        # What a token saves: a request's rate is in tokens per millisecond of its share of the batch.
        each_ms = np.asarray([1.0 / own.rate for own in self._scores.prices])
        saved_ms = self._survival(nodes, context) * each_ms[nodes.request]
        keep = np.asarray(nodes.parent < 0).copy()
        rows = np.flatnonzero(nodes.admitted & ~keep)
        order = rows[np.argsort(-saved_ms[rows], kind="stable")]
        most = self.nodes * requests if self.nodes else self._worth(saved_ms[order], context)
        keep[order[:most]] = True
        return keep

    def _worth(self, saved_ms: Float64Array, context: RoundContext) -> int:
        """How many of the nodes that save `saved_ms` [n], sorted downward, the pass of the whole batch is worth."""
        roots = len(context.request_id)
        curve = verify_curve(self._bound, roots - 1 + len(saved_ms), int(context.position.max()))
        return best_prefix(saved_ms, curve[roots - 1 :], self.settings.prune_scale)
