"""Expands the hand-written templates to the own prompt set; run as a module, it rewrites the packaged file."""

import itertools
import json
import sys
from pathlib import Path

from treewise.data.own_prompts import (
    chat,
    creative,
    instruction,
    judge,
    knowledge,
    rag,
    reasoning,
    structured,
    summarization,
    translation,
)
from treewise.data.own_prompts.family import Family

SEED = "treewise-own-prompts-1"
SPLITS = ("distill", "policy", "demo", "judge")
TASK_FAMILIES: dict[str, tuple[Family, ...]] = {
    "knowledge": (*knowledge.FAMILIES, *judge.FAMILIES["knowledge"]),
    "reasoning": (*reasoning.FAMILIES, *judge.FAMILIES["reasoning"]),
    "creative": (*creative.FAMILIES, *judge.FAMILIES["creative"]),
    "structured": (*structured.FAMILIES, *judge.FAMILIES["structured"]),
    "instruction": (*instruction.FAMILIES, *judge.FAMILIES["instruction"]),
    "translation": (*translation.FAMILIES, *judge.FAMILIES["translation"]),
    "summarization": (*summarization.FAMILIES, *judge.FAMILIES["summarization"]),
    "rag": (*rag.FAMILIES, *judge.FAMILIES["rag"]),
    "chat": (*chat.FAMILIES, *judge.FAMILIES["chat"]),
}


def own_records() -> list[dict[str, str]]:
    """The records of the set, split by split; within a split the tasks take turns, so that any prefix is balanced."""
    numbers = dict.fromkeys(TASK_FAMILIES, 0)
    records: list[dict[str, str]] = []
    for split in SPLITS:
        columns = [[(task, text) for text in _texts(task, split)] for task in TASK_FAMILIES]
        for row in itertools.zip_longest(*columns):
            for task, text in filter(None, row):
                records.append({"id": f"own/{task}/{numbers[task]}", "task": task, "split": split, "prompt": text})
                numbers[task] += 1
    return records


def own_jsonl() -> str:
    """The set as JSON Lines, as committed in `prompts/own.jsonl`."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in own_records())


def _texts(task: str, split: str) -> list[str]:
    """The prompts of one task and split, the families interleaved in proportion to their sizes."""
    spread: list[tuple[float, str]] = []
    for index, family in enumerate(TASK_FAMILIES[task]):
        if family.split == split:
            texts = family.expand(f"{SEED}/{task}/{split}/{index}")
            spread.extend(((rank + 0.5) / len(texts), text) for rank, text in enumerate(texts))
    spread.sort(key=lambda item: item[0])
    return list(dict.fromkeys(text for _, text in spread))


if __name__ == "__main__":
    target = Path(__file__).with_name("prompts") / "own.jsonl"
    target.write_text(own_jsonl(), encoding="utf-8")
    sys.stdout.write(f"{target}: {len(own_records())} prompts\n")
