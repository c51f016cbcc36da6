"""The llama.cpp draft model against a stub of `Llama.generate`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.stub_engines import VOCAB, repetitive_text, run_llama
from treewise.data.errors import ParameterError
from treewise.engine.llama_cpp_draft import TreewiseDraftModel
from treewise.engine.lookup_chains import LookupChainSettings

TEXT = repetitive_text(5)


def test_a_repetitive_text_takes_fewer_evaluations_than_tokens() -> None:
    draft = TreewiseDraftModel(VOCAB, LookupChainSettings(max_tokens=6))
    evaluations, tokens = run_llama(TEXT, 16, draft)
    assert evaluations < tokens - 16 - 10
    counters = draft.counters
    assert (counters.requests, counters.fallbacks) == (1, 0)
    # The first evaluation ends prefill; of the proposal behind the last one nobody tells the outcome.
    assert counters.committed_tokens == tokens - 16 - 1
    assert counters.rounds == evaluations - 1


def test_a_policy_decides_the_length() -> None:
    longest = []
    for policy in ("chain:1", "chain:6"):
        draft = TreewiseDraftModel(VOCAB, LookupChainSettings(policy, "example-a100-70b", max_tokens=6))
        run_llama(TEXT, 16, draft)
        longest.append(draft.counters.verified_nodes / draft.counters.rounds)
    assert longest[0] <= 1.0 < longest[1]


def test_another_text_is_another_request() -> None:
    draft = TreewiseDraftModel(VOCAB)
    run_llama(TEXT, 16, draft)
    run_llama(repetitive_text(6), 16, draft)
    assert (draft.counters.requests, draft.counters.finished) == (2, 1)
    draft.reset()
    draft.reset()
    assert draft.counters.finished == 2


def test_a_new_turn_of_a_conversation_starts_over_with_its_text() -> None:
    draft = TreewiseDraftModel(VOCAB)
    draft(np.asarray(TEXT[:20], dtype=np.intc))
    longer = np.asarray([*TEXT[:20], *TEXT[40:80]], dtype=np.intc)
    guesses = draft(longer)
    fresh = TreewiseDraftModel(VOCAB)
    assert guesses.tolist() == fresh(longer).tolist()
    assert draft.counters.requests == 2


def test_nothing_known_is_no_guess() -> None:
    draft = TreewiseDraftModel(VOCAB)
    guesses = draft(np.arange(10, dtype=np.intc))
    assert guesses.dtype == np.intc
    assert guesses.shape == (0,)


def test_keywords_are_refused_by_version() -> None:
    with pytest.raises(ParameterError, match=r"as llama-cpp-python 0\.3\.35 calls it, got \['n_accepted'\]"):
        TreewiseDraftModel(VOCAB)(np.arange(4, dtype=np.intc), n_accepted=3)


def test_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treewise.engine.tried_versions.installed_version", lambda package: "0.9.0")
    with pytest.warns(RuntimeWarning, match=r"tried with llama-cpp-python 0\.3\.35, got 0\.9\.0"):
        TreewiseDraftModel(VOCAB)


def test_conforms_to_the_installed_package() -> None:
    module = pytest.importorskip("llama_cpp.llama_speculative")
    theirs = module.LlamaPromptLookupDecoding(num_pred_tokens=4)(np.asarray(TEXT[:40], dtype=np.intc))
    ours = TreewiseDraftModel(VOCAB)(np.asarray(TEXT[:40], dtype=np.intc))
    assert ours.dtype == theirs.dtype and ours.ndim == theirs.ndim


def test_a_text_beyond_the_limit_gets_no_guesses() -> None:
    draft = TreewiseDraftModel(VOCAB, LookupChainSettings(max_text_tokens=10))
    text = np.asarray([1, 2, 3, 4] * 5, dtype=np.intc)
    found = [draft(text[:length]).tolist() for length in range(6, 16)]
    assert found[2] and not any(found[4:])
    assert draft(text).tolist() == []
    assert draft.counters.finished == draft.counters.requests > 0
    assert draft(text[:6]).tolist() == [3, 4, 1]
