"""A policy decides the same, round by round, whether the live engine drives it, its own trace, or a dense trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.engine.tiny import DRAFTS, NARROW, Draft, RandomPolicy, end_token, example_cost, lax_settings, tiny_pair
from treewise.data.envelope import PriorTable
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_writer import TraceWriter
from treewise.engine.decode import Engine, RoundRecord
from treewise.engine.dense import KnownText, grow_dense
from treewise.engine.pair import Pair
from treewise.engine.record import LiveRecorder, record_rounds
from treewise.engine.sampling import Sampling
from treewise.policy.hook import TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundTree
from treewise.training.live_check import replay_live
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace, open_trace
from treewise.training.replay import Replayer

SPECS = (
    "entropy",
    "frontier",
    "topn:10x3",
    "topn:10x3,sources=draft",
    "topn:10x3,sources=lookup",
    "chain:4",
    "static:2x3",
    "switch",
    "cumulative",
    "plain",
)
LIMIT = 20
Decided = tuple[int, tuple[tuple[object, ...], ...], int]  # root position, rows, accepted length


def manifest(pair: Pair, kind: str, sampling: Sampling, tokens_included: bool = True) -> TraceManifest:
    return TraceManifest(
        kind="live" if kind == "live" else "dense",
        pair=pair.description.to_json(),
        tokenizer_hash="1" * 64,
        envelope=NARROW if kind == "live" else NARROW.widened(),
        prior_table=PriorTable(),
        vocab_size=pair.description.vocab_size,
        max_new_tokens=LIMIT,
        temperature=sampling.temperature,
        seed=sampling.seed,
        policy="tested" if kind == "live" else None,
        draft_reads="none" if pair.draft is None else "prefix",
        tokens_included=tokens_included,
    )


def decided(position: int, tree: RoundTree, walk: Walk) -> Decided:
    """Everything that a round decided and saw, in order of its rows; signals to the bit where the sources are exact."""
    column = tree.forest.column
    names = ("parent", "depth", "token", "sources", "admitted", "grown", "drafted", "may_grow", "lookup_count")
    columns = [np.nan_to_num(column(name), nan=-1).tolist() for name in names]
    rows = tuple(zip(*columns, strict=True))
    kept = tuple((bool(kept),) for kept in tree.kept)
    return position, rows + kept, int(walk.accepted_length[0])


def decode_live(
    pair: Pair,
    policy: TreePolicy,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    folder: Path,
    tokens_included: bool = True,
) -> tuple[list[Decided], list[KnownText], list[RoundRecord]]:
    """Decode, writing a live trace. Returns decisions, the texts that came out, and the last request's last round."""
    engine = Engine(pair, policy, example_cost(), lax_settings())
    decisions: list[Decided] = []
    texts: list[KnownText] = []
    last: list[RoundRecord] = []
    with TraceWriter(folder, manifest(pair, "live", sampling, tokens_included)) as writer:
        for number, prompt in enumerate(prompts):
            recorder = LiveRecorder(f"p{number}", "chat", len(prompt), sampling.temperature, sampling.seed)
            text: list[int] = []
            for record in record_rounds(engine.rounds(prompt, LIMIT, sampling), recorder):
                assert not record.fallback
                decisions.append(decided(int(record.context.position[0]), record.tree, record.walk))
                text.extend(record.committed)
                last = [record]
            recorder.finish(writer)
            finish = last[0].finish
            texts.append(
                KnownText(
                    f"p{number}", "chat", tuple(prompt), tuple(text), LIMIT, finish, sampling.temperature, sampling.seed
                )
            )
    return decisions, texts, last


def write_dense(pair: Pair, texts: Sequence[KnownText], sampling: Sampling, folder: Path) -> LoggedTrace:
    with TraceWriter(folder, manifest(pair, "dense", sampling)) as writer:
        for text in texts:
            writer.add(*grow_dense(pair, text, NARROW.widened(), PriorTable(), chunk_positions=7))
    return open_trace(folder)


def replayed(trace: LoggedTrace, policy: TreePolicy) -> list[Decided]:
    found: list[Decided] = []

    def watch(request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        found.append(decided(position, tree, walk))

    replayer = Replayer(policy, trace.deployment(example_cost()), watch)
    for request in trace.requests:
        replayer.run(request)
    return found


def prompts_of(seed: int, vocab_size: int = 24) -> list[list[int]]:
    """Prompts with repeats, so that the lookup has something to say."""
    draw = np.random.default_rng(seed)
    block = draw.integers(0, vocab_size, 5).tolist()
    return [[*block, *draw.integers(0, vocab_size, 3).tolist(), *block], [int(draw.integers(0, vocab_size))]]


def policy_of(spec: str) -> TreePolicy:
    return RandomPolicy(3) if spec == "random" else parse_policy(spec)


@pytest.mark.parametrize("spec", [*SPECS, "random"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_replay_decides_as_the_live_engine_did(spec: str, draft: Draft, tmp_path: Path) -> None:
    number = DRAFTS.index(draft)
    pair = tiny_pair(draft, seed=number)
    sampling = Sampling(0.7, seed=11) if (number + len(spec)) % 2 else Sampling()
    live, texts, _ = decode_live(pair, policy_of(spec), prompts_of(7), sampling, tmp_path / "live")
    check = replay_live(open_trace(tmp_path / "live"), policy_of(spec), example_cost())
    assert check.mismatches == ()
    assert check.compared == check.rounds == len(live)
    assert replayed(open_trace(tmp_path / "live"), policy_of(spec)) == live
    dense = write_dense(pair, texts, sampling, tmp_path / "dense")
    assert replayed(dense, policy_of(spec)) == live


def test_replay_needs_no_token_ids(tmp_path: Path) -> None:
    pair = tiny_pair("same")
    live, _, _ = decode_live(pair, parse_policy("entropy"), prompts_of(2), Sampling(), tmp_path, tokens_included=False)
    check = replay_live(open_trace(tmp_path), parse_policy("entropy"), example_cost())
    assert (check.mismatches, check.compared) == ((), len(live))


@pytest.mark.parametrize("draft", ["same", "cut", "none"])
def test_replay_follows_a_text_that_an_end_token_cuts(draft: Draft, tmp_path: Path) -> None:
    pair = tiny_pair(draft, seed=4)
    _, texts, _ = decode_live(pair, parse_policy("plain"), prompts_of(5), Sampling(), tmp_path / "first")
    with end_token(pair, texts[0].completion[9], texts[1].completion[12]):
        for spec in ("entropy", "topn:10x3"):
            folder = tmp_path / spec.partition(":")[0]
            live, cut, _ = decode_live(pair, parse_policy(spec), prompts_of(5), Sampling(), folder / "live")
            assert {text.finish for text in cut} == {"eos"}
            assert replay_live(open_trace(folder / "live"), parse_policy(spec), example_cost()).mismatches == ()
            assert replayed(write_dense(pair, cut, Sampling(), folder / "dense"), parse_policy(spec)) == live
