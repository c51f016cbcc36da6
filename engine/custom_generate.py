"""Trees inside transformers' own `generate`: `model.generate(inputs, custom_generate=TreewiseGeneration(...))`.

`generate` prepares inputs, generation config, logits processors and stopping criteria as always, then calls the object
in place of its own loop. Greedy text is the text of `generate` without it. Sampled text follows the same warped
distribution, but draws from the engine's noise, a hash of seed, position and token: it is the text of the engine's
plain decoding with that seed, not of `torch.multinomial`.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from treewise.data.cost import CostProfile
from treewise.data.errors import PairError, ParameterError, require
from treewise.data.pair import PairDescription
from treewise.engine.custom_request import GenerateRequest, read_request
from treewise.engine.decode import Completion, Engine, EngineSettings, RoundRecord, collect
from treewise.engine.draft_folder import is_draft_folder, load_draft
from treewise.engine.draft_model import DraftModel, decoder_of, draft_from_model, parse_layer_range, prune_layers
from treewise.engine.pair import NO_DRAFT, PRUNE, Pair, check_rollback
from treewise.engine.sampling import Sampling
from treewise.engine.tokenizer import tokenizer_sha256
from treewise.engine.tried_versions import warn_if_untried
from treewise.engine.weights import weights_sha256
from treewise.policy.hook import TreePolicy
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy

TRIED_VERSIONS = ("5.17.0", "5.24.0")  # of transformers, the oldest first
UNKNOWN_WEIGHTS = "not hashed"
UNKNOWN_TOKENIZER = "not given"


class TreewiseGeneration:
    """A decoding loop for `generate(custom_generate=...)`: one request at a time, trees decided by a policy.

    The first call binds the policy to the model at hand; a call with another model binds it anew. Public attributes
    tell what the last call did: `last` (rounds, nodes, fallbacks, times), `sampling` (the seed included), and
    `engine`, whose `policy` counts failures over all calls.

    Threads may share one object: their calls run one after the other, under a lock, and `last`, `sampling` and
    `engine` are those of the call that ended last.
    """

    def __init__(
        self,
        policy: TreePolicy | str,
        cost: CostProfile | str | Path,
        draft: DraftModel | PreTrainedModel | str | None = None,
        settings: EngineSettings | None = None,
        *,
        seed: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        """Nothing is loaded or checked against a model before the first call.

        Args:
            policy: a policy, or its spec string (`topn:24x4`, `learned:FOLDER`).
            cost: a cost profile, or the file or built-in name of one.
            draft: None (lookup only), `prune:FIRST-LAST`, a folder made by `treewise distill`, or a model that shares
                the target's token ids, which nothing here can check.
            settings: the engine's; None takes a learned policy's own envelope and prior table.
            seed: of every sampled text; None draws one per sampled call from torch's generator, which `set_seed`
                seeds.
            tokenizer: the model's fast tokenizer. A learned policy needs it, to know its pair again; a draft model
                with a narrower vocabulary needs it, to tell tokens from padding.

        Raises:
            ParameterError: a transformers version older than the oldest tried, or a setting out of its rule.
            PolicySpecError, CostProfileError: an unknown spec or profile.
        """
        check_version(transformers.__version__)
        require(seed is None or 0 <= seed < 2**63, "seed", "None or between 0 and 2**63 - 1", seed)
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.cost = cost if isinstance(cost, CostProfile) else CostProfile.load(cost)
        self.draft = draft
        if settings is None and isinstance(self.policy, LearnedPolicy):
            bundle = self.policy.bundle
            settings = EngineSettings(envelope=bundle.envelope, prior_table=bundle.prior_table)
        self.settings = settings or EngineSettings()
        self.seed = seed
        self.tokenizer = tokenizer
        self.engine: Engine | None = None
        self.last: Completion | None = None
        self.sampling: Sampling | None = None
        self._lock = threading.RLock()  # a streamer that generates in its turn must not wait for itself

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> torch.Tensor | GenerateDecoderOnlyOutput:
        """Called by `generate`. Returns prompt and completion, [1, tokens], on the prompt's device.

        Raises:
            ParameterError: the call asks for something that cannot be honoured; the message names it.
            PairError, CacheRollbackError: the model cannot be run on trees.
            BundleError: a learned policy was trained on another pair.
        """
        request = read_request(
            model,
            input_ids,
            logits_processor,
            generation_config,
            {"synced_gpus": synced_gpus, "streamer": streamer, **model_kwargs},
        )
        with self._lock:
            written = self._decoded(model, input_ids, stopping_criteria, request)
        text = torch.cat([input_ids, written], dim=-1)
        if generation_config.return_dict_in_generate:
            return GenerateDecoderOnlyOutput(sequences=text)  # type: ignore[arg-type]
        return text

    def _decoded(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        stopping_criteria: StoppingCriteriaList,
        request: GenerateRequest,
    ) -> torch.Tensor:
        """The completion, [1, tokens]."""
        engine = self._engine_for(model, request)
        self.sampling = replace(request.sampling, seed=self._seed_of(request.sampling))
        began = time.perf_counter()
        steps = engine.rounds(request.prompt, request.max_new_tokens, self.sampling)
        self.last = collect(_until_stopped(steps, input_ids, stopping_criteria, request), engine, began)
        if request.streamer is not None:
            request.streamer.end()
        written = torch.tensor([self.last.tokens], dtype=input_ids.dtype, device=input_ids.device)
        self._warn_of_short_context(engine, request)
        return written

    def _seed_of(self, sampling: Sampling) -> int:
        if self.seed is not None:
            return self.seed
        # A greedy `generate` leaves torch's generator as it is; so does this.
        return int(torch.randint(2**63 - 1, ())) if sampling.temperature else 0

    def _engine_for(self, model: PreTrainedModel, request: GenerateRequest) -> Engine:
        if self.engine is None or self.engine.pair.target is not model:
            pair = live_pair(model, self.draft, self.tokenizer, hash_weights=isinstance(self.policy, LearnedPolicy))
            self.engine = Engine(pair, self.policy, self.cost, self.settings)
        pair = self.engine.pair
        # What ends a text is the call's own setting, while draft, cache and the policy's memory stay.
        self.engine.pair = _EndedPair(
            pair.name, pair.target, pair.draft, pair.tokenizer, pair.description, request.eos_token_ids
        )
        return self.engine

    def _warn_of_short_context(self, engine: Engine, request: GenerateRequest) -> None:
        assert self.last is not None
        room = engine.pair.max_context_tokens - len(request.prompt)
        if room < request.max_new_tokens and self.last.finish == "length" and len(self.last.tokens) == room:
            warnings.warn(
                f"the text ends at the model's context of {engine.pair.max_context_tokens} tokens, short of the "
                f"max_new_tokens of {request.max_new_tokens} that were asked for",
                RuntimeWarning,
                stacklevel=4,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _EndedPair(Pair):
    """A pair whose texts end where one `generate` call says, not where the model's own config does."""

    ends: tuple[int, ...]

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.ends


