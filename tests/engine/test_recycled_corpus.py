"""A corpus from stored answers: against one pass a text by hand, and what answers it takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.disk_pairs import write_model
from treewise.data.errors import CorpusError, ParameterError
from treewise.data.prompt_set import Prompt, prompts_sha256
from treewise.data.recycled import ORDERS, TOP, RecycledCorpus, pack
from treewise.engine import recycled_corpus
from treewise.engine.answers import Answer, answer_shards, states_path, write_answers
from treewise.engine.draft_model import decoder_of
from treewise.engine.pair import Pair, encode_prompt, load_pair
from treewise.engine.recycled_corpus import answers_sha256, answers_to, make_corpus
from treewise.engine.teacher import kept_states, record_states

PROMPTS = tuple(Prompt(f"p{number}", "ab"[number % 2], f"say {number}") for number in range(4))
BYTES = (70, 71, 72)  # so few that contexts of three tokens come again


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(str(write_model(tmp_path_factory.mktemp("target"), seed=8, num_layers=2)), "none")


@pytest.fixture(scope="module")
def answers(pair: Pair) -> list[Answer]:
    """Ten answers of different lengths, some of them to one prompt."""
    rng = np.random.default_rng(1)
    made = []
    for number in range(10):
        prompt = PROMPTS[number % len(PROMPTS)]
        said = tuple(rng.choice(BYTES, size=3 + 2 * number).tolist())
        ids = tuple(encode_prompt(pair, prompt.text))
        made.append(Answer(f"k{number}", prompt.id, prompt.task, number, 0.0, ids, said))
    return made


def by_hand(pair: Pair, answers: list[Answer], min_occurrences: int) -> dict[int, tuple[int, dict[int, float]]]:
    """Occurrences and mean probabilities by packed context, text by text and position by position."""
    seen: dict[int, list[dict[int, float]]] = defaultdict(list)
    for answer in answers:
        text = [*answer.prompt_ids, *answer.answer_ids]
        with torch.inference_mode():
            laws = pair.target(input_ids=torch.tensor([text])).logits[0].float().softmax(-1)
        for place in range(len(answer.prompt_ids), len(text)):
            best = laws[place - 1].topk(TOP)
            said = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            for order in range(1, ORDERS + 1):
                if place >= order:
                    seen[pack(text[place - order : place])].append(said)
    found = {}
    for key, rows in seen.items():
        if key >= 1 << 21 and len(rows) < min_occurrences:
            continue
        tokens = {token for row in rows for token in row}
        means = {token: sum(row.get(token, 0.0) for row in rows) / len(rows) for token in tokens}
        found[key] = len(rows), means
    return found


@pytest.mark.parametrize("min_occurrences", [1, 2, 3])
def test_equals_the_mean_by_hand(
    pair: Pair, answers: list[Answer], min_occurrences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycled_corpus, "PASS_TOKENS", 64)  # several passes
    monkeypatch.setattr(recycled_corpus, "HEAD_ROWS", 5)
    told: list[tuple[int, int]] = []
    made = make_corpus(
        pair, answers, PROMPTS, min_occurrences=min_occurrences, report=lambda *counts: told.append(counts)
    )
    expected = by_hand(pair, answers, min_occurrences)
    assert made.contexts.tolist() == sorted(expected)
    for key, (occurrences, means) in expected.items():
        entry = made.entry(key)
        assert entry is not None and entry[0] == occurrences
        best = sorted(means.values(), reverse=True)[:TOP]
        assert list(entry[1].values()) == pytest.approx(best, rel=2e-3)  # float16 keeps eleven bits
        for token, prob in entry[1].items():
            assert prob == pytest.approx(means[token], rel=2e-3)
    assert len(told) > 1
    assert (sum(texts for texts, _ in told), sum(tokens for _, tokens in told)) == (
        10,
        made.provenance["answer_tokens"],
    )


def test_contexts_of_every_order_are_there(pair: Pair, answers: list[Answer]) -> None:
    made = make_corpus(pair, answers, PROMPTS)
    orders = [int(((made.contexts >> 21 * order) > 0).sum()) for order in range(ORDERS + 1)]
    assert orders[0] > orders[1] > orders[2] > orders[3] == 0
    assert made.occurrences[made.contexts >= 1 << 21].min() >= 2
    assert made.probs.tolist() == made.probs.astype(np.float16).astype(np.float32).tolist()
    assert made.probs.min() > 0


def test_a_text_shorter_than_a_context_counts_for_the_shorter_ones(pair: Pair) -> None:
    answer = Answer("k", "p", "t", 0, 0.0, (70,), (71,))
    made = make_corpus(pair, [answer], PROMPTS, min_occurrences=1)
    assert made.contexts.tolist() == [pack((70,))]


def test_where_it_came_from_is_kept(pair: Pair, answers: list[Answer], tmp_path: Path) -> None:
    made = make_corpus(pair, answers, PROMPTS, command="treewise corpus -o there")
    made.save(tmp_path)
    came = RecycledCorpus.load(tmp_path).provenance
    identity = pair.description
    assert came == {
        "notice": f"modified from {identity.target}",
        "command": "treewise corpus -o there",
        "prompts_sha256": prompts_sha256(PROMPTS),
        "answers_sha256": answers_sha256(answers),
        "target": identity.target,
        "target_sha256": identity.target_sha256,
        "answers": 10,
        "answer_tokens": sum(len(answer.answer_ids) for answer in answers),
        "min_occurrences": 2,
        "torch": torch.__version__,
    }
    assert (made.vocab_size, made.tokenizer_sha256) == (identity.vocab_size, identity.tokenizer_sha256)
    assert answers_sha256(answers[:-1]) != answers_sha256(answers)


def test_states_that_were_kept_spare_the_pass(
    pair: Pair, answers: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {}
    for answer in answers:
        with torch.inference_mode():
            text = answer.prompt_ids + answer.answer_ids
            states[text] = decoder_of(pair.target)(input_ids=torch.tensor([text])).last_hidden_state[0]
    expected = make_corpus(pair, answers, PROMPTS)
    some = dict(list(states.items())[::2])
    assert_like(make_corpus(pair, answers, PROMPTS, states=some), expected)
    monkeypatch.setattr(recycled_corpus, "decoder_of", lambda target: None)  # no pass can be made
    told: list[tuple[int, int]] = []
    made = make_corpus(pair, answers, PROMPTS, states=states, report=lambda *counts: told.append(counts))
    assert_like(made, expected)
    assert sum(texts for texts, _ in told) == len(answers)
    assert sum(tokens for _, tokens in told) == sum(len(answer.answer_ids) for answer in answers)


def test_states_of_a_key_that_was_answered_twice_go_by_the_text(
    pair: Pair, answers: list[Answer], tmp_path: Path
) -> None:
    others = [replace(answer, answer_ids=(*answer.answer_ids[::-1], 70)) for answer in answers]
    for held in (answers, others[:5]):  # keys that come in two shards, with texts that differ
        write_answers(tmp_path, held)
    for _ in record_states(pair.target, tmp_path):
        pass
    found = answers_to(pair, PROMPTS, tmp_path)
    expected = make_corpus(pair, found, PROMPTS)
    assert_like(make_corpus(pair, found, PROMPTS, states=kept_states(tmp_path)), expected)
    for shard in map(states_path, answer_shards(tmp_path)):  # whichever lacks its states
        away = shard.rename(tmp_path / "away")
        states = kept_states(tmp_path)
        away.rename(shard)
        assert len(states) in (5, 10)
        assert_like(make_corpus(pair, found, PROMPTS, states=states), expected)


def test_states_of_another_width_are_refused(pair: Pair, answers: list[Answer]) -> None:
    text = answers[0].prompt_ids + answers[0].answer_ids
    with pytest.raises(CorpusError, match=r"states must be \d+ wide, as this target's are, got 3"):
        make_corpus(pair, answers, PROMPTS, states={text: torch.zeros(len(text), 3)})


def assert_like(made: RecycledCorpus, expected: RecycledCorpus) -> None:
    """Equal but for rounding of probabilities to float16."""
    assert np.array_equal(made.contexts, expected.contexts) and np.array_equal(made.tokens, expected.tokens)
    assert np.allclose(made.probs, expected.probs, atol=1e-3)


def test_twice_the_same(pair: Pair, answers: list[Answer]) -> None:
    assert make_corpus(pair, answers, PROMPTS).sha256 == make_corpus(pair, answers, PROMPTS).sha256


def test_only_answers_to_these_very_prompts_are_taken(pair: Pair, answers: list[Answer], tmp_path: Path) -> None:
    empty = replace(answers[0], key="empty", answer_ids=())
    write_answers(tmp_path, [*answers[5:], empty])
    write_answers(tmp_path, answers[:6])
    assert answers_to(pair, PROMPTS, tmp_path) == answers  # by key, each once
    assert answers_to(pair, PROMPTS[:1], tmp_path) == answers[::4]
    other_text = replace(PROMPTS[0], text="say something else")
    assert answers_to(pair, [other_text, PROMPTS[1]], tmp_path) == answers[1::4]
    with pytest.raises(
        CorpusError, match=r"answers must be a folder with answers to these 1 prompts.* with 11 answers"
    ):
        answers_to(pair, [other_text], tmp_path)


def test_a_folder_without_answers_is_refused(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"as `treewise distill` leaves it, got '.*nowhere' with 0 answers"):
        answers_to(pair, PROMPTS, tmp_path / "nowhere")


def test_a_token_that_the_target_does_not_have_is_refused(pair: Pair, answers: list[Answer], tmp_path: Path) -> None:
    write_answers(tmp_path, [replace(answers[0], answer_ids=(70, 300))])
    with pytest.raises(CorpusError, match=r"with 258 tokens, got id 300"):
        answers_to(pair, PROMPTS, tmp_path)


def test_settings_are_checked_before_the_pass(pair: Pair, answers: list[Answer]) -> None:
    with pytest.raises(ParameterError, match="min_occurrences must be >= 1, got 0"):
        make_corpus(pair, answers, PROMPTS, min_occurrences=0)
    with pytest.raises(ParameterError, match="answers must be texts with at least one token"):
        make_corpus(pair, [], PROMPTS)
