"""Charts of how fast the policies were and what their trees were made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from treewise.html_panels import MARKERS, Chart, Grid, cut, filled, last_class, legends, panels, room_of, whole_numbers
from treewise.html_svg import INK, MUTED, colour, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from treewise.training.ab_report import AbRow
    from treewise.training.node_use import NodeUse

RANK_WORDS = (
    " Rank: the draft's where it proposed the node, else the lookup's, else that of the recycled guesses; 0 is first."
)


def speedups(name: str, rows: Sequence[tuple[str, Sequence[tuple[str, AbRow]]]]) -> Chart:
    """Speed over plain decoding with its interval; `rows` are (task, [(policy, row)])."""
    names = [policy for policy, _ in rows[0][1]]

    def one(axes: Axes, place: int, room: int) -> None:
        task, own = rows[place]
        values = np.asarray([[row.speedup.value, row.speedup.low, row.speedup.high] for _, row in own])
        spots = np.arange(len(own))
        tints = [MUTED if row.is_upper_bound else colour(at) for at, (_, row) in enumerate(own)]
        axes.barh(spots, values[:, 0], color=tints, height=0.68)
        ends = np.nan_to_num(np.abs(values[:, 1:] - values[:, :1]).T)
        axes.errorbar(values[:, 0], spots, xerr=ends, fmt="none", ecolor=INK, elinewidth=1.3, capsize=2.5)
        axes.axvline(1.0, color=INK, linewidth=1.0, linestyle=":")
        axes.set_yticks(spots, [cut(policy, room) for policy in names])
        axes.set_ylim(len(own) - 0.4, -0.6)
        axes.set_title(cut(task or "all tasks", room))
        axes.grid(visible=False, axis="y")

    height = 0.5 + 0.24 * len(names)
    pictured = panels(
        name, "Speed over plain decoding by task and policy", len(rows), one, height, "x plain decoding", names
    )
    cells = [
        (task or "all", policy, f"{row.speedup.value:.3f}", f"{row.speedup.low:.3f}", f"{row.speedup.high:.3f}")
        for task, own in rows
        for policy, row in own
    ]
    return Chart(
        "Speed-up by task",
        "All tokens over all modelled milliseconds, over the same of plain decoding (dotted line). Whiskers: 95 % "
        "intervals over prompts. The oracle knows the text: an upper bound, not a policy.",
        pictured,
        Grid(("task", "policy", "speed-up", "low", "high"), tuple(cells)),
    )


def frontier(name: str, rows: Sequence[tuple[str, AbRow]]) -> Chart:
    """Accepted length against verified nodes, per round."""
    points = [(row.nodes_per_round, row.tokens_per_round - 1.0) for _, row in rows]

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        edge = [(0.0, 0.0)]
        for x, y in sorted(point for point, (_, row) in zip(points, rows, strict=True) if not row.is_upper_bound):
            if y > edge[-1][1]:
                edge.append((x, y))
        axes.plot(*zip(*edge, strict=True), color=MUTED, linewidth=1.2, linestyle="--", zorder=1)
        for place, ((x, y), (policy, row)) in enumerate(zip(points, rows, strict=True)):
            tint = MUTED if row.is_upper_bound else colour(place)
            axes.plot(
                [x], [y], MARKERS[place % len(MARKERS)], color=tint, markersize=9, label=cut(policy, room_of(is_wide))
            )
        axes.set_xlabel("verified nodes per round")
        axes.set_ylabel("accepted length per round")
        axes.set_xlim(left=-0.3)
        axes.set_ylim(bottom=-0.05)
        legends(figure, is_wide, [policy for policy, _ in rows])

    cells = [
        (policy, f"{x:.2f}", f"{y:.3f}", f"{row.growths_per_round:.2f}")
        for (x, y), (policy, row) in zip(points, rows, strict=True)
    ]
    return Chart(
        "Accepted length against verified nodes",
        "Up and to the left is better. Dashed: the frontier, what no policy shown reaches with fewer nodes. "
        "Accepted length: tokens per round beyond the one that every round brings.",
        drawing(name, "Accepted length per round against verified nodes per round", draw, 4.4, 5.2),
        Grid(("policy", "verified nodes", "accepted length", "draft passes"), tuple(cells)),
    )


def accepted_lengths(name: str, uses: Sequence[NodeUse]) -> Chart:
    """How often each accepted length came."""
    most = max(last_class(use.accepted_length) for use in uses)
    shares = [use.accepted_length[: most + 1] / use.rounds for use in uses]

    def one(axes: Axes, place: int, room: int) -> None:
        axes.bar(np.arange(most + 1), shares[place], color=colour(place), width=0.8)
        axes.set_title(cut(uses[place].policy, room))
        axes.grid(visible=False, axis="x")
        axes.set_ylim(0.0, max(float(share.max()) for share in shares) * 1.05)
        whole_numbers(axes)

    cells = [
        (use.policy, *(f"{share:.3f}" for share in own), f"{(np.arange(most + 1) * own).sum():.3f}")
        for use, own in zip(uses, shares, strict=True)
    ]
    return Chart(
        "Distribution of accepted lengths",
        "Share of rounds by accepted length.",
        panels(name, "Share of rounds by accepted length, by policy", len(uses), one, 1.75, "accepted length"),
        Grid(("policy", *(str(length) for length in range(most + 1)), "mean"), tuple(cells)),
    )


def node_uses(name: str, uses: Sequence[NodeUse], kind: str, names: Sequence[str]) -> Chart:
    """Verified nodes per round by depth, rank or source, and those of them that were accepted.

    `kind` names the field `by_<kind>`; `names` are its classes, or nothing where they are numbers.
    """
    chosen = [getattr(use, f"by_{kind}") for use in uses]
    most = max(last_class(own.kept) for own in chosen)
    kept = [filled(own.kept, most + 1) / use.rounds for own, use in zip(chosen, uses, strict=True)]
    taken = [filled(own.accepted, most + 1) / use.rounds for own, use in zip(chosen, uses, strict=True)]
    first = 1 if kind == "depth" else 0
    words = [names[place] if names else str(place) for place in range(most + 1)]

    def one(axes: Axes, place: int, room: int) -> None:
        spots = np.arange(first, most + 1)
        axes.bar(spots, kept[place][first:], color=colour(place), alpha=0.4, width=0.8)
        axes.bar(spots, taken[place][first:], color=colour(place), width=0.8)
        axes.set_title(cut(uses[place].policy, room))
        axes.grid(visible=False, axis="x")
        if names:
            axes.set_xticks(spots, [word.replace(" only", "") for word in words[first:]])
        else:
            whole_numbers(axes)

    cells = [
        (use.policy, *(f"{a:.3f} of {b:.3f}" for a, b in zip(own[first:], all_[first:], strict=True)))
        for use, own, all_ in zip(uses, taken, kept, strict=True)
    ]
    return Chart(
        f"Node use by {kind}",
        "Verified nodes per round (pale) and those of them that were accepted (full)."
        + (RANK_WORDS if kind == "rank" else ""),
        panels(name, f"Verified and accepted nodes per round by {kind}", len(uses), one, 1.75, kind),
        Grid(("policy", *(f"{kind} {word}" if not names else word for word in words[first:])), tuple(cells)),
    )
