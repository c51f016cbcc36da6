"""Live decoding of prompts with several policies in turn, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from treewise.policy.registry import parse_policy
from treewise.policy.task_table import told_task
from treewise.texts import Divergence, first_divergence

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.data.prompt_set import Prompt
    from treewise.engine.decode import Completion, Engine, EngineSettings
    from treewise.engine.pair import Pair
    from treewise.engine.sampling import Sampling
    from treewise.policy.hook import TreePolicy

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """Totals of one policy over live requests; prefill is left out of every time."""

    policy: str  # spec string
    requests: int
    tokens: int
    rounds: int
    nodes: int  # verified
    growths: int  # forward passes of the draft
    decode_seconds: float
    model_seconds: float  # drafting and verifying
    policy_seconds: float  # inside the policy's own calls, a part of what is outside the models
    fallbacks: int  # rounds that the fallback finished
    suspensions: int  # rounds that never reached the policy

    @classmethod
    def of(cls, policy: str, answers: Sequence[Completion], model_seconds: float | None = None) -> LiveFigures:
        """The totals of `answers`.

        `model_seconds`: time inside the two models' forward passes where somebody clocked them; else the engine's own
        figures, which take in the tensors made for a pass and read off it.
        """
        engine_seconds = sum(answer.draft_seconds + answer.verify_seconds for answer in answers)
        return cls(
            policy=policy,
            requests=len(answers),
            tokens=sum(len(answer.tokens) for answer in answers),
            rounds=sum(answer.num_rounds for answer in answers),
            nodes=sum(sum(answer.verified_nodes) for answer in answers),
            growths=sum(answer.growths for answer in answers),
            decode_seconds=sum(answer.decode_seconds for answer in answers),
            model_seconds=engine_seconds if model_seconds is None else model_seconds,
            policy_seconds=sum(answer.policy_seconds for answer in answers),
            fallbacks=sum(answer.fallbacks for answer in answers),
            suspensions=sum(answer.suspensions for answer in answers),
        )

    @classmethod
    def total(cls, policy: str, parts: Sequence[LiveFigures]) -> LiveFigures:
        """The sum of `parts` under the name `policy`."""
        sums = {item.name: sum(getattr(part, item.name) for part in parts) for item in fields(cls)[1:]}
        return cls(policy, **sums)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LiveFigures:
        """What `to_json` wrote, its derived figures left out."""
        return cls(**{item.name: value[item.name] for item in fields(cls)})

    @property
    def tokens_per_second(self) -> float:
        """All tokens over all decode time."""
        return self.tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Tokens over verify passes; 1 for plain decoding."""
        return self.tokens / max(self.rounds, 1)

    @property
    def nodes_per_round(self) -> float:
        """Verified nodes over verify passes."""
        return self.nodes / max(self.rounds, 1)

    @property
    def policy_share(self) -> float:
        """Share of decode time inside the policy's own calls."""
        return self.policy_seconds / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def overhead_share(self) -> float:
        """Share of decode time outside the two models, the policy's included: 1 - model over decode time."""
        return 1.0 - self.model_seconds / self.decode_seconds if self.decode_seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping, derived figures included."""
        derived = ("tokens_per_second", "tokens_per_round", "nodes_per_round", "policy_share", "overhead_share")
        return {**asdict(self), **{name: round(getattr(self, name), 6) for name in derived}}


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Several policies on the same prompts."""

    prompts: tuple[str, ...]  # [prompts] ids
    answers: Mapping[str, tuple[Completion, ...]]  # spec -> [prompts]
    divergences: Mapping[str, tuple[Divergence | None, ...]]  # spec -> [prompts], against plain decoding

    def figures(self, policy: str) -> LiveFigures:
        """Totals of one policy."""
        return LiveFigures.of(policy, self.answers[policy])

    def speedup(self, policy: str) -> float:
        """Tokens per second over plain decoding's: a ratio of totals."""
        return self.figures(policy).tokens_per_second / self.figures(PLAIN).tokens_per_second

    def differing(self, policy: str) -> int:
        """Prompts whose text differs from plain decoding's."""
        return sum(found is not None for found in self.divergences[policy])


def policy_for(pair: Pair, spec: str) -> TreePolicy:
    """The policy that `spec` names, checked to be one for `pair`.

    Raises `PolicySpecError`, and `BundleError` where a bundle was trained on another pair.
    """
    from treewise.policy.learned import LearnedPolicy

    policy = parse_policy(spec)
    if isinstance(policy, LearnedPolicy):
        policy.bundle.check_pair(pair.description)
    return policy


def told_of(policy: object, prompt: Prompt | None) -> str:
    """The kind of task that `policy` is told of `prompt`; empty where that is not known."""
    return "" if prompt is None else told_task(policy, prompt.task, prompt.text)


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as every engine is asked it."""

    prompt_id: str
    ids: Sequence[int]  # of its tokens
    sampling: Sampling
    prompt: Prompt | None = None  # None: policies are told no kind of task


def take_turns(
    engines: Mapping[str, Engine],
    prompts: Iterable[Asked],
    max_new_tokens: int,
    advance: Callable[[str], None] = lambda word: None,
    warm_tokens: int = 0,
) -> Iterator[tuple[str, Completion]]:
    """Every engine's answer to every prompt: (engine's name, answer).

    Who is first rotates from prompt to prompt, so that a machine that slows down slows all of them. `warm_tokens` of
    the first prompt are decoded with every engine before anything counts: the first passes of a process are slow.
    `advance` is told each finished (engine, prompt).
    """
    names = list(engines)
    for number, asked in enumerate(prompts):
        if number == 0 and warm_tokens:
            for engine in engines.values():
                engine.generate(asked.ids, warm_tokens, asked.sampling)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            told = told_of(engines[name].policy, asked.prompt)
            yield name, engines[name].generate(asked.ids, max_new_tokens, asked.sampling, told)
            advance(f"{name.partition(':')[0]} on {asked.prompt_id}")


def run_live(
    pair: Pair,
    cost: CostProfile,
    policies: Sequence[str],
    prompts: Mapping[str, Sequence[int]],
    max_new_tokens: int,
    sampling: Sampling | None = None,
    settings: EngineSettings | None = None,
    advance: Callable[[str], None] = lambda word: None,
    has_plain: bool = True,
    asked: Mapping[str, Prompt] | None = None,
) -> LiveRun:
    """Decode every prompt (id -> token ids) with every policy and, unless `has_plain` is off, with plain decoding.

    The policies take turns as in `take_turns`. `asked`: the prompts by id, where policies are to be told of their kinds
    of task.
    """
    from treewise.engine.decode import Engine
    from treewise.engine.sampling import Sampling

    sampling, known = sampling or Sampling(), asked or {}
    specs = list(dict.fromkeys([PLAIN, *policies] if has_plain else policies))
    engines = {spec: Engine(pair, policy_for(pair, spec), cost, settings) for spec in specs}
    answers: dict[str, list[Completion]] = {spec: [] for spec in specs}
    texts = [Asked(prompt_id, ids, sampling, known.get(prompt_id)) for prompt_id, ids in prompts.items()]
    for spec, answer in take_turns(engines, texts, max_new_tokens, advance):
        answers[spec].append(answer)
    expected = answers[PLAIN if has_plain else specs[0]]
    return LiveRun(
        tuple(prompts),
        {spec: tuple(given) for spec, given in answers.items()},
        {
            spec: tuple(
                first_divergence(pair, text.ids, one.tokens, other.tokens, sampling)
                for text, one, other in zip(texts, expected, given, strict=True)
            )
            for spec, given in answers.items()
        },
    )