def live_pair(
    model: PreTrainedModel,
    draft: DraftModel | PreTrainedModel | str | None = None,
    tokenizer: Any = None,
    *,
    hash_weights: bool = False,
) -> Pair:
    """A pair around a model that is in memory already; no weights are loaded but those of a draft folder.

    `hash_weights`: read all of the target's weights for the description, as only a learned policy needs it. Without
    it, and without a tokenizer, the description says so in place of the hash and equals no other pair's.

    Raises:
        PairError, CacheRollbackError: the model cannot be run on trees, or the draft does not fit it.
        ParameterError: an unknown draft.
    """
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    check_rollback(model, name)
    decoder_of(model)
    folder = isinstance(draft, str) and is_draft_folder(Path(draft))
    sha = weights_sha256(model) if hash_weights or folder else UNKNOWN_WEIGHTS
    vocab_size = int(model.get_output_embeddings().weight.shape[0])
    made = _draft_of(draft, model, tokenizer, sha, vocab_size)
    description = PairDescription(
        target=name,
        target_sha256=sha,
        tokenizer_sha256=UNKNOWN_TOKENIZER if tokenizer is None else tokenizer_sha256(tokenizer),
        vocab_size=vocab_size,
        draft=None if made is None else made.name,
        draft_sha256=None if made is None else made.sha256,
        draft_head_size=None if made is None else made.head_size,
    )
    return Pair(description.name, model, made, tokenizer, description)


