"""What a driver remembers of a request, and shows as context."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treewise.policy.progress import DECAY, Progress, RecentShare, build_context


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_recent_shares_are_unbiased_weighted_means(values: list[float]) -> None:
    share = RecentShare()
    for value in values:
        share.add(value)
    weights = DECAY ** np.arange(len(values))[::-1]
    assert share.mean == pytest.approx(float((weights * values).sum() / weights.sum()))


def test_nothing_is_known_before_the_first_round() -> None:
    context = build_context([Progress(7, prompt_tokens=5, max_new_tokens=20, temperature=0.7)])
    assert (context.request_id[0], context.position[0], context.generated_tokens[0]) == (7, 4, 0)
    assert (context.remaining_tokens[0], context.catch_up[0], context.batch_size) == (20, 0, 1)
    assert context.temperature[0] == np.float32(0.7)
    for name in (
        "draft_agreement", "lookup_agreement", "accepted_recent", "last_accepted", "target_entropy", "target_margin",
    ):  # fmt: skip
        assert np.isnan(getattr(context, name)[0])
        assert getattr(context, name).dtype == np.float32


def test_rounds_move_position_draft_and_averages() -> None:
    progress = Progress(0, prompt_tokens=5, max_new_tokens=20)
    progress.advance(2, 3, 2, [1, 0], [1, -1, 1], 1.5, 0.25)  # root and one node were drafted
    assert (progress.position, progress.generated_tokens, progress.remaining_tokens) == (7, 3, 17)
    assert (progress.draft_seen, progress.catch_up) == (6, 1)
    progress.advance(0, 1, 0, [], [0], 0.5, 0.75)  # not drafted at all: the lag grows
    assert (progress.position, progress.draft_seen, progress.catch_up) == (8, 6, 2)
    progress.advance(1, 2, 1, [-1, 1, 1], [], 2.0, 0.1)  # the root was run, what it lacked before it
    assert (progress.position, progress.draft_seen, progress.catch_up) == (10, 9, 1)
    context = build_context([progress, Progress(1, 3, 4)])
    agreed = np.asarray([1, 0, 1, 1])
    weights = DECAY ** np.arange(4)[::-1]
    assert context.draft_agreement[0] == pytest.approx((weights * agreed).sum() / weights.sum())
    weights = DECAY ** np.arange(3)[::-1]
    assert context.lookup_agreement[0] == pytest.approx((weights * [1, 1, 0]).sum() / weights.sum())
    assert context.accepted_recent[0] == pytest.approx((weights * [2, 0, 1]).sum() / weights.sum())
    assert (context.last_accepted[0], context.target_entropy[0]) == (1, 2.0)
    assert context.target_margin[0] == np.float32(0.1)
    assert context.position.tolist() == [10, 2]
    assert context.batch_size == 2
    assert math.isnan(context.last_accepted[1])
