"""Arguments that EAGLE's trees refuse, and scores that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.eagle_loops import DEPTH, FailsAt, K, trees_of
from tests.engine.recorded_eagle import record
from treewise.data.errors import ParameterError
from treewise.engine.eagle import EagleSettings
from treewise.engine.eagle_tree import EagleCandidates


def test_values_that_are_no_numbers_rank_last() -> None:
    lists = record(14)
    lists.scores[-1][1, 2] = np.nan
    with_nan = trees_of("topn:12x4").prune(*lists.arguments)
    lists.scores[-1][1, 2] = -np.inf
    np.testing.assert_array_equal(with_nan.draft_tokens, trees_of("topn:12x4").prune(*lists.arguments).draft_tokens)
    whole = trees_of(FailsAt(0), num_nodes=1024)
    with pytest.warns(RuntimeWarning):
        tokens = whole.prune(*lists.arguments).draft_tokens
    assert tokens.shape[1] == 1 + K + DEPTH * K * K
    whole.accept([0], 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": []}, "scores_list must hold at least one entry"),
        ({"scores": [np.zeros((2, 4), np.float32)]}, r"scores_list must hold entries of shapes \[\(1, 4\)\]"),
        ({"tokens": [np.zeros((1, 3), np.int64)]}, "ss_token must hold entries"),
        ({"parents": [np.zeros(2, np.int64)]}, "parents_list must hold entries"),
        ({"parents": [np.asarray([3])]}, "parents_list must name earlier candidates"),
        ({"scores": [np.ones((1, 4), np.float32)]}, "log probabilities of whole paths"),
    ],
)
def test_other_shapes_are_errors(changes: dict[str, Any], message: str) -> None:
    whole = record(0).until(1)
    parts = {"scores": whole.scores, "tokens": whole.tokens, "parents": whole.parents, **changes}
    with pytest.raises(ParameterError, match=message):
        EagleCandidates.read(parts["scores"], parts["tokens"], parts["parents"])


@pytest.mark.parametrize(
    ("path", "message"),
    [([], "got \\[\\]"), ([1], "from the root down"), ([0, 99], "from the root down"), ([0, 2, 1], "from the root")],
)
def test_a_path_outside_the_tree_is_an_error(path: list[int], message: str) -> None:
    made = trees_of("topn:12x4")
    made.prune(*record(0).arguments)
    with pytest.raises(ParameterError, match=message):
        made.accept(path, 1)
    made.accept([0], 1)
    with pytest.raises(ParameterError, match="accept must follow prune"):
        made.accept([0], 1)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"num_nodes": 0}, "num_nodes"), ({"top_k": 65}, "top_k"), ({"depth": -1}, "depth"), ({"vocab_size": 0}, "vocab")],
)
def test_sizes_are_checked(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        EagleSettings(**sizes)


@pytest.mark.parametrize("token", [None, [], 1.5, -2])
def test_what_is_no_token_is_named(token: Any) -> None:
    made, lists = trees_of("topn:12x4"), record(0)
    with pytest.raises(ParameterError, match="sample_token must be a token id"):
        made.prune(lists.scores, lists.tokens, lists.parents, token)
    made.prune(*lists.arguments)
    with pytest.raises(ParameterError, match="next_token must be a token id, at least -1"):
        made.accept([0], token)
    made.accept([0], -1)
    assert made.counters.accepted_rounds == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2.5, 10), "prompt_tokens must be a whole number"),
        ((3, "x"), "max_new_tokens must be a whole number"),
        ((3, 10, -1.0), "temperature must be finite and >= 0"),
        ((3, 10, float("nan")), "temperature must be finite and >= 0"),
    ],
)
def test_requests_are_checked(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        trees_of("topn:12x4").begin(*arguments)


def test_sizes_are_whole() -> None:
    with pytest.raises(ParameterError, match=r"num_nodes must be a whole number, got 1\.5"):
        EagleSettings(num_nodes=1.5)  # type: ignore[arg-type]