def _draft_of(
    draft: DraftModel | PreTrainedModel | str | None, model: PreTrainedModel, tokenizer: Any, sha: str, vocab_size: int
) -> DraftModel | None:
    if draft is None or draft == NO_DRAFT:
        return None
    if isinstance(draft, DraftModel):
        return draft
    if isinstance(draft, PreTrainedModel):
        name = str(getattr(draft, "name_or_path", "") or type(draft).__name__)
        check_rollback(draft, name)
        if draft.device != model.device:
            raise PairError(f"draft must be on the target's device {model.device}, got {draft.device}")
        num_tokens = vocab_size if tokenizer is None else max(tokenizer.get_vocab().values()) + 1
        embedding = draft.get_input_embeddings().weight
        assert isinstance(embedding, torch.Tensor)
        if (known := int(embedding.shape[0])) < num_tokens:
            hint = "" if tokenizer is not None else "; give the tokenizer if the rest is padding"
            raise PairError(f"draft must know the target's {num_tokens} tokens, got one with {known}{hint}")
        return draft_from_model(name, draft, num_tokens=num_tokens, target_vocab_size=vocab_size)
    if isinstance(draft, str) and draft.startswith(PRUNE):
        num_layers = int(model.config.get_text_config().num_hidden_layers)
        return prune_layers(model, parse_layer_range(draft.removeprefix(PRUNE), num_layers), sha)
    if isinstance(draft, str) and is_draft_folder(Path(draft)):
        return load_draft(Path(draft), model, target_sha256=sha)
    rule = f"a model in memory, {NO_DRAFT!r}, '{PRUNE}FIRST-LAST' or a folder made by `treewise distill`"
    raise ParameterError(f"draft must be {rule}, got {draft!r}")


def check_version(version: str) -> None:
    """Raise on a transformers older than any that was tried; warn of one that was not.

    Raises:
        ParameterError: names the versions that were tried.
    """
    if _release(version) < _release(TRIED_VERSIONS[0]):
        tried = f"tried with {', '.join(TRIED_VERSIONS)}"
        raise ParameterError(f"transformers must be at least {TRIED_VERSIONS[0]} ({tried}), got {version}")
    warn_if_untried("transformers", TRIED_VERSIONS, version)


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _until_stopped(
    steps: Iterator[RoundRecord], input_ids: torch.Tensor, criteria: StoppingCriteriaList, request: GenerateRequest
) -> Iterator[RoundRecord]:
    """The rounds up to the token where the first criterion fires; what lies behind it is cut off.

    Criteria are asked token by token with the text so far, as `generate` asks them, and never after they fired.
    """
    text = input_ids
    for record in steps:
        end = text.shape[1]
        fresh = torch.tensor([record.committed], dtype=text.dtype, device=text.device)
        text = torch.cat([text, fresh], dim=-1)
        for place, token in enumerate(record.committed, start=1):
            if request.streamer is not None:
                request.streamer.put(torch.tensor([token]))
            # None: scores, which exist for `output_scores` alone
            if bool(criteria(text[:, : end + place], None).all()):
                cut = _cut(record, place)
                yield replace(cut, finish=_finish(cut.committed, end + place, request))
                return
        yield record


def _cut(record: RoundRecord, count: int) -> RoundRecord:
    """The round as if it had committed its first `count` tokens alone, the last of them as the target's own."""
    if count == len(record.committed):
        return record
    committed = record.committed[:count]
    walked = replace(record.walk, tokens=(committed,), accepted_length=np.asarray([count - 1], dtype=np.int32))
    return replace(record, committed=committed, lookup_agrees=record.lookup_agrees[:count], walk=walked)


def _finish(committed: Sequence[int], length: int, request: GenerateRequest) -> str:
    if committed[-1] in request.eos_token_ids:
        return "eos"
    return "length" if length - len(request.prompt) >= request.max_new_tokens else "stopped"
