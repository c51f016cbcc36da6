"""Several processes that collect one trace share its prompts, and lose none when one of them dies."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.data.traces import manifest, request
from treewise.data import trace_claims
from treewise.data.trace_claims import CLAIMS_NAME, PromptClaims
from treewise.data.trace_reader import TraceReader
from treewise.data.trace_writer import TraceWriter


def test_a_prompt_is_given_once_and_never_when_it_is_there(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, manifest()) as writer:
        writer.add(*request("a"))
    with PromptClaims(tmp_path) as claims:
        assert [claims.is_open(name) for name in ("a", "bb", "ccc")] == [False, True, True]
        assert [claims.take(name) for name in ("a", "bb", "bb")] == [False, True, False]
        with TraceWriter(tmp_path, manifest()) as writer:
            writer.add(*request("ccc"))
        assert not claims.take("ccc")  # listed again
        assert claims.taken == 1
        assert TraceReader(tmp_path).leftovers == 1
    assert TraceReader(tmp_path).leftovers == 0


def hold(folder: Path, prompt_ids: list[str], told: Connection) -> None:
    """A process that takes prompts, says which it got, and ends when it is told."""
    with PromptClaims(folder) as claims:
        told.send([claims.take(name) for name in prompt_ids])
        told.recv()


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_another_process_holds_is_left_to_it_until_it_ends(tmp_path: Path, is_killed: bool) -> None:
    TraceWriter(tmp_path, manifest()).close()
    spawning = multiprocessing.get_context("spawn")
    mine, theirs = spawning.Pipe()
    other = spawning.Process(target=hold, args=(tmp_path, ["a", "bb"], theirs))
    other.start()
    try:
        assert mine.recv() == [True, True]
        with PromptClaims(tmp_path) as claims:
            assert [claims.take(name) for name in ("bb", "ccc")] == [False, True]
            assert claims.is_open("bb")
            if is_killed:
                other.kill()
            else:
                mine.send("end")
            other.join(60.0)
            assert (tmp_path / CLAIMS_NAME).exists()  # the other was not the last
            assert [claims.take(name) for name in ("a", "bb", "ccc")] == [True, True, False]
    finally:
        other.kill()
        other.join()
    assert not (tmp_path / CLAIMS_NAME).exists()


@pytest.mark.parametrize("is_disk", [False, True])
def test_without_locks_every_claim_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_disk: bool) -> None:
    class Lockless:
        LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4

        @staticmethod
        def lockf(*_: int) -> None:
            raise OSError(95, "Operation not supported")

    TraceWriter(tmp_path, manifest()).close()
    monkeypatch.setattr(trace_claims, "_locks", lambda: Lockless if is_disk else None)
    with PromptClaims(tmp_path) as claims, PromptClaims(tmp_path) as others:
        assert claims.take("a") and others.take("a")
    assert TraceReader(tmp_path).leftovers == 0
