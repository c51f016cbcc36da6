"""Charts of a survey: a figure by task, and how often each accepted length came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from treewise.html_panels import MARKERS, Chart, Grid, cut, panels, room_of, whole_numbers
from treewise.html_svg import INK, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from treewise.training.survey import Survey
    from treewise.training.survey_counts import Figure

EVERYTHING = "all tasks"
PLAIN = 1.0  # speed of plain decoding, as a multiple of itself


def origins(survey: Survey) -> str:
    """The two origins of modelled figures, in a sentence."""
    return f"Modelled: {'; '.join(survey.acceptance)}; {survey.milliseconds.words}."


def figure_by_task(name: str, survey: Survey, figure: Figure, shown: Sequence[tuple[str, dict[str, str]]]) -> Chart:
    """One figure with its intervals: a panel for each of `shown`, (title, task -> policy), a bar for each task."""
    tasks = survey.tasks
    found = [[survey.figure(figure.name, policies[task], task) for task in tasks] for _, policies in shown]

    def one(axes: Axes, place: int, room: int) -> None:
        values = np.asarray([[each.value, each.low, each.high] for each in found[place]])
        spots = np.arange(len(tasks))
        middle, ends = np.nan_to_num(values[:, 0]), np.nan_to_num(np.abs(values[:, 1:] - values[:, :1]).T)
        axes.barh(spots, middle, color=colour(place), height=0.68)
        axes.errorbar(middle, spots, xerr=ends, fmt="none", ecolor=INK, elinewidth=1.3, capsize=2.5)
        if figure.name == "speedup":
            axes.axvline(PLAIN, color=INK, linewidth=1.0, linestyle=":")
        axes.set_yticks(spots, [cut(task or EVERYTHING, room) for task in tasks])
        axes.set_ylim(len(tasks) - 0.4, -0.6)
        axes.set_title(cut(shown[place][0], room))
        axes.grid(visible=False, axis="y")

    height = 0.5 + 0.24 * len(tasks)
    words = [task or EVERYTHING for task in tasks]
    pictured = panels(name, f"{figure.meaning}, by task and policy", len(shown), one, height, figure.heading, words)
    cells = [
        (task or EVERYTHING, policies[task], *(f"{bound:.3f}" for bound in (each.value, each.low, each.high)))
        for (_, policies), row in zip(shown, found, strict=True)
        for task, each in zip(tasks, row, strict=True)
    ]
    note = f"{figure.meaning[0].upper()}{figure.meaning[1:]}. Whiskers: 95 % intervals over prompts."
    if figure.name == "speedup":
        note += f" Dotted: plain decoding. {origins(survey)}"
    return Chart(figure.heading, note, pictured, Grid(("task", "policy", figure.heading, "low", "high"), tuple(cells)))


def lengths_by_task(name: str, survey: Survey, policies: Sequence[tuple[str, str]]) -> Chart:
    """Shares of verifications by accepted length: a panel for each task, a line for each (title, spec)."""
    tasks = survey.tasks
    most = max(survey.most_accepted(policy) for _, policy in policies)
    shares = [[survey.length_shares(policy, task)[: most + 1] for _, policy in policies] for task in tasks]

    highest = max(float(own[:, 0].max()) for by_policy in shares for own in by_policy)

    def one(axes: Axes, place: int, room: int) -> None:
        for at, ((title, spec), own) in enumerate(zip(policies, shares[place], strict=True)):
            marker = f"{MARKERS[at % len(MARKERS)]}-"
            own = own[: survey.most_accepted(spec) + 1, 0]
            axes.plot(np.arange(len(own)), own, marker, color=colour(at), markersize=5, label=cut(title, room))
        axes.set_title(cut(tasks[place] or EVERYTHING, room))
        axes.set_ylim(0.0, 1.05 * highest)
        whole_numbers(axes)
        if place == 0 or room == room_of(is_wide=False):  # there the first panel is far above the last
            axes.legend(loc="upper right", fontsize=9.5)

    cells = [
        (task or EVERYTHING, policy, *(_ranged(row) for row in own))
        for task, by_policy in zip(tasks, shares, strict=True)
        for (_, policy), own in zip(policies, by_policy, strict=True)
    ]
    return Chart(
        "Distribution of accepted lengths",
        "Share of verifications by accepted length, the bonus token not counted.",
        panels(name, "Share of verifications by accepted length", len(tasks), one, 2.2, "accepted length"),
        Grid(("task", "policy", *(str(length) for length in range(most + 1))), tuple(cells)),
    )


def _ranged(share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    value, low, high = (f"{part:.3f}" for part in share.tolist())
    return value if np.isnan(share[1]) else f"{value} [{low}, {high}]"
