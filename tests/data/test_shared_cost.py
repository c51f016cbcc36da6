"""What one request of a batch pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from treewise.data.cost import CALL_GROWTH, CostGrid, CostProfile, share_of_call
from treewise.data.errors import CostProfileError, ParameterError

COST = CostProfile(
    "stairs",
    CostGrid((1, 7, 8, 301, 1001), (64, 256), ((20.0, 21.0, 26.0, 40.0, 90.0), (24.0, 25.0, 30.0, 60.0, 99.0))),
    CostGrid((1, 32), (0,), ((1.0, 3.0),)),
    policy_ms=0.1,
    round_ms=2.0,
    level_ms=0.5,
)


@pytest.mark.parametrize("requests", [2, 3, 8, 32])
@pytest.mark.parametrize("capacity", [0, 100, 900])
def test_a_share_of_a_pass_is_the_pass_of_all_rows_by_their_number(requests: int, capacity: int) -> None:
    shared = COST.shared_by(requests)
    rows = np.asarray([*range(65), 149, 150, 151, 152, 400])  # 301 by 2 lies between two of them
    np.testing.assert_allclose(shared.verify_ms(rows, capacity), COST.verify_ms(rows * requests, capacity) / requests)
    np.testing.assert_allclose(shared.draft_ms(rows, capacity), COST.draft_ms(rows * requests, capacity) / requests)
    far = np.asarray([1001, 5000])  # beyond every kink: the last slope goes on
    np.testing.assert_allclose(shared.verify_ms(far, capacity), COST.verify_ms(far * requests, capacity) / requests)


def test_one_request_pays_the_profile() -> None:
    assert COST.shared_by(1) is COST
    assert COST.shared_by(4).plain_ms(64) == pytest.approx(2.0 + COST.verify_ms([4], 64)[0] / 4)


def test_a_call_serves_the_batch() -> None:
    assert share_of_call(0.1, 1) == 0.1
    for requests in (2, 8, 32):
        whole = requests * share_of_call(0.1, requests)
        assert whole == pytest.approx(0.1 * (1 + CALL_GROWTH * (requests - 1)))
        assert COST.shared_by(requests).policy_ms == share_of_call(0.1, requests)
    assert share_of_call(0.1, 64) < share_of_call(0.1, 32) < 0.03


def test_a_share_is_not_shared_again_and_says_what_it_is() -> None:
    shared = COST.shared_by(8)
    assert (shared.name, shared.requests) == ("stairs, batch 8", 8)
    with pytest.raises(ParameterError, match="requests must be 1 before passes are shared, got 8"):
        shared.shared_by(2)
    with pytest.raises(ParameterError, match="requests must be >= 1, got 0"):
        COST.shared_by(0)


def test_json_names_requests_where_there_are_many() -> None:
    assert "requests" not in COST.to_json()
    shared = COST.shared_by(8)
    assert CostProfile.from_json(shared.to_json()) == shared
    assert CostProfile.from_json(COST.to_json()) == COST
    assert shared.sha256 != COST.sha256
    with pytest.raises(CostProfileError, match="unknown"):
        CostProfile.from_json({**COST.to_json(), "mates": 3})
    with pytest.raises(ParameterError, match="requests must be a count >= 1, got 0"):
        replace(COST, requests=0)
