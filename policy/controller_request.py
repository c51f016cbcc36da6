"""One request of a controller: its text, its memory between rounds, and the tree that waits for the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treewise.data.errors import ParameterError, require
from treewise.data.suffix import SuffixIndex
from treewise.policy.contain import ContainedPolicy
from treewise.policy.controller_draft import CalledDraft
from treewise.policy.controller_tree import AcceptedStep, Draft, ProposedTree, propose_tree
from treewise.policy.counters import ScoringPolicy
from treewise.policy.hook import Deployment, RoundContext
from treewise.policy.outcome import RoundRecord, build_outcome, walk
from treewise.policy.progress import Progress, append_committed, build_context, check_guesses
from treewise.policy.round import RoundBuilder, RoundTree

if TYPE_CHECKING:
    from treewise.policy.record import LiveRecorder

NAN = float("nan")


@dataclass(slots=True)
class _Waiting:
    """A proposed tree that waits for the target's tokens."""

    tree: RoundTree
    context: RoundContext
    proposed: ProposedTree
    expected: NDArray[Any]  # [forest rows] match probabilities: the policy's own, or the priors


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """What one `accept` brought; the record is valid until the request's next round."""

    accepted: AcceptedStep
    record: RoundRecord
    expected: NDArray[Any]  # [forest rows]
    unhealthy_rows: int  # rows of draft calls whose probabilities were not finite


