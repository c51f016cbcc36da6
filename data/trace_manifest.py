"""The manifest of a trace: under which conditions every round in it was made."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import SchemaVersionError, TraceError, require
from treewise.data.stored_json import check_names, read_object
from treewise.data.trace_columns import SCHEMA_VERSION

MANIFEST_NAME = "manifest.json"
SHARDS_NAME = "shards"
ROUNDS_NAME = "rounds.parquet"
NODES_NAME = "nodes.parquet"
TEMPORARY_PREFIX = ".tmp-"
IDENTITY_KEY = b"treewise.trace"  # file metadata: the identity of the manifest

INCIDENTAL = ("created", "command")  # may differ between two runs that write into the same trace

EXACT = "exact"  # the verification rule under which another policy commits the same text
VERIFICATIONS = (EXACT, "relaxed-top-n", "threshold")  # names; a lossy rule carries its number behind a colon

_KINDS = ("live", "dense")
_DRAFT_READS = ("prefix", "target_features", "none")
_TEXTS = ("tokenizer_hash", "ranking", "verification", "device", "created", "command")


@dataclass(frozen=True, slots=True)
class TraceManifest:
    """Conditions of a trace; a folder holds rounds of one manifest only. Raises `ParameterError` on a bad value."""

    kind: Literal["live", "dense"]
    pair: dict[str, Any]  # JSON description of target, draft and tokenizer
    tokenizer_hash: str
    envelope: Envelope
    prior_table: PriorTable
    vocab_size: int
    max_new_tokens: int
    seed: int = 0
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    typical_p: float = 1.0  # 1: off
    policy: str | None = None  # spec string of a live trace's policy; None in a dense trace
    draft_reads: str = "prefix"  # or "target_features", or "none" without a draft
    suffix_corpus_hash: str | None = None  # of the frozen corpus behind the lookup
    recycled_corpus_hash: str | None = None  # of the frozen corpus behind the recycled guesses
    ranking: str = "plain"
    verification: str = EXACT
    tokens_included: bool = True  # False: token ids read -1
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "unknown"
    created: str = ""  # ISO 8601
    input_hashes: dict[str, str] = field(default_factory=dict)  # SHA-256, in hex, by name of the input
    command: str = ""

    def __post_init__(self) -> None:
        require(self.kind in _KINDS, "kind", f"one of {', '.join(_KINDS)}", self.kind)
        require(isinstance(self.pair, dict), "pair", "a mapping", self.pair)
        for name in _TEXTS:
            require(isinstance(getattr(self, name), str), name, "a string", getattr(self, name))
        for name in ("policy", "suffix_corpus_hash", "recycled_corpus_hash"):
            value = getattr(self, name)
            require(value is None or isinstance(value, str), name, "a string or None", value)
        require(_is_whole(self.vocab_size) and self.vocab_size >= 1, "vocab_size", ">= 1", self.vocab_size)
        require(
            _is_whole(self.max_new_tokens) and self.max_new_tokens >= 1, "max_new_tokens", ">= 1", self.max_new_tokens
        )
        require(_is_whole(self.seed) and -(2**63) <= self.seed < 2**63, "seed", "a 64-bit integer", self.seed)
        rule = self.verification.partition(":")[0]
        require(rule in VERIFICATIONS, "verification", f"one of {', '.join(VERIFICATIONS)}", self.verification)
        warm = _is_number(self.temperature) and self.temperature >= 0
        require(warm, "temperature", "finite and >= 0", self.temperature)
        require(_is_whole(self.top_k) and self.top_k >= 0, "top_k", ">= 0", self.top_k)
        require(_is_number(self.top_p) and 0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p)
        require(_is_number(self.min_p) and 0 <= self.min_p <= 1, "min_p", "between 0 and 1", self.min_p)
        typical = _is_number(self.typical_p) and 0 < self.typical_p <= 1
        require(typical, "typical_p", "above 0 and at most 1", self.typical_p)
        require(self.draft_reads in _DRAFT_READS, "draft_reads", f"one of {', '.join(_DRAFT_READS)}", self.draft_reads)
        require(isinstance(self.tokens_included, bool), "tokens_included", "True or False", self.tokens_included)
        for name in ("versions", "input_hashes"):
            value = getattr(self, name)
            texts = isinstance(value, dict) and all(isinstance(text, str) for text in (*value, *value.values()))
            require(texts, name, "a mapping of strings", value)
        require(isinstance(self.envelope, Envelope), "envelope", "an Envelope", self.envelope)
        require(isinstance(self.prior_table, PriorTable), "prior_table", "a PriorTable", self.prior_table)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_json` reads it back."""
        parts: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        parts.update((item.name, getattr(self, item.name)) for item in fields(self))
        parts["envelope"] = self.envelope.to_json()
        parts["prior_table"] = list(self.prior_table.by_match_length)
        return parts

    @classmethod
    def from_json(cls, value: object) -> TraceManifest:
        """The manifest that `to_json` wrote.

        Raises `SchemaVersionError` on another version and `TraceError` on missing, unknown or bad entries.
        """
        if not isinstance(value, dict):
            raise TraceError(f"trace manifest must be a JSON object, got {type(value).__name__}")
        found = value.get("schema_version")
        if found != SCHEMA_VERSION:
            cure = "collect the trace again with `treewise collect`, or read it with the treewise that wrote it"
            raise SchemaVersionError("trace manifest", found, SCHEMA_VERSION, cure)
        parts = {name: part for name, part in value.items() if name != "schema_version"}
        check_names(parts, cls.__dataclass_fields__, "trace manifest", TraceError)
        try:
            parts["envelope"] = Envelope.from_json(parts["envelope"])
            parts["prior_table"] = PriorTable(tuple(float(prior) for prior in parts["prior_table"]))
            return cls(**parts)
        except (TypeError, ValueError, OverflowError) as error:
            raise TraceError(f"trace manifest: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the manifest as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> TraceManifest:
        """The manifest of the trace in `folder`. Raises `TraceError` where there is none that can be read."""
        path = Path(folder) / MANIFEST_NAME
        if not path.is_file():
            raise TraceError(f"trace must be a folder with a {MANIFEST_NAME}, got {str(folder)!r}")
        return cls.from_json(read_object(path, "trace manifest", TraceError))

    def identity(self) -> str:
        """SHA-256, in hex, of everything but `created` and `command`; each shard carries it."""
        parts = {name: part for name, part in self.to_json().items() if name not in INCIDENTAL}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()

    def differences(self, other: TraceManifest) -> list[str]:
        """Where `other` disagrees, in words, `created` and `command` aside; empty for the same conditions."""
        mine, theirs = self.to_json(), other.to_json()
        return [
            f"{name} {mine[name]!r} != {theirs[name]!r}"
            for name in mine
            if name not in INCIDENTAL
            and json.dumps(mine[name], sort_keys=True) != json.dumps(theirs[name], sort_keys=True)
        ]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
