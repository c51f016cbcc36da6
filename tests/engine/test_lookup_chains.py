"""Chains from the suffix lookup: what they read off a text, and when they start over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.stub_engines import VOCAB, repetitive_text
from tests.house.test_packages import in_fresh_interpreter
from treewise.data.errors import BundleError, ParameterError
from treewise.engine.lookup_chains import LookupChains, LookupChainSettings
from treewise.engine.tried_versions import installed_version, warn_if_untried

TEXT = repetitive_text(0)
REPEAT = [1, 2, 3, 4] * 6


def test_the_same_text_gets_the_same_guesses() -> None:
    chains = LookupChains(VOCAB, LookupChainSettings(max_tokens=3))
    chain = chains.start(REPEAT[:9])
    assert chains.propose(chain, REPEAT[:9]) == chains.propose(chain, REPEAT[:9]) == [2, 3, 4]
    assert chains.propose(chain, REPEAT[:9], most=1) == [2]
    assert chains.propose(chain, REPEAT[:9], most=0) == []
    assert chains.counters.rounds == 0


@pytest.mark.parametrize(
    ("said", "accepted", "restarts"),
    [
        ([9], 0, 0),
        ([2, 9], 1, 0),
        ([2, 3, 4, 1], 3, 0),
        ([2], None, 1),  # the engine may have cut the chain: what came below 2 was not said
        ([9, 9], None, 1),  # more than a verify pass can say
        ([2, 3, 4, 1, 2], None, 1),
    ],
)
def test_what_was_accepted_is_read_off_the_text(said: list[int], accepted: int | None, restarts: int) -> None:
    chains = LookupChains(VOCAB, LookupChainSettings(max_tokens=3))
    chain = chains.start(REPEAT[:9])
    chains.propose(chain, REPEAT[:9])
    text = [*REPEAT[:9], *said]
    guesses = chains.propose(chain, text)
    fresh = LookupChains(VOCAB, LookupChainSettings(max_tokens=3))
    assert guesses == fresh.propose(fresh.start(text), text)
    assert chains.num_restarts == restarts
    assert chains.counters.rounds == (0 if accepted is None else 1)
    assert chains.counters.accepted_tokens == (accepted or 0)


def test_a_dropped_request_is_finished() -> None:
    chains = LookupChains(VOCAB)
    chain = chains.start(REPEAT)
    chains.propose(chain, REPEAT)
    chains.drop(chain)
    assert chains.counters.finished == chains.counters.requests == 1


def test_a_text_that_cannot_start_leaves_the_request_alive() -> None:
    chains = LookupChains(VOCAB)
    chain = chains.start(REPEAT)
    chains.propose(chain, REPEAT)
    with pytest.raises(ParameterError, match="prompt_tokens must be token ids"):
        chains.propose(chain, [9, 9, VOCAB])
    assert (chains.num_restarts, chains.counters.finished) == (0, 0)
    assert chains.propose(chain, [5, 6, 5])[:2] == [6, 5]
    chains.drop(chain)
    assert chains.counters.finished == chains.counters.requests == 2


def test_a_slow_policy_is_suspended_and_counted() -> None:
    ticks = iter(range(1_000_000))
    settings = LookupChainSettings("chain:2", "example-a100-70b", max_tokens=4, time_limit_ms=5.0)
    chains = LookupChains(VOCAB, settings, clock=lambda: float(next(ticks)))
    text = TEXT
    chain, length = chains.start(text[:16]), 16
    longest = 0
    while length < 60:
        guesses = chains.propose(chain, text[:length])
        longest = max(longest, len(guesses))
        length += 1 + next((i for i, guess in enumerate(guesses) if guess != text[length + i]), len(guesses))
    assert chains.counters.suspensions > 0
    assert longest == 4  # the plain rule's length, not the policy's


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"max_tokens": 0}, "max_tokens must be between 1 and 64"), ({"policy": "chain"}, "cost must be given beside")],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LookupChainSettings(**settings)  # type: ignore[arg-type]


def test_a_missing_bundle_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="none-here"):
        LookupChains(VOCAB, LookupChainSettings(f"learned:{tmp_path / 'none-here'}", "example-a100-70b"))


@pytest.mark.parametrize(("version", "warns"), [("1.2.3", False), ("1.2.3+cpu", False), ("1.2.4", True)])
def test_only_other_versions_are_told(version: str, warns: bool) -> None:
    if warns:
        with pytest.warns(RuntimeWarning, match=r"tried with engine 1\.2\.3, 1\.2\.2, got 1\.2\.4"):
            assert warn_if_untried("engine", ("1.2.3", "1.2.2"), version)
    else:
        assert not warn_if_untried("engine", ("1.2.3", "1.2.2"), version)


def test_a_package_that_is_not_there_is_no_reason() -> None:
    assert installed_version("no-such-engine-here") is None
    assert not warn_if_untried("no-such-engine-here", ("1.0",))


def test_adapters_do_without_torch_and_without_their_engines(tmp_path: Path) -> None:
    names = [f"treewise.engine.{name}" for name in ("sglang_policy", "vllm_proposer", "llama_cpp_draft")]
    code = f"import importlib, sys; [importlib.import_module(n) for n in {names!r}]; print(*sorted(sys.modules))"
    loaded = set(in_fresh_interpreter(code, tmp_path).split())
    assert set(names) <= loaded
    assert not loaded & {"torch", "transformers", "lightgbm", "onnxruntime", "sglang", "vllm", "llama_cpp"}


def test_a_full_text_gets_no_guesses_and_no_error() -> None:
    chains = LookupChains(VOCAB, LookupChainSettings(max_text_tokens=10))
    chain = chains.start(REPEAT[:12])
    assert chains.propose(chain, REPEAT[:12]) == chains.propose(chain, REPEAT[:13]) == []
    assert chains.propose(chain, REPEAT[:7])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_limit_ms": "a"}, "time_limit_ms must be a number above 0, got 'a'"),
        ({"policy": 5}, "policy must be a str, got 5"),
        ({"max_tokens": 2.5}, "max_tokens must be between 1 and 64, got 2.5"),
    ],
)
def test_settings_of_other_types(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LookupChainSettings(**settings)
