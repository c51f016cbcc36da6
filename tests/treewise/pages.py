"""An A/B on a made-up world with a learned policy in it, and the report page of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.policy.models import tiny_bundle
from tests.training.worlds import COST, World, dense_trace
from treewise.data.envelope import Envelope, PriorTable
from treewise.html_report import Compared, PageSettings, write_page
from treewise.training.ab import ab

ENVELOPE = Envelope(max_depth=6, draft_width=4)
RIVALS = ("topn:12x3", "frontier", "chain:3", "plain")
SMALL = PageSettings(prompts=2, rounds=5, counted_prompts=2)
# Token texts that a careless page would take for its own.
NASTY = ("</script><b>bold</b>", " the", "\n", '"quoted" & more', "<img src=x onerror=alert(1)>", "", "\u2028", "é")
FIGURES = {"auc": 0.9, "log_loss": 0.2, "ece": 0.01}
REPORT: dict[str, Any] = {
    "match": [{"name": "all", "rows": 1000, "rate": 0.3, "model": FIGURES, "baseline": {**FIGURES, "auc": None}}],
    "importances": [{"feature": "log_prior", "gain": 0.75}, {"feature": "draft_rank", "gain": 0.25}],
}


def text_of(token: int) -> str:
    """The made-up text of a token."""
    return NASTY[token % len(NASTY)]


def make_compared(folder: Path) -> Compared:
    """An A/B under two profiles; `folder` is where its bundle goes."""
    bundle = replace(tiny_bundle(), envelope=ENVELOPE.widened(), prior_table=PriorTable(), report=REPORT)
    learned = f"learned:{bundle.save(folder / 'policy')}"
    trace = dense_trace(World(seed=5, num_texts=3, answer_tokens=30), ENVELOPE)
    costs = [COST, replace(COST, name="twice <b>", round_ms=2.0, origin="made up & told so")]
    specs = [learned, *RIVALS]
    return Compared.of(ab([trace], costs, specs), [trace], costs, specs)


def make_page(folder: Path) -> Path:
    """The page of `make_compared`."""
    return write_page(folder / "out" / "page.html", [make_compared(folder)], SMALL, text_of)
