"""The target's recycled guesses: what it ranked high the last times it saw the same last tokens.

Verification computes the target's distribution behind every committed token anyway, and the next time these tokens
end a context its best candidates are likely again: a free source of guesses, branching where the suffix lookup knows
one continuation (Token Recycling: X. Luo and others, arXiv 2408.08696, who keep a matrix by the last token alone). Here
contexts are the last one, two and three tokens, and two memories stand behind each other: a frozen corpus, made once
from the target's answers, and the request's own text.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treewise.data.errors import CorpusError, ParameterError, SchemaVersionError, require
from treewise.data.recycled_blend import BITS, LAST, NO_BLEND, Blend, Entry
from treewise.data.recycled_blend import MAX_RECYCLED as MAX_RECYCLED
from treewise.data.recycled_blend import ORDERS as ORDERS
from treewise.data.recycled_blend import Recycled as Recycled
from treewise.data.recycled_blend import pack as pack
from treewise.data.whole_file import naming

CORPUS_NAME = "corpus.parquet"
SCHEMA_VERSION = 1
OWN_ORDERS = 2  # of the request's own; longer ones are the suffix lookup's
TOP = 8  # candidates that are remembered behind one context
CACHED_CONTEXTS = 8192  # of a corpus, kept decoded and blended
OWN_WEIGHT = 3.0  # occurrences of the corpus that one of the request counts for
MAX_VOCABULARY = 1 << BITS
_SCHEMA = pa.schema(
    [
        pa.field("context", pa.int64(), nullable=False),
        pa.field("occurrences", pa.int32(), nullable=False),
        pa.field("tokens", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("probs", pa.list_(pa.field("item", pa.float32(), nullable=False)), nullable=False),
    ]
)
_META = b"treewise.corpus"
_UNASKED: Entry = (0.0, {})


@dataclass(frozen=True, slots=True, eq=False)
class RecycledCorpus:
    """A frozen memory: contexts of the last one to three tokens, and the target's mean distribution behind each."""

    contexts: NDArray[np.int64]  # [contexts] packed, ascending
    occurrences: NDArray[np.int32]  # [contexts]
    offsets: NDArray[np.int64]  # [contexts + 1] into tokens and probs
    tokens: NDArray[np.int32]  # [entries] most probable first
    probs: NDArray[np.float32]  # [entries]
    vocab_size: int
    tokenizer_sha256: str
    provenance: dict[str, Any] = field(default_factory=dict)
    _entries: dict[int, Entry | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _blends: dict[int, Blend] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.vocab_size, int) and 1 <= self.vocab_size < MAX_VOCABULARY
        require(whole, "vocab_size", f"between 1 and {MAX_VOCABULARY - 1}", self.vocab_size)
        count, entries = len(self.contexts), len(self.tokens)
        offsets = self.offsets
        rises = len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] == entries == len(self.probs)
        rises = rises and bool((np.diff(offsets) >= 0).all()) and len(self.occurrences) == count
        if not rises:
            raise CorpusError(f"corpus offsets must part {entries} entries among {count} contexts, got {offsets!r}")
        ordered = not count or (self.contexts[0] > 0 and bool((np.diff(self.contexts) > 0).all()))
        if not ordered:
            raise CorpusError("corpus contexts must be ascending and above 0")
        if not bool((self.occurrences >= 1).all()):
            raise CorpusError("corpus occurrences must be at least 1")
        sound = not entries or (self.tokens.min() >= 0 and self.tokens.max() < self.vocab_size)
        if not sound:
            raise CorpusError(f"corpus tokens must be between 0 and {self.vocab_size - 1}")
        if not bool(((self.probs >= 0.0) & (self.probs <= 1.0)).all()):  # NaN too
            raise CorpusError("corpus probabilities must be between 0 and 1")

    def __len__(self) -> int:
        """Contexts."""
        return len(self.contexts)

    @property
    def sha256(self) -> str:
        """SHA-256, in hex, of what it says."""
        digest = hashlib.sha256(f"{SCHEMA_VERSION}:{self.vocab_size}:{self.tokenizer_sha256}".encode())
        for part in (self.contexts, self.occurrences, self.offsets, self.tokens, self.probs):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def entry(self, packed: int) -> Entry | None:
        """What follows the packed context, None where it is not known."""
        entries = self._entries
        cached = entries.get(packed, _UNASKED)
        if cached is not _UNASKED:
            return cached
        if len(entries) >= CACHED_CONTEXTS:
            entries.clear()
        contexts = self.contexts.data  # bisected several times faster than numpy searches for one number
        at = bisect_left(contexts, packed)
        found: Entry | None = None
        if at < len(contexts) and contexts[at] == packed:
            start, end = self.offsets[at : at + 2].tolist()
            probs = dict(zip(self.tokens[start:end].tolist(), self.probs[start:end].tolist(), strict=True))
            found = float(self.occurrences[at]), probs
        entries[packed] = found
        return found

    def blend(self, packed: int, order: int) -> Blend:
        """What the corpus alone says behind the packed context of `order` tokens."""
        found = self._blends.get(packed)
        if found is None:
            shorter = self.blend(packed & LAST[order - 1], order - 1) if order > 1 else NO_BLEND
            found = shorter.behind(order, self.entry(packed))
            if len(self._blends) >= CACHED_CONTEXTS:
                self._blends.clear()
            self._blends[packed] = found
        return found

    @classmethod
    def build(
        cls,
        entries: Mapping[int, tuple[int, Sequence[int], Sequence[float]]],
        vocab_size: int,
        tokenizer_sha256: str,
        provenance: Mapping[str, Any] | None = None,
    ) -> RecycledCorpus:
        """A corpus of packed context -> (occurrences, tokens, probabilities), most probable first."""
        keys = sorted(entries)
        lengths = [len(entries[key][1]) for key in keys]
        return cls(
            contexts=np.asarray(keys, dtype=np.int64),
            occurrences=np.asarray([entries[key][0] for key in keys], dtype=np.int32),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            tokens=np.asarray([token for key in keys for token in entries[key][1]], dtype=np.int32),
            probs=np.asarray([prob for key in keys for prob in entries[key][2]], dtype=np.float32),
            vocab_size=vocab_size,
            tokenizer_sha256=tokenizer_sha256,
            provenance=dict(provenance or {}),
        )

    def save(self, folder: str | Path) -> Path:
        """Write `corpus.parquet` into `folder` and return its path."""
        path = Path(folder) / CORPUS_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = {
            "schema_version": SCHEMA_VERSION,
            "vocab_size": self.vocab_size,
            "tokenizer_sha256": self.tokenizer_sha256,
            "provenance": self.provenance,
        }
        lists = [pa.ListArray.from_arrays(self.offsets.astype(np.int32), part) for part in (self.tokens, self.probs)]
        table = pa.table([pa.array(self.contexts), pa.array(self.occurrences), *lists], schema=_SCHEMA)
        table = table.replace_schema_metadata({_META: json.dumps(meta, sort_keys=True).encode()})
        temporary = path.with_suffix(".tmp")
        with naming(path):
            pq.write_table(table, temporary, compression="zstd", compression_level=9)
            temporary.replace(path)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> RecycledCorpus:
        """The corpus in `folder`. Raises `CorpusError` where there is none that can be read, `SchemaVersionError`."""
        path = Path(folder) / CORPUS_NAME
        if not path.is_file():
            raise CorpusError(f"corpus must be a folder with a {CORPUS_NAME}, got {str(folder)!r}")
        try:
            table = pq.read_table(path)
            stored = (table.schema.metadata or {}).get(_META)
            if stored is None:
                raise CorpusError(f"{path} must be written by `treewise corpus`, got another table")
            meta = json.loads(stored)
            found = meta["schema_version"]
            if found != SCHEMA_VERSION:
                cure = "build the corpus again with `treewise corpus`"
                raise SchemaVersionError("corpus", found, SCHEMA_VERSION, cure)
            if not table.schema.remove_metadata().equals(_SCHEMA):
                raise CorpusError(f"{path} must hold the columns {_SCHEMA.names}, got {table.schema.names}")
            tokens, probs = (table.column(name).combine_chunks() for name in ("tokens", "probs"))
            if len(table) and not tokens.offsets.equals(probs.offsets):
                raise CorpusError(f"{path} must give every token a probability")
            offsets = tokens.offsets.to_numpy() if len(table) else np.zeros(1)
            return cls(
                contexts=table.column("context").to_numpy().astype(np.int64),
                occurrences=table.column("occurrences").to_numpy().astype(np.int32),
                offsets=offsets.astype(np.int64),
                tokens=tokens.values.to_numpy().astype(np.int32),
                probs=probs.values.to_numpy().astype(np.float32),
                vocab_size=meta["vocab_size"],
                tokenizer_sha256=meta["tokenizer_sha256"],
                provenance=meta["provenance"],
            )
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, CorpusError | SchemaVersionError | ParameterError):
                raise
            raise CorpusError(f"{path} cannot be read: {error}") from error


