"""Loading pairs from disk: what fits is loaded, what does not is refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from tests.engine.disk_pairs import write_model, write_tokenizer
from treewise.data.errors import (
    CacheRollbackError,
    CorpusError,
    PairError,
    ParameterError,
    PromptError,
    TokenMapError,
)
from treewise.data.recycled import RecycledCorpus, pack
from treewise.engine import smollm2
from treewise.engine.pair import Pair, check_rollback, default_corpus_folder, encode_prompt, load_pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("target"), seed=1, num_layers=4)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Pair:
    return load_pair(str(folder), "prune:1-2")


def test_a_pair_without_draft(folder: Path) -> None:
    for draft in ("none", None):
        pair = load_pair(str(folder), draft)
        assert pair.draft is None
        assert pair.description.draft is None
    assert pair.target.config._attn_implementation == "sdpa"
    assert not pair.target.training
    assert not any(parameter.requires_grad for parameter in pair.target.parameters())
    assert pair.eos_token_ids == (1,)
    assert pair.max_context_tokens == 128


def test_the_same_weights_have_the_same_hash(folder: Path, pair: Pair, tmp_path: Path) -> None:
    again = load_pair(str(folder), "none")
    assert again.description.target_sha256 == pair.description.target_sha256
    other = load_pair(str(write_model(tmp_path, seed=2, num_layers=4)), "none")
    assert other.description.target_sha256 != pair.description.target_sha256
    assert other.description.tokenizer_sha256 == pair.description.tokenizer_sha256


def test_a_pruned_draft_shares_weights_and_has_its_own_layer_numbers(pair: Pair) -> None:
    draft = pair.draft
    assert draft is not None
    mine: Any = draft.model
    theirs: Any = pair.target.model
    assert draft.num_layers == draft.config.num_hidden_layers == len(mine.layers) == 2
    assert [layer.self_attn.layer_idx for layer in mine.layers] == [0, 1]
    assert [layer.self_attn.layer_idx for layer in theirs.layers] == [0, 1, 2, 3]
    assert pair.target.config.num_hidden_layers == 4
    last = theirs.layers[3].self_attn.q_proj.weight
    assert mine.layers[1].self_attn.q_proj.weight.data_ptr() == last.data_ptr()


def test_a_pruned_draft_computes_the_layers_that_are_left(pair: Pair) -> None:
    draft = pair.draft
    assert draft is not None
    ids = torch.arange(2, 9)[None]
    cache = DynamicCache(config=draft.config)
    hidden = draft.model(input_ids=ids, cache=cache, use_cache=True).last_hidden_state
    target: Any = pair.target.model
    expected = target.embed_tokens(ids)
    positions = torch.arange(7)[None]
    rotary = target.rotary_emb(expected, position_ids=positions)
    mask = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    for index in (0, 3):
        expected = target.layers[index](expected, attention_mask=mask, position_embeddings=rotary)
    expected = target.norm(expected)
    assert torch.allclose(hidden, expected, atol=1e-5)
    assert torch.equal(draft.head(hidden[0]), pair.target.get_output_embeddings()(hidden[0]))
    assert len(cache.layers) == 2


@pytest.mark.parametrize("layers", ["0-3", "2-1", "2-4", "2", "a-b", "-1-2", ""])
def test_a_layer_range_that_leaves_nothing_or_reaches_out_is_refused(folder: Path, layers: str) -> None:
    with pytest.raises(ParameterError, match=r"prune must be FIRST-LAST with 0 <= FIRST <= LAST < 4"):
        load_pair(str(folder), f"prune:{layers}")


def test_another_model_as_draft(folder: Path, tmp_path: Path) -> None:
    pair = load_pair(str(folder), str(write_model(tmp_path, seed=3, num_layers=1)))
    assert pair.draft is not None
    assert pair.draft.head_token_ids is None
    assert pair.description.draft_head_size == 258


def test_padding_rows_of_a_draft_are_never_said(folder: Path, tmp_path: Path) -> None:
    pair = load_pair(str(folder), str(write_model(tmp_path, seed=3, num_layers=1, vocab_size=264)))
    assert pair.draft is not None and pair.draft.head_token_ids is not None
    assert pair.draft.head_token_ids.tolist() == list(range(258))
    assert pair.draft.head(torch.zeros(2, 16)).shape == (2, 258)


def test_other_token_maps_are_refused_with_the_first_difference(folder: Path, tmp_path: Path) -> None:
    write_model(tmp_path, seed=3)
    write_tokenizer(tmp_path, swap=True)
    with pytest.raises(TokenMapError, match=r"got '.': id 256 in the target, id 257 in the draft"):
        load_pair(str(folder), str(tmp_path))


def test_the_default_draft_goes_with_the_default_target_only(folder: Path) -> None:
    with pytest.raises(PairError, match="draft 'default' must go with target 'smollm2-135m'"):
        load_pair(str(folder), "default")


@pytest.mark.parametrize("word", ["lookup", "recycled", "free"])
def test_a_source_without_a_model_is_no_draft(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = f"draft must be a model, got '{word}': that source works without one; name 'none'"
    with pytest.raises(ParameterError, match=re.escape(told)):
        load_pair("not/looked-for", word)  # told before anything is loaded
    write_model(tmp_path / word, seed=1, num_layers=2)
    pair = load_pair(str(tmp_path / word), word)  # a folder of that name is one
    assert pair.description.draft == word


def test_a_target_that_was_never_pulled_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path))
    assert not smollm2.is_pulled()
    with pytest.raises(PairError, match="treewise models pull smollm2-135m"):
        load_pair()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PairError, match="cannot be loaded"):
        load_pair(str(tmp_path), "none")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
        ({"sliding_window": 16}, "sliding window of 16"),
        ({"is_recurrent": True}, "is_recurrent"),
    ],
)
def test_caches_that_cannot_be_rolled_back_are_refused_by_name(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], kind: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setattr(pair.target.config, name, value, raising=False)
    with pytest.raises(CacheRollbackError, match=rf"model 'some-model' must have .* got {kind}"):
        check_rollback(pair.target, "some-model")


def test_a_sliding_window_that_is_switched_off_is_no_obstacle(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair.target.config, "sliding_window", 16, raising=False)
    monkeypatch.setattr(pair.target.config, "use_sliding_window", False, raising=False)
    check_rollback(pair.target, "some-model")


def test_a_mistral_with_a_window_is_refused_from_disk(tmp_path: Path) -> None:
    write_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CacheRollbackError, match="sliding window of 8"):
        load_pair(str(tmp_path), "none")


def test_prompts_go_through_the_chat_template(pair: Pair) -> None:
    ids = encode_prompt(pair, "hi")
    assert pair.tokenizer.convert_ids_to_tokens(ids) == ["<|start|>", "h", "i", "<|end|>", "<|start|>"]
    with pytest.raises(PromptError, match="prompt must be non-empty text, got ' '"):
        encode_prompt(pair, " ")


def test_without_a_template_prompts_are_plain_text(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_tokenizer(tmp_path, template=None)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    pair = load_pair(str(tmp_path), "none")
    assert pair.tokenizer.convert_ids_to_tokens(encode_prompt(pair, "hi")) == ["h", "i"]


def test_threads_must_be_positive(folder: Path) -> None:
    with pytest.raises(ParameterError, match="threads must be >= 1, got 0"):
        load_pair(str(folder), "none", threads=0)


def test_weights_that_were_cut_short_are_a_pair_error(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(PairError, match="cannot be loaded"):
        load_pair(str(folder), "none")


def write_corpus(folder: Path, *, vocab_size: int = 258, tokenizer_sha256: str) -> RecycledCorpus:
    """A corpus of one context."""
    made = RecycledCorpus.build({pack((3,)): (2, [4], [0.5])}, vocab_size, tokenizer_sha256)
    made.save(folder)
    return made


def test_a_corpus_is_loaded_by_folder_and_by_default_only_for_the_default_target(
    folder: Path, pair: Pair, tmp_path: Path
) -> None:
    made = write_corpus(tmp_path, tokenizer_sha256=pair.description.tokenizer_sha256)
    assert pair.recycled is None
    assert load_pair(str(folder), "none", corpus="none").recycled is None
    loaded = load_pair(str(folder), "none", corpus=str(tmp_path))
    assert loaded.recycled is not None and loaded.recycled.sha256 == made.sha256
    assert loaded.description == load_pair(str(folder), "none").description


def test_the_default_target_has_a_corpus_in_this_install() -> None:
    place = default_corpus_folder()
    assert place is not None
    assert RecycledCorpus.load(place).provenance["target"] == smollm2.NAME


def test_a_corpus_of_another_tokenizer_or_vocabulary_is_refused_with_both(
    folder: Path, pair: Pair, tmp_path: Path
) -> None:
    tokenizer = pair.description.tokenizer_sha256
    write_corpus(tmp_path / "a", tokenizer_sha256="0" * 64)
    with pytest.raises(CorpusError, match=f"must have the tokenizer_sha256 {tokenizer} of target .* got {'0' * 64}"):
        load_pair(str(folder), "none", corpus=str(tmp_path / "a"))
    write_corpus(tmp_path / "b", tokenizer_sha256=tokenizer, vocab_size=300)
    with pytest.raises(CorpusError, match=r"must have the vocab_size 258 of target .* got 300"):
        load_pair(str(folder), "none", corpus=str(tmp_path / "b"))


def test_a_folder_without_a_corpus_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"corpus must be a folder with a corpus\.parquet, got"):
        load_pair(str(folder), "none", corpus=str(tmp_path))
