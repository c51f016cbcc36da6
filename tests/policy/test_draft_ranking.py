"""Rankings of the draft's candidates and the priors that follow."""

import numpy as np
import pytest

from treewise.data.errors import ParameterError
from treewise.policy.draft_ranking import BOTH, COUPLED, PLAIN, draft_prior, is_proposed, resolve_ranking

NAN = np.nan
PROBS = np.asarray([0.5, 0.25, 0.125, NAN], dtype=np.float32)
DRAWN = np.asarray([0.0, 0.75, NAN, NAN], dtype=np.float32)
RANKS = np.asarray([0.0, 1.0, 2.0, NAN], dtype=np.float32)
DRAWN_RANKS = np.asarray([9.0, 0.0, NAN, NAN], dtype=np.float32)


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        (PLAIN, [0.5, 0.25, 0.125, NAN]),
        (COUPLED, [0.0, 0.75, 0.125, NAN]),
        (BOTH, [0.25, 0.5, 0.125, NAN]),
    ],
)
def test_priors_read_the_probabilities_of_the_ranking(ranking: str, expected: list[float]) -> None:
    found = draft_prior(ranking, PROBS, DRAWN)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(expected, dtype=np.float32))
    np.testing.assert_array_equal(draft_prior(ranking, PROBS, None), PROBS)


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [(PLAIN, [True, False, False, False]), (COUPLED, [False, True, False, False]), (BOTH, [True, True, False, False])],
)
def test_a_candidate_is_proposed_within_the_width_of_its_ranking(ranking: str, expected: list[bool]) -> None:
    assert is_proposed(ranking, 1, RANKS, DRAWN_RANKS).tolist() == expected
    assert is_proposed(ranking, 1, RANKS, None).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("ranking", "temperature", "expected"),
    [("", 0.0, PLAIN), ("", 0.7, BOTH), (COUPLED, 0.7, COUPLED), (COUPLED, 0.0, PLAIN), (PLAIN, 1.0, PLAIN)],
)
def test_both_is_the_default_above_temperature_0(ranking: str, temperature: float, expected: str) -> None:
    assert resolve_ranking(ranking, temperature) == expected


def test_an_unknown_ranking_is_refused() -> None:
    with pytest.raises(ParameterError, match="ranking must be one of plain, coupled, both, got 'noisy'"):
        resolve_ranking("noisy", 1.0)
