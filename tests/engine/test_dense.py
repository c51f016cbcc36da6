"""Dense traces carry what live rounds at the same roots carry, and cover them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.tiny import DRAFTS, NARROW, VOCAB, Draft, RandomPolicy, example_cost, lax_settings, tiny_pair
from treewise.data.envelope import PriorTable
from treewise.data.errors import ParameterError, PromptError
from treewise.data.suffix import SuffixIndex
from treewise.data.trace_schema import NodeTable, Rounds, TraceShard
from treewise.engine.decode import Engine, RoundRecord
from treewise.engine.dense import KnownText, grow_dense
from treewise.engine.pair import Pair
from treewise.engine.record import NODE_SIGNALS
from treewise.engine.sampling import Sampling
from treewise.policy.everything import EverythingPolicy
from treewise.policy.hook import DRAFT, LOOKUP, RECYCLED, TreePolicy

PROMPT = [3, 7, 1, 9, 3, 7, 1, 9, 3, 7]
LIMIT = 18
Path = tuple[int, ...]
DRAFT_SIGNALS = ("draft_prob", "draft_entropy", "draft_margin")


def live_rounds(pair: Pair, policy: TreePolicy, sampling: Sampling) -> Iterator[RoundRecord]:
    return Engine(pair, policy, example_cost(), lax_settings()).rounds(PROMPT, LIMIT, sampling)


def dense_of(pair: Pair, completion: list[int], sampling: Sampling, chunk: int = 5) -> tuple[Rounds, NodeTable]:
    text = KnownText(
        "p", "chat", tuple(PROMPT), tuple(completion), LIMIT, "length", sampling.temperature, sampling.seed
    )
    tables = grow_dense(pair, text, NARROW.widened(), PriorTable(), chunk)
    TraceShard(*tables).check()
    return tables


def by_path(nodes: NodeTable, number: int) -> dict[Path, int]:
    """Row of each candidate of round `number`, by its path."""
    rows = np.flatnonzero(nodes.round == number)
    paths: dict[int, Path] = {0: ()}
    found = {}
    for row in rows.tolist():
        path = (*paths[int(nodes.parent[row])], int(nodes.token[row]))
        paths[int(nodes.node[row])] = path
        found[path] = row
    return found


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("policy", [EverythingPolicy(), RandomPolicy(2, 0.8)])
def test_a_dense_tree_holds_every_live_one_with_the_same_signals(draft: Draft, policy: TreePolicy) -> None:
    pair = tiny_pair(draft, seed=3)
    sampling = Sampling(0.8, seed=21)
    live: list[tuple[int, dict[Path, dict[str, float]], list[float], dict[int, int], tuple[int, ...]]] = []
    completion: list[int] = []
    for record in live_rounds(pair, policy, sampling):
        column = record.tree.forest.column
        paths: list[Path] = []
        signals: dict[Path, dict[str, float]] = {}
        for row in range(record.tree.forest.num_rows):
            parent = int(column("parent")[row])
            paths.append(() if parent < 0 else (*paths[parent], int(column("token")[row])))
            if parent >= 0:
                signals[paths[row]] = {name: float(column(name)[row]) for name in NODE_SIGNALS}
        context = record.context
        target = [float(context.target_entropy[0]), float(context.target_margin[0])]
        agrees = {record.agrees_from + place: value for place, value in enumerate(record.draft_agrees)}
        live.append((int(context.position[0]), signals, target, agrees, record.lookup_agrees))
        completion.extend(record.committed)
    rounds, nodes = dense_of(pair, completion, sampling)
    first = len(PROMPT) - 1
    compared = 0
    for position, signals, target, agrees, lookup_agrees in live:
        held = by_path(nodes, position - first)
        for path, values in signals.items():
            row = held[path]  # covered
            for name, value in values.items():
                if not np.isnan(value):  # a source that was asked live
                    same = pytest.approx(value, abs=1e-6) if name in DRAFT_SIGNALS else value
                    assert float(getattr(nodes, name)[row]) == same, name
                    compared += 1
        np.testing.assert_allclose(rounds.target_entropy[position - first], target[0], atol=1e-5)
        np.testing.assert_allclose(rounds.target_margin[position - first], target[1], atol=1e-5)
        for place, value in agrees.items():
            assert rounds.draft_agrees[place - first] == value
        assert rounds.lookup_agrees[position - first : position - first + len(lookup_agrees)].tolist() == list(
            lookup_agrees
        )
    assert compared > 50 or draft == "none"


def test_each_round_is_labelled_with_the_text() -> None:
    pair = tiny_pair("pruned", seed=3)
    completion = [token for record in live_rounds(pair, EverythingPolicy(), Sampling()) for token in record.committed]
    rounds, nodes = dense_of(pair, completion, Sampling())
    text = [*PROMPT, *completion]
    first = len(PROMPT) - 1
    assert rounds.position.tolist() == list(range(first, len(text) - 1))
    assert rounds.committed.tolist() == completion
    assert rounds.root_token.tolist() == text[first:-1]
    assert rounds.remaining_tokens.tolist() == [LIMIT - number for number in range(LIMIT)]
    assert set(rounds.opening.tolist()) == {LOOKUP | DRAFT | RECYCLED}
    assert rounds.finish.tolist() == [""] * (LIMIT - 1) + ["length"]
    index = SuffixIndex(PROMPT)
    for number in range(len(completion)):
        for path, row in by_path(nodes, number).items():
            truth = tuple(text[first + number + 1 : first + number + 1 + len(path)])
            assert bool(nodes.survives[row]) == (path == truth)
            if len(truth) == len(path):
                assert nodes.match[row] == (-1 if path[:-1] != truth[:-1] else int(path[-1] == truth[-1]))
            assert len(path) <= min(NARROW.max_depth, LIMIT - number - 1)
        known = index.continuations()
        assert rounds.lookup_match_length[number] == known.match_length
        index.append(completion[number])


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_change_nothing(chunk: int) -> None:
    pair = tiny_pair("other", seed=3)
    completion = np.random.default_rng(0).integers(0, VOCAB, LIMIT).tolist()
    mine, theirs = dense_of(pair, completion, Sampling(), chunk), dense_of(pair, completion, Sampling(), 7)
    for name in ("num_nodes", "draft_agrees", "lookup_agrees", "lookup_count"):
        np.testing.assert_array_equal(getattr(mine[0], name), getattr(theirs[0], name))
    for name in ("parent", "token", "sources", "match", "draft_rank", "lookup_count", "drafted", "grown"):
        np.testing.assert_array_equal(getattr(mine[1], name), getattr(theirs[1], name))
    np.testing.assert_allclose(mine[1].draft_prob, theirs[1].draft_prob, atol=1e-6)


def test_the_context_limits_what_remains() -> None:
    """As in the engine, so that the last trees are no deeper than live ones."""
    pair = tiny_pair("pruned", context=len(PROMPT) + 6)
    text = KnownText("p", "chat", tuple(PROMPT), (1, 2, 3, 4, 5, 6), 500, "length")
    rounds, nodes = grow_dense(pair, text, NARROW.widened(), PriorTable())
    assert rounds.remaining_tokens.tolist() == [6, 5, 4, 3, 2, 1]
    assert (nodes.depth <= rounds.remaining_tokens[nodes.round] - 1).all()


@pytest.mark.parametrize(
    ("prompt", "completion", "limit", "error", "message"),
    [
        ((), (1,), 4, PromptError, "text of 'p' must hold a prompt and a completion"),
        ((1,), (), 4, PromptError, "text of 'p' must hold a prompt and a completion"),
        ((1,), (1, 2, 3), 2, ParameterError, "completion must be at most 2 tokens, got 3"),
    ],
)
def test_texts_that_are_none(prompt: Path, completion: Path, limit: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KnownText("p", "chat", prompt, completion, limit, "length")


def test_noise_cannot_rank_a_text_whose_seed_nobody_knows() -> None:
    text = KnownText("p", "chat", (3, 4), (5, 6), 4, "length", temperature=0.7)
    with pytest.raises(ParameterError, match="ranking must be plain where the seed of a text's noise is not known"):
        grow_dense(tiny_pair("same"), text, NARROW.widened(), PriorTable())
    rounds, _ = grow_dense(tiny_pair("same"), text, NARROW.widened(), PriorTable(), ranking="plain")
    assert len(rounds) == 2