@dataclass(slots=True)
class OpenRequest:
    """One request between `begin` and `finish`."""

    progress: Progress
    text: list[int]  # prompt and committed tokens
    index: SuffixIndex | None
    policy: ContainedPolicy  # its own, so that a suspension is this request's alone
    builder: RoundBuilder  # its own, so that a proposed tree outlives other requests' rounds
    draft: CalledDraft | None
    recorder: LiveRecorder | None
    deployment: Deployment
    eos_token_ids: tuple[int, ...]
    num_rounds: int = 0
    num_failures: int = 0  # of the policy, counted so far
    recorded_failures: int = 0  # of the policy, in the records so far
    finish: str = ""
    waiting: _Waiting | None = None

    def propose(self, draft: Draft | None) -> ProposedTree:
        """Grow a tree. See `Controller.propose`."""
        request = self.progress.request_id
        require(not self.finish, "request", "unfinished", f"{request}, at its end by {self.finish!r}")
        require(self.waiting is None, "propose", "called once before accept or withdraw", f"two calls of {request}")
        if self.draft is None:
            require(draft is None, "draft", "None where sources lack DRAFT", draft)
        elif draft is None or not callable(draft):
            raise ParameterError(f"draft must be a callable where sources hold DRAFT, got {draft!r}")
        else:
            self.draft.open(draft, self.text[self.progress.draft_seen : -1], self.progress.position)
        context = build_context([self.progress])
        root = np.asarray(self.text[-1:], dtype=np.int32)
        tree = self.builder.build(self.policy, context, root, [self.index], self.draft)
        padded = self.deployment.padded_rows(int(tree.kept.sum()))
        proposed = propose_tree(tree, request, self.progress.position, padded)
        self.waiting = _Waiting(tree, context, proposed, self._expected(tree))
        return proposed

    def withdraw(self) -> None:
        """Forget the tree that waits, if there is one."""
        self.waiting = None

    def accept(
        self, chosen: ArrayLike, target_entropy: ArrayLike | None, target_margin: ArrayLike | None, verify_ms: float
    ) -> FinishedRound:
        """Commit what the target says. See `Controller.accept`. Everything that may raise comes before any change."""
        waiting, policy, progress = self.waiting, self.policy, self.progress
        if waiting is None:
            raise ParameterError(f"accept must follow propose, got request {progress.request_id} without a tree")
        tree, proposed = waiting.tree, waiting.proposed
        tokens = per_row("chosen", chosen, proposed, "iu")
        entropies = per_row("target_entropy", target_entropy, proposed, "iuf")
        margins = per_row("target_margin", target_margin, proposed, "iuf")
        spent_ms = float(verify_ms)
        place_of = {row: place for place, row in enumerate(np.flatnonzero(tree.kept).tolist())}
        result = walk(tree, 1, lambda _, row: self._said(int(tokens[place_of[row]]), place_of[row], proposed))

        committed = result.tokens[0]
        path = result.path_rows[0][: len(committed)]  # an accepted end of text is the new root, not before it
        said_by = place_of[path[-1]]  # the row whose distribution gave the new root
        drafted_path, agrees_from = int(result.drafted_path[0]), progress.draft_seen
        lookup_agrees = (-1,) * len(committed)
        if self.index is not None:
            lookup_agrees = tuple(append_committed(self.index, committed))
        self.text.extend(committed)
        draft_ms, unhealthy = 0.0, 0
        draft_places: tuple[int, ...] = ()
        draft_agrees: tuple[int, ...] = ()
        if self.draft is not None:
            draft_ms, unhealthy = self.draft.draft_ms, self.draft.num_unhealthy
            draft_places = self.draft.settle(path)
            draft_agrees = check_guesses(progress, self.text, drafted_path, self.draft.first_guess)
        policy.observe(build_outcome(tree, waiting.context, result))
        progress.advance(
            int(result.accepted_length[0]),
            len(committed),
            drafted_path,
            draft_agrees,
            lookup_agrees,
            float(entropies[said_by]),
            float(margins[said_by]),
        )
        if len(result.path_rows[0]) > len(committed) or committed[-1] in self.eos_token_ids:
            self.finish = "eos"
        elif progress.remaining_tokens <= 0:
            self.finish = "length"
        record = RoundRecord(
            index=self.num_rounds,
            context=waiting.context,
            tree=tree,
            walk=result,
            committed=committed,
            draft_agrees=draft_agrees,
            agrees_from=agrees_from,
            lookup_agrees=lookup_agrees,
            root_token=int(proposed.tokens[0]),
            fallback=policy.round_fallback,
            suspended=policy.round_suspended,
            draft_ms=draft_ms,
            verify_ms=spent_ms,
            policy_ms=policy.round_ms,
            policy_calls=policy.round_calls,
            policy_failures=policy.num_failures - self.recorded_failures,
            verify_rows=proposed.padded_rows,
            finish=self.finish,
            growth_tokens=tree.growth_tokens,
        )
        if self.recorder is not None:
            self.recorder.add(record)
        self.recorded_failures = policy.num_failures
        self.num_rounds += 1
        self.waiting = None
        places = tuple(place_of[row] for row in path)
        step = AcceptedStep(
            progress.request_id, committed, places, draft_places, int(result.accepted_length[0]), self.finish
        )
        return FinishedRound(step, record, waiting.expected, unhealthy)

    def _said(self, token: int, place: int, proposed: ProposedTree) -> int:
        """The target's token below row `place` of the tree, -1 where the text is over."""
        if place and int(proposed.tokens[place]) in self.eos_token_ids:
            return -1
        size = self.deployment.vocab_size
        if not (-1 if place else 0) <= token < size:
            where = f"row {place}" if place else "the root"
            raise ParameterError(f"chosen must be a token id between 0 and {size - 1} below {where}, got {token}")
        return token

    def _expected(self, tree: RoundTree) -> NDArray[Any]:
        """What each row's match probability is thought to be, [forest rows]."""
        policy = self.policy
        if isinstance(policy.policy, ScoringPolicy) and not (policy.round_fallback or policy.round_suspended):
            own = np.array(policy.policy.round_match)
            if own.shape == (tree.forest.num_rows,):
                return own
        return tree.forest.column("prior").copy()


def per_row(name: str, values: ArrayLike | None, proposed: ProposedTree, kinds: str) -> NDArray[Any]:
    """`values` as an array, [rows] or [padded rows], of a numpy dtype kind among `kinds`; NaN for None.

    Raises `ParameterError` on another shape or type.
    """
    if values is None and "f" in kinds:
        return np.full(proposed.num_rows, NAN)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be one number per row of the tree: {error}") from error
    shapes = [(proposed.num_rows,), (proposed.padded_rows,)]
    if array.shape not in shapes:
        rule = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ParameterError(f"{name} must be of shape {rule}, one number per row of the tree, got {list(array.shape)}")
    require(
        array.dtype.kind in kinds, name, f"of {'a number' if 'f' in kinds else 'an integer'} type", str(array.dtype)
    )
    return array
