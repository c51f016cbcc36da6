"""Stages of a long run: how its logic tells whoever watches where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """Told of finished steps."""

    def __call__(self, word: str = "", steps: int = 1) -> None:
        """`steps` more are done; `word` says what they were."""


class Stage(Protocol):
    """Opens a stage of a run."""

    def __call__(self, title: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """A stage of `total` steps, None where nobody knows."""


@contextmanager
def silent(title: str, total: int | None = None) -> Iterator[Advance]:
    """A stage that nobody watches."""

    def advance(word: str = "", steps: int = 1) -> None:
        """Nothing to tell."""

    yield advance
