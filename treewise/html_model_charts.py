"""Charts of what the policies decided by: calibration, costs beside the budgets chosen, feature importances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treewise.html_panels import Chart, Grid, cut, filled, last_class, legends, panels, room_of, whole_numbers
from treewise.html_svg import INK, MUTED, colour, drawing, place_axes, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from treewise.data.cost import CostProfile
    from treewise.training.node_use import NodeUse, Reliability


def calibration(name: str, curves: Sequence[tuple[str, Reliability, Reliability]]) -> Chart:
    """Stated against seen match rates; `curves` are (policy, the sources' priors, the model's probabilities)."""

    def one(axes: Axes, place: int, room: int) -> None:
        policy, before, after = curves[place]
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1.0, linestyle=":")
        axes.plot(before.stated, before.happened, "s--", color=MUTED, markersize=5, label="before: the sources' prior")
        axes.plot(after.stated, after.happened, "o-", color=colour(0), markersize=5, label="after: the policy's")
        axes.set_title(cut(policy, room))
        axes.set_ylabel("share that matched")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.legend(loc="upper left", fontsize=10)

    cells = [
        (policy, stage, f"{stated:.3f}", f"{happened:.3f}", f"{count:,}")
        for policy, before, after in curves
        for stage, curve in (("before", before), ("after", after))
        for stated, happened, count in zip(curve.stated, curve.happened, curve.count, strict=True)
    ]
    return Chart(
        "Calibration before and after",
        "Of the candidates below accepted nodes in the replayed rounds, in bins of equal count: the probability "
        "stated and the share that matched. On the dotted line both are the same.",
        panels(name, "Stated against seen match rates", len(curves), one, 3.6, "probability stated"),
        Grid(("policy", "stage", "stated", "matched", "candidates"), tuple(cells)),
    )


def costs(name: str, cost: CostProfile, uses: Sequence[NodeUse]) -> Chart:
    """Milliseconds by rows of a verify pass, above the rows that each policy chose."""
    most = max(2, *(last_class(use.verified_rows) for use in uses))
    chosen = [filled(use.verified_rows, most + 1) / use.rounds for use in uses]
    rows = np.arange(1, most + 1)
    sizes = sorted({cost.verify.capacities[0], cost.verify.capacities[-1]})

    def draw(figure: Figure, is_wide: bool) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
        for place, capacity in enumerate(sizes):
            style = ("-", "--")[place]
            upper.plot(rows, cost.verify_ms(rows, capacity), style, color=INK, label=f"verify, cache of {capacity:,}")
            upper.plot(rows, cost.draft_ms(rows, capacity), style, color=MUTED, label=f"draft, cache of {capacity:,}")
        upper.set_ylabel("ms per pass")
        upper.set_ylim(bottom=0.0)
        for place, (use, shares) in enumerate(zip(uses, chosen, strict=True)):
            lower.step(
                rows,
                np.cumsum(shares[1:]),
                where="post",
                color=colour(place),
                label=cut(use.policy, room_of(is_wide)),
                linewidth=1.8,
            )
        lower.set_xlabel("rows of one pass (root included)")
        lower.set_ylabel("share of rounds\nwith so many or fewer")
        lower.set_ylim(0.0, 1.04)
        whole_numbers(lower)
        legends(figure, is_wide, [*(use.policy for use in uses), f"verify, cache of {sizes[-1]:,}"])

    cells = [
        (
            use.policy,
            *(f"{_quantile(use.verified_rows, share)}" for share in (0.1, 0.5, 0.9)),
            f"{float(cost.verify_ms(_quantile(use.verified_rows, 0.5), sizes[-1])):.2f}",
        )
        for use in uses
    ]
    mark = "" if cost.verified else ", which nobody here measured"
    return Chart(
        f"Cost profile {cost.name} and the budgets chosen",
        f"Milliseconds of the profile ({cost.device}, {cost.dtype}{mark}); below, the rows that each policy sent to "
        "the target.",
        drawing(name, "Milliseconds by rows, and rows chosen by each policy", draw, 5.6, 6.8),
        Grid(("policy", "rows, 10 %", "rows, median", "rows, 90 %", "ms at the median"), tuple(cells)),
    )


def importances(name: str, policy: str, gains: Sequence[tuple[str, float]]) -> Chart:
    """Shares of the match model's gain, the largest first."""

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        spots = np.arange(len(gains))
        axes.barh(spots, [gain for _, gain in gains], color=colour(0), height=0.7)
        axes.set_yticks(spots, [feature for feature, _ in gains])
        axes.set_ylim(len(gains) - 0.4, -0.6)
        axes.set_xlabel("share of the gain")
        axes.grid(visible=False, axis="y")
        place_axes(figure, 16 + text_width(feature for feature, _ in gains), 8, 6, 40)

    height = 0.8 + 0.27 * len(gains)
    return Chart(
        f"Feature importances of {policy}",
        "Share of the match model's total gain, as the bundle reports it.",
        drawing(name, f"Shares of the match model's gain by feature, {policy}", draw, height, height),
        Grid(("feature", "share of the gain"), tuple((feature, f"{gain:.4f}") for feature, gain in gains)),
    )


def _quantile(counts: NDArray[np.int64], share: float) -> int:
    """The least class that `share` of the counts lie at or below."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
