"""Prompt files are read strictly, and the packaged set is what its templates expand to."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from treewise.data.errors import ParameterError, PromptError
from treewise.data.own_prompts.family import Family
from treewise.data.own_prompts.openers import OPENERS
from treewise.data.prompt_set import OWN_SPLITS, Prompt, own_prompts, prompts_sha256, read_prompts
from treewise.data.prompts_source import TASK_FAMILIES, own_jsonl, own_records

GOOD = {"id": "a/1", "task": "chat", "prompt": "Hello there"}


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}


def test_reads_fields_and_optional_split(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", {**GOOD, "source": "ignored"}, {**GOOD, "id": "a/2", "split": "train"})
    first, second = Prompt("a/1", "chat", "Hello there", ""), Prompt("a/2", "chat", "Hello there", "train")
    assert read_prompts(file) == (first, second)
    assert read_prompts(str(file)) == read_prompts(file)


def test_tests_are_a_text_or_its_lines(tmp_path: Path) -> None:
    lines = ["assert f(1) == 2", "assert f(2) == 3"]
    given: list[object] = ["\n".join(lines), lines, None]
    file = write(tmp_path / "p.jsonl", *({**GOOD, "id": str(n), "tests": tests} for n, tests in enumerate(given)), GOOD)
    assert [prompt.tests for prompt in read_prompts(file)] == ["\n".join(lines), "\n".join(lines), "", ""]


def test_line_separator_inside_a_prompt_is_text(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({**GOOD, "prompt": "one\u2028two"}, ensure_ascii=False), encoding="utf-8")
    assert [prompt.text for prompt in read_prompts(file)] == ["one\u2028two"]


def test_folder_is_read_in_name_order_and_other_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", {**GOOD, "id": "b"})
    write(tmp_path / "a.jsonl", {**GOOD, "id": "a"})
    (tmp_path / "README.md").write_text("not a prompt", encoding="utf-8")
    assert [prompt.id for prompt in read_prompts(tmp_path)] == ["a", "b"]


def test_id_must_be_unique_over_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", GOOD)
    write(tmp_path / "b.jsonl", {**GOOD, "id": "x"}, GOOD)
    with pytest.raises(PromptError, match=r"b\.jsonl:2: id must be unique, got 'a/1' again after .*a\.jsonl:1"):
        read_prompts(tmp_path)


@pytest.mark.parametrize(
    ("second_line", "message"),
    [
        (b"{broken", r"p\.jsonl:2: line must be a JSON object, got '\{broken'"),
        (b"[1, 2]", r"p\.jsonl:2: line must be a JSON object, got \[1, 2\]"),
        (b"", r"p\.jsonl:2: line must be a JSON object, got ''"),
        (b"[" * 100_000, r"p\.jsonl:2: line must be a JSON object, got '\[\[.*\.\.\."),
        (b'{"id": "b", "task": "chat"}', r"p\.jsonl:2: prompt must be a non-empty string, got None"),
        (b'{"id": "b", "task": "t", "prompt": " \\n"}', r"p\.jsonl:2: prompt must be a non-empty string, got ' \\n'"),
        (b'{"id": 7, "task": "chat", "prompt": "x"}', r"p\.jsonl:2: id must be a non-empty string, got 7"),
        (b'{"id": "b", "task": "", "prompt": "x"}', r"p\.jsonl:2: task must be a non-empty string, got ''"),
        (b'{"id": "b", "task": "t", "prompt": "x", "split": 1}', r"p\.jsonl:2: split must be a string, got 1"),
        (b'{"id": "b", "task": "t", "prompt": "\\ud800"}', r"p\.jsonl:2: prompt must be encodable as UTF-8"),
        (b'{"id": "b", "task": "t", "prompt": "x", "tests": 3}', r"p\.jsonl:2: tests must be a string or a list of"),
        (b'{"id": "b", "task": "t", "prompt": "x", "tests": ["a", 3]}', r"list of strings, got \['a', 3\]"),
        (b"\xff", r"p\.jsonl:2: text must be UTF-8, got byte b'\\xff'"),
    ],
)
def test_malformed_line_is_named(tmp_path: Path, second_line: bytes, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + second_line + b"\n")
    with pytest.raises(PromptError, match=message):
        read_prompts(file)


def test_missing_and_empty_paths(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"path must be an existing prompt file or folder, got '.*none\.jsonl'"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(PromptError, match=r"folder must hold at least one \.jsonl file, got none"):
        read_prompts(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(PromptError, match=r"empty\.jsonl: file must hold at least one prompt, got none"):
        read_prompts(tmp_path)


def test_packaged_file_is_what_the_templates_expand_to() -> None:
    packaged = resources.files("treewise.data").joinpath("prompts", "own.jsonl").read_text(encoding="utf-8")
    assert packaged == own_jsonl()
    assert own_records() == own_records()


def test_own_prompts_by_split() -> None:
    everything = own_prompts()
    assert everything == tuple(itertools.chain.from_iterable(own_prompts(split) for split in OWN_SPLITS))
    assert {prompt.split for prompt in own_prompts("policy")} == {"policy"}
    with pytest.raises(
        ParameterError,
        match="split must be None or one of distill, policy, demo, judge, distill-more, self, got 'test'",
    ):
        own_prompts("test")


def test_prompts_of_the_target_itself_are_named_by_their_text_and_nowhere_else() -> None:
    written = own_prompts("self")
    assert len(written) > 400 and {prompt.split for prompt in written} == {"self"}
    assert set(TASK_FAMILIES) >= {prompt.task for prompt in written}
    texts = {prompt.text for prompt in (*own_prompts(), *own_prompts("distill-more"))}
    assert not texts & {prompt.text for prompt in written}
    packaged = resources.files("treewise.data").joinpath("prompts", "self.jsonl").read_text(encoding="utf-8")
    for line in packaged.splitlines():
        record = json.loads(line)
        assert record["opener"] in OPENERS[record["task"]] and record["prompt"].startswith(record["opener"])


def test_every_task_is_in_every_split() -> None:
    counts = Counter((prompt.task, prompt.split) for prompt in own_prompts())
    for task in TASK_FAMILIES:
        assert counts[task, "distill"] >= 60
        assert counts[task, "policy"] == 10
        assert counts[task, "demo"] == 1
        assert counts[task, "judge"] == 4
    assert len(counts) == len(TASK_FAMILIES) * len(OWN_SPLITS)


def test_any_prefix_of_distill_is_balanced() -> None:
    counts = Counter(prompt.task for prompt in own_prompts("distill")[:90])
    assert set(counts.values()) == {10}


def test_texts_differ_and_no_slot_is_left_unfilled() -> None:
    texts = [prompt.text for prompt in own_prompts()]
    assert len(set(texts)) == len(texts)
    names = {name for families in TASK_FAMILIES.values() for family in families for name in family.slots}
    assert not [text for text in texts if any("{" + name + "}" in text for name in names)]
    assert all(10 <= len(text.split()) <= 250 for text in texts)


def test_splits_share_no_near_duplicates() -> None:
    marked = [(prompt.split, prompt.id, shingles(prompt.text)) for prompt in own_prompts()]
    close = [
        (one[1], two[1])
        for one, two in itertools.combinations(marked, 2)
        if one[0] != two[0] and len(one[2] & two[2]) >= 0.5 * len(one[2] | two[2])
    ]
    assert close == []


def test_family_fills_slots_and_spreads_the_first_one() -> None:
    family = Family("distill", ("{a}{b} {}", "{b}-{a}"), {"a": ("x", "y", "z"), "b": ("1", "2")}, 6)
    texts = family.expand("seed")
    assert texts == family.expand("seed")
    assert Counter(letter for text in texts for letter in text if letter in "xyz") == {"x": 2, "y": 2, "z": 2}
    assert set(texts) <= {f"{a}{b} {{}}" for a in "xyz" for b in "12"} | {f"{b}-{a}" for a in "xyz" for b in "12"}
    assert len(Family("distill", family.templates, family.slots).expand("seed")) == 12


def test_sha256_sees_every_field_and_the_order() -> None:
    one, two = Prompt("a", "b", "c", "d"), Prompt("e", "b", "c", "d")
    variants = [
        [one, two],
        [two, one],
        [one],
        [],
        [Prompt("ab", "", "c", "d")],
        [Prompt("a", "b", "cd", "")],
        [Prompt("a", "b", "x", "d")],
        [Prompt("a", "x", "c", "d")],
        [Prompt("a", "b", "c", "x")],
        [Prompt("a", "b", "c", "d", "x")],
    ]
    assert len({prompts_sha256(variant) for variant in variants}) == len(variants)
    assert prompts_sha256([one]) == prompts_sha256(iter([Prompt("a", "b", "c", "d")]))
