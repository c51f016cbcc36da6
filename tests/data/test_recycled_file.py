"""The corpus of recycled guesses on disk: what comes back, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.layout import ROOT
from treewise.data.errors import CorpusError, ParameterError, SchemaVersionError, TreewiseError
from treewise.data.prompt_set import own_prompts, prompts_sha256
from treewise.data.recycled import CORPUS_NAME, ORDERS, TOP, RecycledCorpus, RecycledIndex, pack

META = b"treewise.corpus"
ENTRIES = {pack((3,)): (4, [1, 2], [0.5, 0.25]), pack((1, 3)): (2, [5], [0.875])}


def small(**changes: Any) -> RecycledCorpus:
    """A corpus of two contexts, with some of its parts exchanged."""
    made = RecycledCorpus.build(ENTRIES, 9, "ab", {"command": "by hand"})
    names = ("contexts", "occurrences", "offsets", "tokens", "probs", "vocab_size", "tokenizer_sha256", "provenance")
    return RecycledCorpus(**{**{name: getattr(made, name) for name in names}, **changes})


ROWS = st.dictionaries(
    st.lists(st.integers(0, 30), min_size=1, max_size=ORDERS).map(pack),
    st.tuples(
        st.integers(1, 1000),
        st.lists(
            st.tuples(st.integers(0, 30), st.floats(0, 1, width=32)), max_size=TOP, unique_by=lambda item: item[0]
        ),
    ),
    max_size=6,
)


@given(ROWS)
def test_what_was_saved_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[int, tuple[int, list[tuple[int, float]]]]
) -> None:
    entries = {
        key: (count, [token for token, _ in found], [prob for _, prob in found]) for key, (count, found) in rows.items()
    }
    made = RecycledCorpus.build(entries, 31, "cd", {"seed": 3})
    folder = tmp_path_factory.mktemp("corpus")
    assert made.save(folder) == folder / CORPUS_NAME
    back = RecycledCorpus.load(folder)
    assert (back.sha256, back.provenance) == (made.sha256, {"seed": 3})
    assert (back.vocab_size, back.tokenizer_sha256, len(back)) == (31, "cd", len(rows))
    for key, (count, tokens, probs) in entries.items():
        assert back.entry(key) == (count, dict(zip(tokens, probs, strict=True)))
    assert [path.name for path in folder.iterdir()] == [CORPUS_NAME]  # nothing temporary is left


def test_the_same_corpus_makes_the_same_bytes(tmp_path: Path) -> None:
    backwards = RecycledCorpus.build(dict(reversed(ENTRIES.items())), 9, "ab", {"command": "by hand"})
    assert backwards.sha256 == small().sha256
    first, second = small().save(tmp_path / "a"), backwards.save(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"occurrences": np.asarray([4, 3], dtype=np.int32)},
        {"probs": np.asarray([0.5, 0.25, 0.75], dtype=np.float32)},
        {"vocab_size": 10},
        {"tokenizer_sha256": "cd"},
    ],
)
def test_the_hash_tells_corpora_apart(change: dict[str, Any]) -> None:
    assert small(**change).sha256 != small().sha256


def test_the_hash_is_of_what_it_says_and_not_of_where_it_came_from() -> None:
    assert small(provenance={}).sha256 == small().sha256


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"vocab_size": 0}, ParameterError, "vocab_size must be between 1 and 2097151, got 0"),
        ({"vocab_size": 1 << 21}, ParameterError, "vocab_size must be between 1 and 2097151, got 2097152"),
        ({"vocab_size": "9"}, ParameterError, "vocab_size must be between"),
        ({"offsets": np.asarray([0, 2])}, CorpusError, "must part 3 entries among 2 contexts"),
        ({"offsets": np.asarray([0, 2, 4])}, CorpusError, "must part 3 entries"),
        ({"offsets": np.asarray([1, 2, 3])}, CorpusError, "must part 3 entries"),
        ({"offsets": np.asarray([0, 4, 3])}, CorpusError, "must part 3 entries"),
        ({"probs": np.zeros(2, dtype=np.float32)}, CorpusError, "must part 3 entries"),
        ({"occurrences": np.ones(3, dtype=np.int32)}, CorpusError, "must part 3 entries"),
        ({"contexts": np.asarray([8, 4])}, CorpusError, "contexts must be ascending and above 0"),
        ({"contexts": np.asarray([4, 4])}, CorpusError, "contexts must be ascending and above 0"),
        ({"contexts": np.asarray([0, 4])}, CorpusError, "contexts must be ascending and above 0"),
        ({"occurrences": np.asarray([0, 1])}, CorpusError, "occurrences must be at least 1"),
        ({"tokens": np.asarray([1, 2, 9])}, CorpusError, "tokens must be between 0 and 8"),
        ({"tokens": np.asarray([1, 2, -1])}, CorpusError, "tokens must be between 0 and 8"),
        ({"probs": np.asarray([0.5, 1.5, 0.1])}, CorpusError, "probabilities must be between 0 and 1"),
        ({"probs": np.asarray([0.5, -0.1, 0.1])}, CorpusError, "probabilities must be between 0 and 1"),
        ({"probs": np.asarray([0.5, np.nan, 0.1])}, CorpusError, "probabilities must be between 0 and 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], error: type[TreewiseError], message: str) -> None:
    with pytest.raises(error, match=message):
        small(**changes)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(4, 80):
        content[place] ^= 0xFF
    path.write_bytes(bytes(content))


def rewritten(change: Callable[[pa.Table, dict[str, Any]], pa.Table], path: Path) -> None:
    """Write the table again as `change` makes it; the description goes along as `change` leaves it."""
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[META])
    changed = change(table.replace_schema_metadata(None), meta)
    pq.write_table(changed.replace_schema_metadata({META: json.dumps(meta).encode()}), path)


def without_description(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


def with_odd_description(text: bytes, path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({META: text}), path)


def without_probs(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
    return table.drop_columns(["probs"])


def wide_tokens(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
    kind = pa.list_(pa.field("item", pa.int64(), nullable=False))
    field = pa.field("tokens", kind, nullable=False)
    return table.set_column(2, field, pa.array(table["tokens"].to_pylist(), kind))


def a_token_without_probability(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
    field = table.schema.field("probs")
    return table.set_column(3, field, pa.array([[0.5], [0.25, 0.875]], field.type))


def without_vocabulary(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
    del meta["vocab_size"]
    return table


def backwards(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
    return table.take([1, 0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot be read"),
        (emptied, "cannot be read"),
        (flipped, r"cannot be read|must be"),
        (Path.unlink, f"corpus must be a folder with a {CORPUS_NAME}, got"),
        (without_description, "must be written by `treewise corpus`, got another table"),
        (lambda path: with_odd_description(b"{", path), "cannot be read"),
        (lambda path: with_odd_description(b"[1]", path), "cannot be read"),
        (lambda path: rewritten(without_probs, path), r"must hold the columns .*, got \['context', 'occ"),
        (lambda path: rewritten(wide_tokens, path), "must hold the columns"),
        (lambda path: rewritten(a_token_without_probability, path), "must give every token a probability"),
        (lambda path: rewritten(without_vocabulary, path), "cannot be read: 'vocab_size'"),
        (lambda path: rewritten(backwards, path), "contexts must be ascending"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(small().save(tmp_path))
    with pytest.raises(CorpusError, match=message):
        RecycledCorpus.load(tmp_path)


def test_another_schema_version_names_both_and_the_cure(tmp_path: Path) -> None:
    path = small().save(tmp_path)

    def older(table: pa.Table, meta: dict[str, Any]) -> pa.Table:
        meta["schema_version"] = 0
        return table

    rewritten(older, path)
    with pytest.raises(
        SchemaVersionError, match=r"version 0, .* reads 1: build the corpus again with `treewise corpus`"
    ):
        RecycledCorpus.load(tmp_path)


def test_several_row_groups_read_as_one(tmp_path: Path) -> None:
    path = small().save(tmp_path)
    pq.write_table(pq.read_table(path), path, row_group_size=1)
    assert RecycledCorpus.load(tmp_path).sha256 == small().sha256


def test_the_shipped_corpus_is_of_the_shipped_draft_s_target_and_prompts() -> None:
    assets = Path(str(resources.files("treewise.data"))) / "assets"
    corpus = RecycledCorpus.load(assets / "corpus-smollm2-135m")
    draft = json.loads((assets / "draft-smollm2-135m" / "draft.json").read_text(encoding="utf-8"))
    came = corpus.provenance
    sets = "own:distill,own:distill-more,own:self"
    asked = [prompt for name in sets.split(",") for prompt in own_prompts(name.removeprefix("own:"))]
    assert came["command"] == (
        f"treewise corpus --prompts {sets} --min-occurrences 6 -o data/assets/corpus-smollm2-135m"
    )
    assert sets in draft["provenance"]["command"]
    assert came["target_sha256"] == draft["target_sha256"]
    assert corpus.tokenizer_sha256 == draft["provenance"]["tokenizer_sha256"]
    assert came["prompts_sha256"] == draft["provenance"]["prompts_sha256"] == prompts_sha256(asked)
    assert came["notice"] == draft["provenance"]["notice"]
    assert "corpus of recycled guesses" in (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert (assets / "corpus-smollm2-135m" / CORPUS_NAME).stat().st_size < 2.5e6
    assert np.array_equal(corpus.probs, corpus.probs.astype(np.float16).astype(np.float32))
    assert corpus.occurrences[corpus.contexts >= 1 << 21].min() >= came["min_occurrences"] == 6
    sums = np.add.reduceat(corpus.probs, corpus.offsets[:-1])
    assert sums.max() <= 1.001 and np.median(sums) > 0.5
    single = corpus.contexts < 1 << 21
    often = int(corpus.occurrences[single].argmax())
    answer = RecycledIndex(corpus, [int(corpus.contexts[often]) - 1]).recycled()
    assert (answer.order, answer.weight, len(answer.tokens)) == (1, corpus.occurrences[often], TOP)
