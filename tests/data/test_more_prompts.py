"""The drawn prompts: distinct, balanced, filled, and apart from what policies are tuned and judged on."""

import json
import random
import re
from collections import Counter

import pytest

from treewise.data import more_prompts
from treewise.data.more_prompts import SEED, TASK_SOURCES, more_records
from treewise.data.own_prompts.choices import Choices
from treewise.data.own_prompts.forms import Forms, items, lines, unfilled
from treewise.data.own_prompts.json_schemas import SchemaDocuments
from treewise.data.own_prompts.openers import OPENERS
from treewise.data.own_prompts.python_exercises import exercises
from treewise.data.own_prompts.subjects import SUBJECTS
from treewise.data.own_prompts.tool_calls import ToolCalls
from treewise.data.prompt_set import DRAWN_SPLIT, OWN_SPLITS, Prompt, own_prompts, prompts_sha256
from treewise.data.prompts_source import TASK_FAMILIES


@pytest.fixture(scope="module")
def drawn() -> tuple[Prompt, ...]:
    return own_prompts(DRAWN_SPLIT)


def test_what_ships_was_made_from_stays_as_it_is() -> None:
    # The first sixteen digits; shipped traces, corpus and draft name the whole.
    made_from = {split: prompts_sha256(own_prompts(split))[:16] for split in OWN_SPLITS}
    assert made_from == {
        "distill": "fac3fbf0b761bfd2",
        "policy": "af17c2a2c0da4863",
        "demo": "a6c56fdade6a472f",
        "judge": "6b3f428cfa686526",
    }


def test_there_are_thousands_of_distinct_texts_with_ids_of_their_own(drawn: tuple[Prompt, ...]) -> None:
    assert len(drawn) >= 6000
    assert len({prompt.text for prompt in drawn}) == len({prompt.id for prompt in drawn}) == len(drawn)
    assert {prompt.split for prompt in drawn} == {DRAWN_SPLIT}


def test_none_is_a_packaged_prompt(drawn: tuple[Prompt, ...]) -> None:
    packaged = own_prompts()
    assert DRAWN_SPLIT not in {prompt.split for prompt in packaged}
    assert not {prompt.id for prompt in packaged} & {prompt.id for prompt in drawn}
    assert not {_bare(prompt.text) for prompt in packaged} & {_bare(prompt.text) for prompt in drawn}


def test_drawing_again_gives_the_same(drawn: tuple[Prompt, ...]) -> None:
    again = more_records()
    assert [entry["prompt"] for entry in again] == [prompt.text for prompt in drawn]


@pytest.mark.parametrize("size", [9, 90, 900, 3600])
def test_any_prefix_is_balanced(drawn: tuple[Prompt, ...], size: int) -> None:
    assert set(TASK_SOURCES) == set(TASK_FAMILIES)
    assert set(Counter(prompt.task for prompt in drawn[:size]).values()) == {size // len(TASK_SOURCES)}


def test_a_prefix_holds_every_kind_of_its_task(drawn: tuple[Prompt, ...]) -> None:
    kinds = sum(len(source.draw(SEED, SUBJECTS)) for source in TASK_SOURCES["instruction"])
    first = [prompt.text for prompt in drawn if prompt.task == "instruction"][: 2 * kinds]
    assert any(text.startswith("Write a recipe for") for text in first)
    assert any(text.startswith("Design a system that") for text in first)


def test_every_slot_is_filled(drawn: tuple[Prompt, ...]) -> None:
    lists = dict(SUBJECTS)
    for sources in TASK_SOURCES.values():
        for source in sources:
            if isinstance(source, Forms):
                lists.update(source.slots)
    assert [prompt.text for prompt in drawn if unfilled(prompt.text, lists)] == []
    assert [prompt.text for prompt in drawn if "¶" in prompt.text or "a(n)" in prompt.text] == []


def test_lengths(drawn: tuple[Prompt, ...]) -> None:
    lengths = [len(prompt.text) for prompt in drawn]
    assert min(lengths) >= 8 and max(lengths) <= 4000
    assert 80 <= sum(lengths) / len(lengths) <= 400


def test_a_new_form_leaves_ids_and_texts_alone(drawn: tuple[Prompt, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    more = Forms(lines("Name a river in {country}.\nName a lake in {country}."), 5)
    monkeypatch.setitem(more_prompts.TASK_SOURCES, "chat", (more, *TASK_SOURCES["chat"]))
    known = {prompt.id: prompt.text for prompt in drawn}
    now = {entry["id"]: entry["prompt"] for entry in more_records()}
    assert known.items() <= now.items()
    assert len(now) == len(known) + 10


def test_forms_fill_lists_numbers_and_lists_within_lists() -> None:
    slots = {"who": ("an owl", "a hen"), "what": ("{who} and {who2}",)}
    forms = Forms(
        ('{Who}: {what} {3..5} {keep} {"who"}', "a(n) {fruit}", "{10..30/10}"), 6, {**slots, "fruit": ("apple", "fig")}
    )
    first, second, third = forms.draw("s", {})
    shape = re.compile(r'A(n owl: an owl and a hen| hen: a hen and an owl) [345] \{keep\} \{"who"\}')
    assert len(first) > 1 and all(shape.fullmatch(text) for text in first)
    assert sorted(second) == ["a fig", "an apple"]
    assert set(third) <= {"10", "20", "30"}
    assert forms.draw("s", {}) == [first, second, third]
    assert forms.draw("t", {}) != [first, second, third]


def test_lists_are_read_as_written() -> None:
    assert items("a b;  c\n d ; ") == ("a b", "c d")
    assert lines(" one¶two \n\n three  four\n") == ("one\ntwo", "three four")


def test_exercises_show_what_a_right_solution_gives() -> None:
    found = {exercise.name: exercise for exercise in exercises()}
    assert len(found) == len(exercises())
    assert dict(found["sum_even"].cases)["[3, 8, -5, 12, 9, 44]"] == "64"
    assert dict(found["remove_vowels"].cases)["'hello world'"] == "'hll wrld'"
    assert dict(found["roman_value"].cases)["'XIV'"] == "14"
    assert found["is_leap"].returns == "bool" and found["share_odd"].returns == "float"
    for exercise in found.values():
        compile(exercise.stub(random.Random(0)), exercise.name, "exec")
        compile(exercise.checks(random.Random(0)), exercise.name, "exec")


def test_options_hold_the_right_one_once() -> None:
    _, _, facts = Choices().draw("s", {})
    asked = next(text for text in facts if "heptagon" in text)
    assert sorted(re.findall(r"^[A-D]\. (\w+)$", asked, re.MULTILINE)) == ["eight", "nine", "seven", "six"]


def test_tools_and_schemas_are_json() -> None:
    requests = ToolCalls(60).draw("s", SUBJECTS)[0]
    tools = [json.JSONDecoder().raw_decode(text[text.index("[{" if "[{" in text else "[\n") :])[0] for text in requests]
    assert {len(offered) for offered in tools} == {1, 2, 4}
    for offered in tools:
        for tool in offered:
            assert set(tool["parameters"]["required"]) <= set(tool["parameters"]["properties"])
    for text in SchemaDocuments(2).draw("s", {})[0]:
        schema = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
        assert set(schema["required"]) <= set(schema["properties"])


def test_openers_cover_every_task_and_differ() -> None:
    assert set(OPENERS) == set(TASK_FAMILIES)
    every = [opener for openers in OPENERS.values() for opener in openers]
    assert len(every) == len(set(every)) >= 250


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
