"""Whose answers a folder holds: a mark beside the shards, which do not say it themselves."""

from __future__ import annotations

from pathlib import Path

from treewise.data.errors import PairError
from treewise.data.pair import PairDescription
from treewise.data.stored_json import short
from treewise.engine.hub import write_atomically

MARK_NAME = "target.sha256"  # hash of the target's weights, then its name for people


def check_mark(folder: Path, pair: PairDescription) -> bool:
    """Whether `folder` is marked, for the pair's target; folders from before there were marks are not.

    Raises:
        PairError: it is marked for another target, or the mark cannot be read.
    """
    path = folder / MARK_NAME
    try:
        mark = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise PairError(f"{path} cannot be read ({error}); delete it if {folder} is of {pair.target!r}") from error
    if mark.partition(" ")[0] != pair.target_sha256:
        raise PairError(
            f"answers in {folder} must be of target {pair.target!r} ({pair.target_sha256}), got those of "
            f"{short(mark)}, as {MARK_NAME} there says; use another folder, or delete that file where it is wrong"
        )
    return True


def keep_mark(folder: Path, pair: PairDescription) -> None:
    """Mark `folder` for the pair's target where it is not marked yet; errors as in `check_mark`."""
    if not check_mark(folder, pair):
        write_atomically(folder / MARK_NAME, f"{pair.target_sha256} {pair.target}\n".encode())