class RecycledIndex:
    """The memory of one request: the corpus, if any, and behind it what the target said in this request.

    `append` and `remember` take turns token by token: the text grows, and the target's candidates behind its new end
    are remembered once they are known. Both drivers must make the same calls; the trace holds what came of them.
    """

    def __init__(self, corpus: RecycledCorpus | None = None, tokens: Iterable[int] = ()) -> None:
        self._corpus = corpus
        self._own: dict[int, Entry] = {}  # by packed context
        self._end: tuple[int, ...] = ()  # the last `ORDERS` tokens of the text
        # By last token, then by packed context. What is remembered changes the contexts with one last token only; these
        # then start a new inner dict, and copies that share the old one keep it.
        self._blends: dict[int, dict[int, Blend]] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Make `token` the text's new end."""
        self._end = (*self._end, int(token))[-ORDERS:]

    def remember(self, tokens: Sequence[int], probs: Sequence[float]) -> None:
        """Behind the text's present end the target ranks `tokens` highest, with `probs` (temperature 1, unwarped)."""
        if not self._end:
            return
        self._blends.pop(pack(self._end[-1:]), None)
        for order in range(1, min(OWN_ORDERS, len(self._end)) + 1):
            packed = pack(self._end[-order:])
            seen, old = self._own.get(packed, (0.0, {}))
            share = 1.0 / (seen + 1.0)
            keep = 1.0 - share
            mean = {token: prob * keep for token, prob in old.items()}
            for token, prob in zip(tokens, probs, strict=True):
                mean[int(token)] = mean.get(int(token), 0.0) + float(prob) * share
            self._own[packed] = (seen + 1.0, mean)

    def recycled(self, path: Sequence[int] = ()) -> Recycled:
        """What the target ranked high behind the last tokens of text + `path`; at most `MAX_RECYCLED`."""
        context = (*self._end, *path)[-ORDERS:]
        return self._blend(pack(context), len(context)).answer

    def copy(self) -> RecycledIndex:
        """An independent memory of the same text; the corpus is shared."""
        twin = RecycledIndex(self._corpus)
        twin._own = dict(self._own)
        twin._end = self._end
        twin._blends = dict(self._blends)
        return twin

    def _blend(self, packed: int, order: int) -> Blend:
        """What all orders up to `order`, the packed context's tokens, say together."""
        last = packed & LAST[1]
        if last not in self._own:  # nothing was remembered behind a context that ends so
            return NO_BLEND if self._corpus is None or not order else self._corpus.blend(packed, order)
        blends = self._blends.get(last)
        if blends is None:
            blends = self._blends[last] = {}
        found = blends.get(packed)
        if found is None:
            shorter = self._blend(packed & LAST[order - 1], order - 1) if order > 1 else NO_BLEND
            found = blends[packed] = shorter.behind(order, self._entry(packed))
        return found

    def _entry(self, packed: int) -> Entry | None:
        """Occurrences and mean probabilities of both memories behind a packed context."""
        frozen = None if self._corpus is None else self._corpus.entry(packed)
        own = self._own.get(packed)
        if own is None:
            return frozen
        seen, mine = own[0] * OWN_WEIGHT, own[1]
        if frozen is None:
            return seen, mine
        total = frozen[0] + seen
        share = frozen[0] / total
        mean = {token: prob * share for token, prob in frozen[1].items()}
        share = seen / total
        for token, prob in mine.items():
            mean[token] = mean.get(token, 0.0) + prob * share
        return total, mean
