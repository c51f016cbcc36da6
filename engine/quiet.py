"""Silencing what transformers says on its own, which would land in the middle of this command line's lines."""

from __future__ import annotations

import logging as standard_logging
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

# Assisted generation calls itself in a way that it calls deprecated.
_SAID_OF_ITSELF = "Passing `generation_config` together with generation-related arguments"
_GENERATE_LOGGER = "transformers.generation.utils"


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Without transformers' progress bars; shown again afterwards when they were shown before."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def no_warnings_of_itself() -> Iterator[None]:
    """Without the warning that `generate` logs about its own call of the assistant; every other one is shown."""
    logger = standard_logging.getLogger(_GENERATE_LOGGER)

    def is_ours(record: standard_logging.LogRecord) -> bool:
        return not record.getMessage().startswith(_SAID_OF_ITSELF)

    logger.addFilter(is_ours)
    try:
        yield
    finally:
        logger.removeFilter(is_ours)
