"""The round's builder row by row in plain Python: what `treewise.policy.round` must repeat to the bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.policy.reference_offer import Offer, lookup_signals
from treewise.data.envelope import Envelope, PriorTable
from treewise.policy.draft_ranking import PLAIN, draft_prior, is_proposed
from treewise.policy.forest import Forest
from treewise.policy.hook import (
    DRAFT,
    LOOKUP,
    BoolArray,
    Continuations,
    DraftGuesses,
    DraftSource,
    Expansion,
    ForestView,
    Int32Array,
    Level,
    LookupSource,
    RoundContext,
    TreePolicy,
    UInt8Array,
)
from treewise.policy.round import RoundTree


class ReferenceRoundBuilder:
    """Grows the trees of one round, one row after the other."""

    def __init__(
        self, envelope: Envelope, prior_table: PriorTable, whole_chains: bool = True, ranking: str = PLAIN
    ) -> None:
        self.whole_chains = whole_chains
        self.ranking = ranking
        self.envelope = envelope
        self.prior_table = prior_table
        self.forest = Forest()
        self._known: dict[int, Continuations] = {}  # forest row -> what the lookup said below it
        self._children: dict[int, dict[int, int]] = {}  # forest row -> {token: child row}
        self._paths: dict[int, tuple[int, ...]] = {}

    def build(
        self,
        policy: TreePolicy,
        context: RoundContext,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
    ) -> RoundTree:
        """Grow, then keep. `root_tokens` [requests] and `lookups` follow the order of `context`.

        Exceptions of the policy pass through; wrap it in `ContainedPolicy` to survive them.
        """
        forest = self.forest
        self._open(context, root_tokens, lookups, draft)
        growth_tokens: list[int] = []
        start, index = 0, 0
        while True:
            level = Level(index, start, forest.view(start), forest.view(), context)
            grow = self._admit(policy.expand(level), start)
            index += 1
            if not grow.any():
                break
            start = forest.num_rows
            rows = np.flatnonzero(grow & LOOKUP)
            if rows.size:
                self._offer_lookup(rows.tolist(), lookups, draft, context, index)
            rows = np.flatnonzero(grow & DRAFT)
            if rows.size and draft is not None:
                growth_tokens.append(self._offer_draft(rows.tolist(), draft, context, index))
            self._finish_level(start, draft, context)
            if forest.num_rows == start:
                break
        keep = policy.select(ForestView(forest.view(), context))
        kept = keep & forest.column("admitted")
        kept[: len(root_tokens)] = True
        return RoundTree(forest, close_upward(kept, forest.column("parent")), tuple(growth_tokens), index + 1)

    def depth_limit(self, context: RoundContext, request: int) -> int:
        """Deepest node that may be guessed: the bonus token always has a place among the remaining tokens."""
        return min(self.envelope.max_depth, int(context.remaining_tokens[request]) - 1)

    def _open(
        self,
        context: RoundContext,
        root_tokens: Int32Array,
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
    ) -> None:
        forest = self.forest
        forest.clear()
        self._known.clear()
        self._children.clear()
        self._paths.clear()
        count = len(root_tokens)
        forest.append(count)
        forest.column("request")[:] = np.arange(count)
        forest.column("token")[:] = root_tokens
        forest.column("admitted")[:] = True
        for row in range(count):
            self._children[row] = {}
            self._paths[row] = ()
            lookup = lookups[row]
            bits = 0 if draft is None else DRAFT
            if lookup is not None:
                bits |= LOOKUP
                first = lookup.continuations(())
                forest.column("lookup_match_length")[row] = first.match_length
                forest.column("lookup_count")[row] = first.counts[0] if first.counts else 0
                forest.column("lookup_share")[row] = first.shares[0] if first.shares else 0
                if first.ages:
                    forest.column("lookup_age")[row] = first.ages[0]
            forest.column("may_grow")[row] = bits if self.depth_limit(context, row) > 0 else 0

    def _admit(self, expansion: Expansion, start: int) -> UInt8Array:
        """Write the answer for the rows from `start` on; return the growth bits of every row, [rows]."""
        forest = self.forest
        admitted = forest.column("admitted")
        grow = np.zeros(forest.num_rows, dtype=np.uint8)
        grow[start:] = expansion.grow & forest.column("may_grow")[start:]
        admitted[start:] |= expansion.admit | (expansion.grow > 0)
        if start:
            parent = forest.column("parent")
            for row in range(forest.num_rows - 1, start - 1, -1):  # children first: one pass closes upward
                if admitted[row]:
                    admitted[parent[row]] = True
        forest.column("grown")[start:] = grow[start:]
        return grow

    def _offer_lookup(
        self,
        rows: list[int],
        lookups: Sequence[LookupSource | None],
        draft: DraftSource | None,
        context: RoundContext,
        level: int,
    ) -> None:
        """Offer everything that the lookup alone holds below each of `rows`, within the envelope."""
        offer = Offer.empty()
        base = self.forest.num_rows
        requests, depths = self.forest.column("request"), self.forest.column("depth")
        path_priors = self.forest.column("path_prior")
        floor = self.envelope.min_path_prior
        for top in rows:
            request = int(requests[top])
            lookup = lookups[request]
            assert lookup is not None  # may_grow has no lookup bit without one
            limit = self.depth_limit(context, request)
            queue = deque([(top, self._paths[top], int(depths[top]), float(path_priors[top]))])
            while queue:
                row, path, depth, path_prior = queue.popleft()
                if depth >= limit:  # nothing may be offered below it, and a log need not hold what would follow
                    continue
                known = lookup.continuations(path)
                self._known[row] = known
                siblings = self._children.setdefault(row, {})
                for rank, token in enumerate(known.tokens[: self.envelope.lookup_width]):
                    if token < 0:
                        continue
                    prior = float(np.float32(self.prior_table.prior(known.match_length, known.shares[rank])))
                    below = float(np.float32(path_prior * prior))
                    if below < floor:
                        break
                    child = base + len(offer.token)
                    siblings[token] = child
                    child_path = (*path, token)
                    self._paths[child] = child_path
                    self._children[child] = {}
                    offer.request.append(request)
                    offer.parent.append(row)
                    offer.depth.append(depth + 1)
                    offer.token.append(token)
                    offer.sources.append(LOOKUP)
                    offer.prior.append(prior)
                    offer.path_prior.append(below)
                    offer.match_length.append(known.match_length)
                    offer.count.append(known.counts[rank])
                    offer.share.append(known.shares[rank])
                    offer.age.append(known.ages[rank])
                    offer.rank.append(rank)
                    if self.whole_chains:
                        queue.append((child, child_path, depth + 1, below))
        self._write(offer, level, draft)

    def _offer_draft(self, rows: list[int], draft: DraftSource, context: RoundContext, level: int) -> int:
        """Draft below `rows`, ancestors without draft KV first, in one pass. Returns the tokens that it ran."""
        forest = self.forest
        drafted, parent = forest.column("drafted"), forest.column("parent")
        wanted: set[int] = set()
        for row in rows:
            while row >= 0 and row not in wanted and not drafted[row]:
                wanted.add(row)
                row = int(parent[row])
        run = np.asarray(sorted(wanted), dtype=np.int32)
        tokens = len(run) + sum(int(context.catch_up[row]) for row in run.tolist() if parent[row] < 0)
        extra_rows: list[int] = []
        extra_nodes: list[int] = []
        for place, row in enumerate(run.tolist()):
            for child in self._children[row].values():
                extra_rows.append(place)
                extra_nodes.append(child)
        extras = np.asarray(extra_nodes, dtype=np.int64)
        guesses = draft.grow(
            forest.view(),
            run,
            np.asarray(extra_rows, dtype=np.int32),
            forest.column("token")[extras].astype(np.int32),
        )
        drafted[run] = True
        if extras.size:
            self._fill(extras, guesses)
            forest.column("draft_entropy")[extras] = guesses.entropy[extra_rows]
            forest.column("draft_margin")[extras] = guesses.margin[extra_rows]
            update_path_priors(forest, len(context.request_id))
        offer = Offer.empty()
        drawn = guesses.drawn
        ranks_of = guesses.ranks
        if ranks_of is None:
            ranks_of = np.broadcast_to(np.arange(guesses.tokens.shape[1], dtype=np.float32), guesses.tokens.shape)
        width = self.envelope.draft_width
        offered = is_proposed(self.ranking, width, ranks_of, None if drawn is None else drawn.ranks)
        draft_prior_of = draft_prior(self.ranking, guesses.probs, None if drawn is None else drawn.probs)
        ranks: list[int] = []
        places: list[int] = []
        floor = self.envelope.min_path_prior
        requests, depths = forest.column("request"), forest.column("depth")
        path_priors = forest.column("path_prior")
        base = forest.num_rows
        for place, row in enumerate(run.tolist()):
            request, depth = int(requests[row]), int(depths[row])
            if depth >= self.depth_limit(context, request):
                continue
            siblings = self._children[row]
            known = self._known.get(row)
            for rank in range(guesses.tokens.shape[1]):
                token, prob = int(guesses.tokens[place, rank]), float(draft_prior_of[place, rank])
                if token < 0 or not float(np.float32(path_priors[row] * np.float32(prob))) >= floor:
                    break
                if not offered[place, rank]:
                    continue
                if token in siblings:
                    continue
                child = base + len(offer.token)
                siblings[token] = child
                self._paths[child] = (*self._paths[row], token)
                self._children[child] = {}
                prior = prob
                signals = (np.nan,) * 5
                if known is not None:
                    signals = lookup_signals(known, token)
                    prior = max(prob, float(np.float32(self.prior_table.prior(known.match_length, signals[2]))))
                offer.request.append(request)
                offer.parent.append(row)
                offer.depth.append(depth + 1)
                offer.token.append(token)
                offer.sources.append(DRAFT)
                offer.prior.append(prior)
                offer.path_prior.append(float(np.float32(path_priors[row] * np.float32(prior))))
                for column, value in zip(
                    (offer.match_length, offer.count, offer.share, offer.age, offer.rank), signals, strict=True
                ):
                    column.append(value)
                ranks.append(rank)
                places.append(place)
        self._write(offer, level, None)
        new = slice(base, forest.num_rows)
        forest.column("draft_prob")[new] = guesses.probs[places, ranks]
        forest.column("draft_rank")[new] = ranks_of[places, ranks]
        if drawn is not None:
            forest.column("draft_drawn_prob")[new] = drawn.probs[places, ranks]
            forest.column("draft_drawn_rank")[new] = drawn.ranks[places, ranks]
            forest.column("draft_gap")[new] = drawn.gaps[places, ranks]
        forest.column("draft_entropy")[new] = guesses.entropy[places]
        forest.column("draft_margin")[new] = guesses.margin[places]
        return tokens

    def _fill(self, rows: NDArray[np.int64], guesses: DraftGuesses) -> None:
        """Give rows of the free source the draft's signals; the more confident source sets the prior."""
        column, drawn = self.forest.column, guesses.extra_drawn
        column("draft_prob")[rows] = guesses.extra_probs
        column("draft_rank")[rows] = guesses.extra_ranks
        if drawn is not None:
            column("draft_drawn_prob")[rows] = drawn.probs
            column("draft_drawn_rank")[rows] = drawn.ranks
            column("draft_gap")[rows] = drawn.gaps
        prior = column("prior")
        drawn_probs, drawn_ranks = (None, None) if drawn is None else (drawn.probs, drawn.ranks)
        prior[rows] = np.fmax(prior[rows], draft_prior(self.ranking, guesses.extra_probs, drawn_probs))
        proposed = is_proposed(self.ranking, self.envelope.draft_width, guesses.extra_ranks, drawn_ranks)
        column("sources")[rows] |= np.where(proposed, DRAFT, 0).astype(np.uint8)

    def _write(self, offer: Offer, level: int, draft: DraftSource | None) -> None:
        rows = self.forest.append(len(offer.token))
        column = self.forest.column
        for name in ("request", "parent", "depth", "token", "sources", "prior", "path_prior"):
            column(name)[rows] = getattr(offer, name)
        for name in ("match_length", "count", "share", "age", "rank"):
            column(f"lookup_{name}")[rows] = getattr(offer, name)
        column("level")[rows] = level
        if draft is not None and offer.token:
            column("in_draft_vocab")[rows] = draft.in_vocab(np.asarray(offer.token, dtype=np.int32))

    def _finish_level(self, start: int, draft: DraftSource | None, context: RoundContext) -> None:
        """Price and permission of the new rows, once every ancestor's state is final."""
        forest = self.forest
        parent, drafted, missing = forest.column("parent"), forest.column("drafted"), forest.column("draft_missing")
        path_prior, depth, request = forest.column("path_prior"), forest.column("depth"), forest.column("request")
        may_grow = forest.column("may_grow")
        roots = len(context.request_id)
        has_lookup = [bool(forest.column("may_grow")[row] & LOOKUP) for row in range(roots)]
        for row in range(start, forest.num_rows):
            above = parent[row]
            missing[row] = 0 if drafted[above] else missing[above] + 1
            if depth[row] >= self.depth_limit(context, int(request[row])):
                continue
            bits = 0
            if row not in self._known and has_lookup[request[row]]:
                bits |= LOOKUP
            if draft is not None and path_prior[row] >= self.envelope.min_grow_prior:
                bits |= DRAFT
            may_grow[row] = bits


def update_path_priors(forest: Forest, start: int) -> None:
    """Path priors of the rows from `start` on, each the product of its parent's and its own prior."""
    parent, prior, path = forest.column("parent"), forest.column("prior"), forest.column("path_prior")
    for row in range(start, forest.num_rows):
        if parent[row] >= 0:
            path[row] = path[parent[row]] * prior[row]


def close_upward(keep: BoolArray, parent: Int32Array) -> BoolArray:
    """`keep` [rows] with every ancestor of a kept row kept as well."""
    closed = keep.copy()
    for row in range(len(closed) - 1, -1, -1):
        if closed[row] and parent[row] >= 0:
            closed[parent[row]] = True
    return closed
