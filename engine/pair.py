"""Loading a pair: target, draft (or none) and tokenizer, checked to fit together."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from treewise.data.errors import CacheRollbackError, CorpusError, PairError, ParameterError
from treewise.data.pair import PairDescription
from treewise.data.recycled import CORPUS_NAME, RecycledCorpus
from treewise.engine import smollm2
from treewise.engine.draft_folder import is_draft_folder, load_draft
from treewise.engine.draft_model import DraftModel, decoder_of, draft_from_model, parse_layer_range, prune_layers
from treewise.engine.quiet import no_progress_bars
from treewise.engine.split_attention import use_attention
from treewise.engine.tokenizer import check_token_maps, encode_text, tokenizer_sha256
from treewise.engine.weights import weights_sha256

DEFAULT_TARGET = smollm2.NAME
DEFAULT_DRAFT = "default"
NO_DRAFT = "none"
DEFAULT_CORPUS = "default"
NO_CORPUS = "none"
PRUNE = "prune:"
SOURCES_WITHOUT_MODEL = ("lookup", "recycled", "free")  # words of policies, taken for drafts now and then
ROLLBACK_LAYER_TYPES = ("full_attention",)
RECURRENT_MARKS = ("is_recurrent", "ssm_cfg", "state_size", "rwkv", "attn_layer_indices", "layers_block_type")


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Target and draft in eval mode on one device, the tokenizer that both share, and the corpus that goes with it."""

    name: str
    target: PreTrainedModel
    draft: DraftModel | None
    tokenizer: Any  # a fast transformers tokenizer
    description: PairDescription
    recycled: RecycledCorpus | None = field(default=None, kw_only=True)  # frozen, behind each request

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokens that end an answer, rising; empty when the target names none."""
        return eos_token_ids(self.target)

    @property
    def max_context_tokens(self) -> int:
        """Longest context, prompt and answer together, that the target was made for."""
        return int(self.target.config.get_text_config().max_position_embeddings)


def load_pair(
    target: str = DEFAULT_TARGET,
    draft: str | None = DEFAULT_DRAFT,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    corpus: str = DEFAULT_CORPUS,
    attention: str = "sdpa",
) -> Pair:
    """Load target, draft, tokenizer and corpus of recycled guesses.

    Args:
        target: `smollm2-135m` (pulled before), a Hugging Face name, or a folder.
        draft: `default` (the draft that ships with `smollm2-135m`), `none` or None, `prune:FIRST-LAST` (the target
            without those layers), a folder made by `treewise distill`, or another model by name or folder.
        dtype: of the weights; float32 on a CPU and bfloat16 elsewhere when None.
        device: where both models go.
        threads: when given, torch's threads in this process from now on.
        corpus: `default` (the one that ships with `smollm2-135m`; none with any other target), `none`, or a folder
            made by `treewise corpus`.
        attention: kernel of both models: `sdpa`, or `split`, which keeps the mask off the committed tokens (see
            `treewise.engine.split_attention`).

    Raises:
        PairError: a model cannot be loaded, or the parts do not fit together.
        TokenMapError: the draft's token map differs; names the first difference.
        CacheRollbackError: a model's cache cannot be cut back to the accepted path.
        ChecksumError: stored weights are not the bytes that were promised.
        CorpusError: the corpus cannot be read, or is of another tokenizer or vocabulary.
        ParameterError: a malformed `prune:` range, another attention kernel, or a draft that names a source without
            a model, such as `lookup`.
    """
    _check_draft_name(draft)
    place = torch.device(device)
    kind = dtype or (torch.float32 if place.type == "cpu" else torch.bfloat16)
    if threads is not None:
        if threads < 1:
            raise ParameterError(f"threads must be >= 1, got {threads}")
        torch.set_num_threads(threads)
    manifest = smollm2.manifest() if target == DEFAULT_TARGET else None
    source = str(smollm2.folder()) if manifest is not None else target
    model = load_model(source, name=target, dtype=kind, device=place)
    tokenizer = load_tokenizer(source, name=target)
    target_sha = str(manifest["weights_sha256"]) if manifest is not None else weights_sha256(model)
    vocab_size = int(model.get_output_embeddings().weight.shape[0])
    source_draft = _load_draft(draft, target, model, tokenizer, target_sha, dtype=kind, device=place)
    description = PairDescription(
        target=target,
        target_sha256=target_sha,
        tokenizer_sha256=tokenizer_sha256(tokenizer),
        vocab_size=vocab_size,
        draft=source_draft.name if source_draft else None,
        draft_sha256=source_draft.sha256 if source_draft else None,
        draft_head_size=source_draft.head_size if source_draft else None,
    )
    recycled = _load_corpus(corpus, description)
    use_attention([model] if source_draft is None else [model, source_draft.model], attention)
    return Pair(description.name, model, source_draft, tokenizer, description, recycled=recycled)


def encode_prompt(pair: Pair, text: str) -> list[int]:
    """Token ids of a user prompt under the pair's chat template, the assistant's opening included.

    Raises:
        PromptError: the prompt is empty.
    """
    return encode_text(pair.tokenizer, text)


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """The tokens that end an answer: the generation config's, else the model config's."""
    for config in (model.generation_config, model.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(sorted(int(token) for token in (ids if isinstance(ids, list | tuple) else [ids])))
    return ()


def default_draft_folder() -> Path | None:
    """Where the shipped draft of the default target lies, or None when this install has none."""
    folder = _asset("draft")
    return folder if is_draft_folder(folder) else None


def default_corpus_folder() -> Path | None:
    """Where the shipped corpus of the default target lies, or None when this install has none."""
    folder = _asset("corpus")
    return folder if (folder / CORPUS_NAME).is_file() else None


def load_model(source: str, *, name: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """One causal language model with SDPA attention, in eval mode, its cache checked to roll back.

    Raises:
        PairError: transformers cannot load it.
        CacheRollbackError: its cache cannot be cut back.
    """
    try:
        with no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise PairError(f"model {name!r} cannot be loaded: {error}") from error
    check_rollback(model, name)
    decoder_of(model)
    nn.Module.to(model, device)  # in place; transformers' own `to` is the same behind a wrapper without types
    model.eval()
    model.requires_grad_(False)
    return model


def load_tokenizer(source: str, *, name: str) -> Any:
    """The fast tokenizer that lies beside a model.

    Raises:
        PairError: there is none.
    """
    try:
        return AutoTokenizer.from_pretrained(source, use_fast=True)
    except (OSError, ValueError, KeyError) as error:
        raise PairError(f"tokenizer of {name!r} cannot be loaded: {error}") from error


def check_rollback(model: PreTrainedModel, name: str) -> None:
    """Raise unless every layer keeps keys and values of all positions, so that rejected ones can be dropped.

    Raises:
        CacheRollbackError: names the model and the layer kind that cannot.
    """
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    kinds = sorted(set(layer_types or ()) - set(ROLLBACK_LAYER_TYPES))
    window = getattr(config, "sliding_window", None)
    # Without layer types a window applies to every layer, unless a switch of its own turns it off.
    if not layer_types and window and getattr(config, "use_sliding_window", True):
        kinds.append(f"sliding window of {window}")
    kinds += [mark for mark in RECURRENT_MARKS if getattr(config, mark, None)]
    if getattr(model, "_is_stateful", False):
        kinds.append("recurrent state")
    if kinds:
        rule = "a key/value cache that can be rolled back (full attention in every layer)"
        raise CacheRollbackError(f"model {name!r} must have {rule}, got {', '.join(kinds)}")


def _asset(kind: str) -> Path:
    return Path(str(resources.files("treewise.data"))) / "assets" / f"{kind}-{DEFAULT_TARGET}"


def _load_corpus(corpus: str, pair: PairDescription) -> RecycledCorpus | None:
    if corpus == NO_CORPUS:
        return None
    if corpus == DEFAULT_CORPUS:
        folder = default_corpus_folder() if pair.target == DEFAULT_TARGET else None
        if folder is None:
            return None
    else:
        folder = Path(corpus)
    loaded = RecycledCorpus.load(folder)
    for name in ("tokenizer_sha256", "vocab_size"):
        here, there = getattr(pair, name), getattr(loaded, name)
        if here != there:
            raise CorpusError(
                f"corpus {str(folder)!r} must have the {name} {here} of target {pair.target!r}, got {there}"
            )
    return loaded


def _check_draft_name(draft: str | None) -> None:
    """Raise `ParameterError` where `draft` names a source that needs no draft, and no folder of that name is there."""
    if draft in SOURCES_WITHOUT_MODEL and not Path(draft).is_dir():
        raise ParameterError(f"draft must be a model, got {draft!r}: that source works without one; name 'none'")


def _load_draft(
    draft: str | None,
    target: str,
    model: PreTrainedModel,
    tokenizer: Any,
    target_sha: str,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> DraftModel | None:
    if draft is None or draft == NO_DRAFT:
        return None
    if draft == DEFAULT_DRAFT:
        folder = default_draft_folder() if target == DEFAULT_TARGET else None
        if folder is None:
            raise PairError(
                f"draft 'default' must go with target {DEFAULT_TARGET!r} and an install that holds it, "
                f"got target {target!r}; name a draft, or 'none'"
            )
        return load_draft(folder, model, target_sha256=target_sha, name=DEFAULT_DRAFT)
    if draft.startswith(PRUNE):
        num_layers = int(model.config.get_text_config().num_hidden_layers)
        return prune_layers(model, parse_layer_range(draft.removeprefix(PRUNE), num_layers), target_sha)
    if is_draft_folder(Path(draft)):
        return load_draft(Path(draft), model, target_sha256=target_sha)
    source = str(smollm2.folder()) if draft == DEFAULT_TARGET and smollm2.manifest() else draft
    other = load_tokenizer(source, name=draft)
    token_map: dict[str, int] = tokenizer.get_vocab()
    check_token_maps(token_map, other.get_vocab())
    loaded = load_model(source, name=draft, dtype=dtype, device=device)
    return draft_from_model(
        draft,
        loaded,
        num_tokens=max(token_map.values()) + 1,
        target_vocab_size=int(model.get_output_embeddings().weight.shape[0]),
    )
