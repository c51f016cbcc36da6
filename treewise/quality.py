"""Live decoding under several verification rules, and how far each text is from plain decoding's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from treewise.code_checks import CodeLimits, CodeResult, run_tests
from treewise.data.errors import LossyWarning, require
from treewise.data.prompt_set import Prompt
from treewise.live import PLAIN, Asked, policy_for, take_turns
from treewise.quality_report import AnswerText, QualityReport
from treewise.stages import Stage, silent
from treewise.texts import first_divergence

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.engine.decode import Completion, Engine
    from treewise.engine.pair import Pair
    from treewise.engine.sampling import Sampling
    from treewise.training.quality import Answers
    from treewise.training.text_quality import RougeL

# At temperature 0 only a probability below a half can be that of a token which is not the target's own.
DEFAULT_RULES = ("exact", "relaxed-top-n:2", "threshold:0.2")
_WARM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """What is decoded, and whether code is run."""

    verifications: tuple[str, ...] = DEFAULT_RULES
    max_new_tokens: int = 128
    run_tests: bool = False  # of prompts that bring tests; code that a model wrote runs on this machine
    limits: CodeLimits = field(default_factory=CodeLimits)
    resamples: int = 2000


def rules_of(verifications: Sequence[str]) -> tuple[str, ...]:
    """The rules as their specs, each once and in this order, `exact` before them. Raises `ParameterError`."""
    from treewise.engine.verification import Verification

    named = [Verification.parse(spec) for spec in verifications]
    return tuple(dict.fromkeys(rule.spec for rule in (Verification(), *named)))


def measure_quality(
    pair: Pair,
    cost: CostProfile,
    policy: str,
    prompts: Sequence[Prompt],
    settings: QualitySettings | None = None,
    sampling: Sampling | None = None,
    stage: Stage = silent,
) -> QualityReport:
    """Decode every prompt plainly and, with `policy`, under every rule, in turns, and compare the texts.

    Raises `MissingExtraError` without `rouge-score`, and as `Engine` and `run_tests` do.
    """
    from treewise.engine.pair import encode_prompt
    from treewise.engine.sampling import Sampling
    from treewise.training.text_quality import RougeL

    settings, sampling = settings or QualitySettings(), sampling or Sampling()
    require(len(prompts) > 0, "prompts", "at least one", len(prompts))
    rouge = RougeL()
    if settings.run_tests:
        run_tests("", "", settings.limits)  # a system that cannot hold code back should cost no decoding
    encoded = [encode_prompt(pair, prompt.text) for prompt in prompts]
    engines = _engines(pair, cost, policy, rules_of(settings.verifications))
    with stage("decoding", len(prompts) * len(engines)) as advance:
        asked = [Asked(prompt.id, ids, sampling, prompt) for prompt, ids in zip(prompts, encoded, strict=True)]
        completions: dict[str, list[Completion]] = {name: [] for name in engines}
        for name, answer in take_turns(engines, asked, settings.max_new_tokens, advance, _WARM_TOKENS):
            completions[name].append(answer)
    texts = {
        name: [str(pair.tokenizer.decode(list(answer.tokens), skip_special_tokens=True)) for answer in given]
        for name, given in completions.items()
    }
    codes = _codes(prompts, texts, settings, stage)
    told: dict[str, tuple[AnswerText, ...]] = {}
    for name, given in completions.items():
        expected = zip(encoded, completions[PLAIN], given, strict=True)
        places = [first_divergence(pair, ids, plain.tokens, found.tokens, sampling) for ids, plain, found in expected]
        told[name] = tuple(
            AnswerText(text, tuple(answer.tokens), answer.finish, code, place)
            for text, answer, code, place in zip(texts[name], given, codes[name], places, strict=True)
        )
    return QualityReport(
        pair=pair.name,
        cost=cost.name,
        policy=policy,
        temperature=sampling.temperature,
        seed=sampling.seed,
        max_new_tokens=settings.max_new_tokens,
        tests_run=settings.run_tests,
        prompts=tuple(prompts),
        answers=tuple(
            _answers(name, prompts, given, told[name], told[PLAIN], rouge) for name, given in completions.items()
        ),
        texts=told,
        resamples=settings.resamples,
    )


def _engines(pair: Pair, cost: CostProfile, policy: str, rules: Sequence[str]) -> dict[str, Engine]:
    """Plain decoding's engine under its own name, and one for every rule under its spec."""
    from treewise.engine.decode import Engine, EngineSettings

    engines = {PLAIN: Engine(pair, policy_for(pair, PLAIN), cost)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyWarning)  # what is lost is what the report is about
        for rule in rules:
            engines[rule] = Engine(pair, policy_for(pair, policy), cost, EngineSettings(verification=rule))
    return engines


def _codes(
    prompts: Sequence[Prompt], texts: Mapping[str, Sequence[str]], settings: QualitySettings, stage: Stage
) -> dict[str, list[CodeResult | None]]:
    """How the code of each text ran; None where the prompt brings no tests, or none are to be run."""
    from treewise.training.text_quality import python_of

    found: dict[str, list[CodeResult | None]] = {name: [None] * len(prompts) for name in texts}
    tested = [place for place, prompt in enumerate(prompts) if prompt.tests and settings.run_tests]
    if not tested:
        return found
    # The same code runs once: were two runs of it to differ, it would not be by the rule.
    known: dict[tuple[str, str], CodeResult] = {}
    with stage("running tests", len(tested) * len(texts)) as advance:
        for place in tested:
            for name, given in texts.items():
                job = (python_of(given[place]), prompts[place].tests)
                if job not in known:
                    known[job] = run_tests(*job, settings.limits)
                found[name][place] = known[job]
                advance(prompts[place].id)
    return found


def _answers(
    name: str,
    prompts: Sequence[Prompt],
    completions: Sequence[Completion],
    texts: Sequence[AnswerText],
    plain: Sequence[AnswerText],
    rouge: RougeL,
) -> Answers:
    """The scores of one rule's texts."""
    from treewise.training.quality import Answers
    from treewise.training.text_quality import asks_for_json, is_json, shared_tokens

    pairs = list(zip(plain, texts, strict=True))
    json_asked = zip(texts, map(asks_for_json, prompts), strict=True)
    return Answers(
        name=name,
        tokens=np.asarray([len(text.tokens) for text in texts], dtype=np.int64),
        rounds=np.asarray([answer.num_rounds for answer in completions], dtype=np.int64),
        ms=np.asarray([1e3 * answer.decode_seconds for answer in completions]),
        is_cut=np.asarray([text.finish == "length" for text in texts]),
        is_same=np.asarray([one.tokens == other.tokens for one, other in pairs]),
        shared_tokens=np.asarray([shared_tokens(one.tokens, other.tokens) for one, other in pairs], dtype=np.int64),
        rouge_l=np.asarray([rouge(one.text, other.text) for one, other in pairs]),
        is_json=np.asarray([float(is_json(found.text)) if asked else math.nan for found, asked in json_asked]),
        is_pass=np.asarray([math.nan if found.code is None else float(found.code.is_pass) for found in texts]),
    )
