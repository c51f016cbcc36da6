"""What the draft model offers below forest rows, and what it says of rows that a free source offered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treewise.data.envelope import Envelope
from treewise.policy.draft_ranking import draft_prior, is_proposed
from treewise.policy.forest import Forest
from treewise.policy.free_growth import FreeGrowth
from treewise.policy.hook import DRAFT, BoolArray, DraftGuesses, DraftSource, Int32Array, RoundContext

IndexArray = NDArray[np.intp]
_NO_ROWS: IndexArray = np.zeros(0, dtype=np.intp)


class DraftGrowth:
    """Runs the draft below rows of the forest and merges its candidates with the free sources' by token."""

    def __init__(self, envelope: Envelope, ranking: str) -> None:
        self.envelope = envelope
        self.ranking = ranking

    def offer(
        self,
        forest: Forest,
        rows: IndexArray,
        draft: DraftSource,
        context: RoundContext,
        limits: Int32Array,
        free: FreeGrowth,
    ) -> int:
        """Draft below `rows`, ancestors without draft KV first, in one pass. Returns the tokens that it ran.

        `limits` [requests] is the deepest node of each request; `free` knows what the free sources have said so far.
        """
        roots = len(limits)
        run = _with_ancestors(forest, rows)
        tokens = len(run) + int(context.catch_up[run[run < roots]].sum())
        extras, places = _children(forest, run, roots) if free.offers else (_NO_ROWS, _NO_ROWS)
        extra_tokens = forest.column("token")[extras]
        guesses = draft.grow(forest.view(), run, places.astype(np.int32), extra_tokens)
        forest.column("drafted")[run] = True
        if extras.size:
            self._fill(forest, extras, places, guesses)
            forest.update_path_priors(roots)
        self._append(forest, run, guesses, (places, extra_tokens), limits, free)
        return tokens

    def _append(
        self,
        forest: Forest,
        run: Int32Array,
        guesses: DraftGuesses,
        taken: tuple[IndexArray, Int32Array],
        limits: Int32Array,
        free: FreeGrowth,
    ) -> None:
        """Append the candidates below `run` that no row holds yet; `taken` are places in `run` and tokens of rows."""
        drawn, column = guesses.drawn, forest.column
        ranks = np.arange(guesses.tokens.shape[1], dtype=np.float32) if guesses.ranks is None else guesses.ranks
        drawn_probs, drawn_ranks = (None, None) if drawn is None else (drawn.probs, drawn.ranks)
        priors = draft_prior(self.ranking, guesses.probs, drawn_probs)
        proposed = is_proposed(self.ranking, self.envelope.draft_width, ranks, drawn_ranks)
        request, depth, path_prior = column("request")[run], column("depth")[run], column("path_prior")[run]
        inside = (path_prior[:, None] * priors).astype(np.float64) >= self.envelope.min_path_prior
        inside &= guesses.tokens >= 0
        # Columns descend by prior, so a row's candidates end at the first that is outside.
        np.logical_and.accumulate(inside, axis=1, out=inside)
        inside &= proposed
        inside &= (depth < limits[request])[:, None]
        place, rank = inside.nonzero()
        token = guesses.tokens[place, rank]
        fresh = _is_new(place, token, *taken)
        if not fresh.all():
            place, rank, token = place[fresh], rank[fresh], token[fresh]
        new = forest.append(len(place))
        parents, prior = run[place], priors[place, rank]
        column("token")[new] = token
        free.fill_in(forest, parents, new, prior)
        forest.write(
            new,
            request=request[place],
            parent=parents,
            depth=depth[place] + 1,
            sources=DRAFT,
            prior=prior,
            path_prior=path_prior[place] * prior,
            draft_prob=guesses.probs[place, rank],
            draft_rank=ranks[rank] if guesses.ranks is None else ranks[place, rank],
            draft_entropy=guesses.entropy[place],
            draft_margin=guesses.margin[place],
        )
        if drawn is not None:
            forest.write(
                new,
                draft_drawn_prob=drawn.probs[place, rank],
                draft_drawn_rank=drawn.ranks[place, rank],
                draft_gap=drawn.gaps[place, rank],
            )

    def _fill(self, forest: Forest, rows: IndexArray, places: IndexArray, guesses: DraftGuesses) -> None:
        """Give rows of a free source the draft's signals; the more confident source sets the prior."""
        column, drawn = forest.column, guesses.extra_drawn
        drawn_probs, drawn_ranks = (None, None) if drawn is None else (drawn.probs, drawn.ranks)
        proposed = is_proposed(self.ranking, self.envelope.draft_width, guesses.extra_ranks, drawn_ranks)
        forest.write(
            rows,
            draft_prob=guesses.extra_probs,
            draft_rank=guesses.extra_ranks,
            draft_entropy=guesses.entropy[places],
            draft_margin=guesses.margin[places],
            prior=np.fmax(column("prior")[rows], draft_prior(self.ranking, guesses.extra_probs, drawn_probs)),
            sources=column("sources")[rows] | proposed * np.uint8(DRAFT),
        )
        if drawn is not None:
            forest.write(rows, draft_drawn_prob=drawn.probs, draft_drawn_rank=drawn.ranks, draft_gap=drawn.gaps)


def _with_ancestors(forest: Forest, rows: IndexArray) -> Int32Array:
    """`rows` and their ancestors without draft KV, ascending."""
    parent = forest.column("parent")
    wanted = np.zeros(forest.num_rows, dtype=np.bool_)
    wanted[rows] = True
    line = rows
    for _ in range(int(forest.column("draft_missing")[rows].max())):
        line = parent[line]
        line = line[line >= 0]
        wanted[line] = True
    wanted &= ~forest.column("drafted")
    return wanted.nonzero()[0].astype(np.int32)


def _children(forest: Forest, run: Int32Array, roots: int) -> tuple[IndexArray, IndexArray]:
    """(rows that are children of `run`, the place of each one's parent in `run`), by place, then by row."""
    place_of = np.empty(forest.num_rows, dtype=np.intp)
    place_of.fill(-1)
    place_of[run] = np.arange(len(run))
    places = place_of[forest.column("parent")[roots:]]
    children = (places >= 0).nonzero()[0]
    places = places[children]
    order = places.argsort(kind="stable")
    return children[order] + roots, places[order]


def _is_new(place: IndexArray, token: Int32Array, taken_place: IndexArray, taken_token: Int32Array) -> BoolArray:
    """Which candidates are neither taken nor repeat an earlier one of the same place, [candidates]."""
    keys = (np.concatenate([taken_place, place]) << 32) + np.concatenate([taken_token, token])
    order = keys.argsort(kind="stable")
    ordered = keys[order]
    again = np.zeros(len(keys), dtype=np.bool_)
    again[order[1:]] = ordered[1:] == ordered[:-1]
    return ~again[len(taken_place) :]
