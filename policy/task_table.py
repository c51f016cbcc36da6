"""A table of starting settings by task: what a person reads and edits, and what the rule that obeys it loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treewise.data.errors import ParameterError, SchemaVersionError, require
from treewise.data.task_kinds import kind_of
from treewise.data.whole_file import write_whole
from treewise.policy.table_file import read_table
from treewise.policy.task_recogniser import UNKNOWN, TaskRecogniser

SCHEMA_VERSION = 1
KIND = "treewise-task-table"


@dataclass(frozen=True, slots=True)
class TaskTable:
    """A spec string of a rule for each task, and one for prompts of no known task."""

    settings: Mapping[str, str]  # task -> spec string; holds `UNKNOWN`
    recogniser_file: str = ""  # beside the table's own file, or absolute; empty: callers name the task
    recogniser_sha256: str = ""  # empty: any recogniser will do
    fitted: Mapping[str, Any] = field(default_factory=dict)  # how it was fitted, for people

    def __post_init__(self) -> None:
        texts = all(isinstance(part, str) and part.strip() for pair in self.settings.items() for part in pair)
        require(texts, "settings", "spec strings by task", dict(self.settings))
        require(UNKNOWN in self.settings, "settings", f"a table that holds {UNKNOWN!r}", sorted(self.settings))
        for name in ("recogniser_file", "recogniser_sha256"):
            require(isinstance(getattr(self, name), str), name, "a string", getattr(self, name))

    def row_of(self, task: str) -> str:
        """The row that `task` is decided by: its own, that of another name of its kind, or `UNKNOWN`'s."""
        if task in self.settings:
            return task
        kind = kind_of(task)
        return next((row for row in self.settings if kind and kind_of(row) == kind), UNKNOWN)

    @property
    def origin(self) -> tuple[str, ...]:
        """The traces it was fitted on, each a name and a content hash; none in a table made by hand."""
        traces = self.fitted.get("traces", ())
        return tuple(str(line) for line in traces) if isinstance(traces, list) else ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        recogniser = {"file": self.recogniser_file, "sha256": self.recogniser_sha256} if self.recogniser_file else None
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "recogniser": recogniser,
            "settings": dict(self.settings),
            "fitted": dict(self.fitted),
        }

    def save(self, path: str | Path) -> None:
        """Write the file, to be edited by hand; missing folders are made."""
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def from_json(cls, value: object) -> TaskTable:
        """What `to_json` wrote. Raises `ParameterError`, and `SchemaVersionError` on another version."""
        if not isinstance(value, dict) or value.get("kind") != KIND:
            kind = value.get("kind") if isinstance(value, dict) else type(value).__name__
            raise ParameterError(f"table must be a JSON object of kind {KIND}, got {kind!r}")
        if value.get("schema_version") != SCHEMA_VERSION:
            cure = "fit it again with `treewise tasks fit`"
            raise SchemaVersionError("task table", value.get("schema_version"), SCHEMA_VERSION, cure)
        unknown = sorted(set(value) - {"kind", "schema_version", "recogniser", "settings", "fitted"})
        require(not unknown, "table", "of recogniser, settings and fitted", unknown)
        settings, recogniser, fitted = (_object(value, name) for name in ("settings", "recogniser", "fitted"))
        unknown = sorted(set(recogniser) - {"file", "sha256"})
        require(not unknown, "recogniser", "of file and sha256", unknown)
        return cls(settings, recogniser.get("file", ""), recogniser.get("sha256", ""), fitted)

    @classmethod
    def load(cls, path: str | Path) -> TaskTable:
        """The table in a JSON file. Raises `ParameterError` and `SchemaVersionError`."""
        return cls.from_json(read_table(path))

    def load_recogniser(self, table_path: str | Path) -> TaskRecogniser | None:
        """The recogniser that the table in `table_path` names; None where it names none.

        Raises `ParameterError` where it is missing, damaged or another than the table was fitted with.
        """
        if not self.recogniser_file:
            return None
        found = TaskRecogniser.load(Path(table_path).parent / self.recogniser_file)
        rule = f"that of the table, {self.recogniser_sha256[:12]} (fit the table again, or empty its sha256)"
        require(self.recogniser_sha256 in ("", found.sha256), "recogniser", rule, found.sha256[:12])
        return found


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The JSON object under `name`; empty where there is none, or null."""
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ParameterError(f"{name} must be a JSON object, got {type(found).__name__!r}")
    return found


def told_task(policy: object, label: str, text: str) -> str:
    """The kind of task that `policy` is to be told of a request: its recogniser's word on `text`, else `label`.

    Policies without a recogniser are told what the caller says; so is one with a recogniser where there is no text.
    """
    recogniser = getattr(getattr(policy, "policy", policy), "recogniser", None)  # a contained policy's own
    if not isinstance(recogniser, TaskRecogniser) or not text:
        return label
    return recogniser.recognise(text).task
