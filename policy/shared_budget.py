"""The learned policy with one budget for the batch: passes that all pay for, spent where they save the most."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from treewise.data.errors import require
from treewise.policy.budget import Float64Array, best_prefix, verify_curve
from treewise.policy.bundle import Bundle
from treewise.policy.hook import DRAFT, BoolArray, Expansion, ForestView, Level, RoundContext
from treewise.policy.joint_growth import BatchPrices, grow_together
from treewise.policy.learned import Compiled, LearnedPolicy, ScorerName
from treewise.policy.planner import PLANNED_LEVELS, IndexArray


class SharedBudgetPolicy(LearnedPolicy):
    """Keeps the rows of the batch that are expected to save the most time, as many as their common pass is worth.

    A place in the batch is what requests compete for: a token spares its request 1 / rate milliseconds of that place,
    `rate` being the tokens per millisecond that the request comes to. So rows rank by survival over rate, those of all
    requests together, and their number is chosen once, on the price of the pass that they really make; `LearnedPolicy`
    prices each request's rows as though its mates did alike. Ranked by survival alone, requests that are fast anyway
    would take the rows of slow ones, which then hold the batch up. Draft passes are the batch's too: `LearnedPolicy`
    charges each request its even share of a pass, as though its mates asked for it as well, while one that few ask for
    costs just as much; here it must be worth its whole price to those who ask. Alone, a request is decided as
    `LearnedPolicy` decides it, unless the number of nodes is given.
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

    def expand(self, level: Level) -> Expansion:
        """What `LearnedPolicy` admits and asks of free sources; the draft runs where all requests together want it."""
        answer = super().expand(level)
        if self._is_alone(level.context) or not self._bound.sources & DRAFT:
            return answer
        rows = self._growths_of_the_batch(level)
        grow = answer.grow & ~np.uint8(DRAFT)
        grow[rows - level.start] |= np.uint8(DRAFT)
        return Expansion(answer.admit | (grow > 0), grow)

    def select(self, forest: ForestView) -> BoolArray:
        """The rows of all requests that save the most after the price of the pass."""
        nodes, context = forest.nodes, forest.context
        requests = len(context.request_id)
        if not self.nodes and self._is_alone(context):
            return super().select(forest)
        saved_ms = self._survival(nodes, context) * self._token_ms[nodes.request]
        keep = np.asarray(nodes.parent < 0).copy()
        rows = np.flatnonzero(nodes.admitted & ~keep)
        order = rows[np.argsort(-saved_ms[rows], kind="stable")]
        most = self.nodes * requests if self.nodes else self._worth(saved_ms[order], context)
        keep[order[:most]] = True
        return keep

    def _is_alone(self, context: RoundContext) -> bool:
        """Whether there is nobody to share with, or the profile states shares already."""
        return len(context.request_id) == 1 or self._bound.cost.requests > 1

    @property
    def _token_ms(self) -> Float64Array:
        """What a token saves each request of the round, [requests]: its rate is per millisecond of its share."""
        return np.asarray([1.0 / own.rate for own in self._scores.prices])

    def _growths_of_the_batch(self, level: Level) -> IndexArray:
        """Forest rows of all requests to run the draft on."""
        forest, context, scores, settings = level.forest, level.context, self._scores, self.settings
        token_ms, prices = self._token_ms, BatchPrices.of(self._bound, context, settings.prune_scale)
        if level.index == 0:
            rows = (level.candidates.may_grow & DRAFT).nonzero()[0]
            saved_ms, scale = token_ms[forest.request], settings.opening_scale
            known_ms = (self._first_match(level) ** np.arange(1, PLANNED_LEVELS + 1)[:, None] * token_ms).ravel()
        else:
            survival = self._survival(forest, context)
            _, rows = self._bound_weighing.admission(scores, survival, level)
            saved_ms, scale = survival * token_ms[forest.request], settings.growth_scale
            known_ms = saved_ms[len(token_ms) :]
        return grow_together(
            saved_ms, scores.holds, rows, forest, context, self._bound.envelope.max_depth,
            prices.of_rows(known_ms), prices, scale,
        )  # fmt: skip

    def _first_match(self, level: Level) -> Float64Array:
        """What the free sources are likely to offer below each root: the prior of the surest token, [requests]."""
        roots, table = level.candidates, self._bound.prior_table
        offers = zip(roots.lookup_match_length.tolist(), roots.lookup_share.tolist(), strict=True)
        looked_up = [table.prior(int(length), share) if length > 0 and share > 0 else 0.0 for length, share in offers]
        return np.asarray(np.fmax(looked_up, roots.recycled_prob.astype(np.float64)), dtype=np.float64)

    def _worth(self, saved_ms: Float64Array, context: RoundContext) -> int:
        """How many of the nodes that save `saved_ms` [n], sorted downward, the pass of the whole batch is worth."""
        roots = len(context.request_id)
        curve = verify_curve(self._bound, roots - 1 + len(saved_ms), int(context.position.max()))
        return best_prefix(saved_ms, curve[roots - 1 :], self.settings.prune_scale)
