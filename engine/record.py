"""Live traces of the engine: its rounds, recorded as they pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treewise.policy.outcome import RoundRecord
from treewise.policy.record import NODE_SIGNALS as NODE_SIGNALS
from treewise.policy.record import ROOT_SIGNALS as ROOT_SIGNALS
from treewise.policy.record import LiveRecorder as LiveRecorder
from treewise.policy.record import build_tables as build_tables
from treewise.policy.record import node_columns as node_columns


def record_rounds(steps: Iterable[RoundRecord], recorder: LiveRecorder) -> Iterator[RoundRecord]:
    """Pass rounds through, recording each."""
    for record in steps:
        recorder.add(record)
        yield record
