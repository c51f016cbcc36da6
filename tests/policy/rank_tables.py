"""Rank tables as files."""

from __future__ import annotations

import json
from pathlib import Path

from treewise.policy.rank_table import RankTable

BY_RANK = (0.5, 0.2, 0.08, 0.04, 0.01)


def rank_table() -> RankTable:
    """The same acceptance whatever is asked."""
    return RankTable(dict.fromkeys(range(1, 8), BY_RANK))


def write_rank_table(path: Path, table: RankTable | None = None) -> str:
    """The file's name."""
    path.write_text(json.dumps((table or rank_table()).to_json()), encoding="utf-8")
    return str(path)
