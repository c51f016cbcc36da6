"""A policy decides the same, round by round, whether the live engine drives it, its own trace, or a dense trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.tiny import DRAFTS, NARROW, Draft, RandomPolicy, end_token, example_cost, lax_settings, tiny_pair
from tests.policy.rank_tables import rank_table
from treewise.data.envelope import PriorTable
from treewise.data.errors import CoverageError, ParameterError
from treewise.data.trace_manifest import TraceManifest
from treewise.data.trace_writer import TraceWriter
from treewise.engine.decode import Engine, RoundRecord
from treewise.engine.dense import KnownText, grow_dense
from treewise.engine.pair import Pair
from treewise.engine.record import LiveRecorder, record_rounds
from treewise.engine.sampling import Sampling
from treewise.policy.draft_ranking import RANKINGS, resolve_ranking
from treewise.policy.hook import BoolArray, Expansion, ForestView, Level, RequestInfo, TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundTree
from treewise.policy.sequoia import SequoiaPolicy, SequoiaSettings
from treewise.policy.topn import TopNPolicy, TopNSettings
from treewise.training.ab import ab
from treewise.training.as_recorded import RecordedRound
from treewise.training.live_check import replay_live
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace, open_trace
from treewise.training.replay import Replayer
from treewise.training.replay_result import modelled_ms

SEQUOIA = "sequoia"  # with the table of `rank_table`
SPECS = (
    "entropy",
    "frontier",
    "topn:10x3",
    "topn:10x3,sources=draft",
    "topn:10x3,sources=lookup",
    "topn:10x3,sources=free",
    "frontier:sources=free",
    "chain:4,sources=recycled",
    "cumulative:sources=recycled",
    "chain:4",
    "static:2x3",
    "switch",
    "opt-tree:10x0.1",
    "opt-tree:6x0.1,beam=2,sources=draft",
    "feedback:12x4,probe_rounds=3",
    "feedback:12x3,headroom=0.2,context_tokens=20,sources=free",
    "feedback:8x3,sources=recycled",
    SEQUOIA,
    "cumulative",
    "plain",
)
LIMIT = 20
Decided = tuple[int, tuple[tuple[object, ...], ...], int]  # root position, rows, accepted length


def manifest(
    pair: Pair, kind: str, sampling: Sampling, tokens_included: bool = True, ranking: str = ""
) -> TraceManifest:
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
        ranking=resolve_ranking(ranking, sampling.temperature),
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
    may_fail: bool = False,
    ranking: str = "",
) -> tuple[list[Decided], list[KnownText], list[RoundRecord]]:
    """Decode, writing a live trace. Returns decisions, the texts that came out, and the last request's last round."""
    engine = Engine(pair, policy, example_cost(), replace(lax_settings(), ranking=ranking))
    decisions: list[Decided] = []
    texts: list[KnownText] = []
    last: list[RoundRecord] = []
    with TraceWriter(folder, manifest(pair, "live", sampling, tokens_included, ranking)) as writer:
        for number, prompt in enumerate(prompts):
            recorder = LiveRecorder(f"p{number}", "chat", len(prompt), sampling.temperature, sampling.seed)
            text: list[int] = []
            for record in record_rounds(engine.rounds(prompt, LIMIT, sampling), recorder):
                assert may_fail or not (record.fallback or record.suspended)
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


def write_dense(
    pair: Pair, texts: Sequence[KnownText], sampling: Sampling, folder: Path, ranking: str = ""
) -> LoggedTrace:
    with TraceWriter(folder, manifest(pair, "dense", sampling, ranking=ranking)) as writer:
        for text in texts:
            tables = grow_dense(pair, text, NARROW.widened(), PriorTable(), 7, sampling, ranking)
            writer.add(*tables)
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
    if spec == SEQUOIA:
        return SequoiaPolicy(SequoiaSettings(nodes=9, depth=3), rank_table())
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


class Fails(RandomPolicy):
    """Goes wrong in every third round, at the place named; or at the start of the second request."""

    def __init__(self, place: str) -> None:
        super().__init__(4)
        self.place = place
        self.rounds = self.requests = 0

    def begin(self, request: RequestInfo) -> None:
        super().begin(request)
        self.rounds = 0
        self.requests += 1
        if self.place == "begin" and self.requests == 2:
            raise ValueError("not this one")

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.place == "expand" and self.rounds % 3 == 0 and level.index == 1:
            raise ValueError("not here")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        if self.place == "select" and self.rounds % 3 == 0:
            raise ValueError("not these")
        return super().select(forest)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("place", ["expand", "select", "begin"])
def test_replay_falls_back_and_obeys_suspensions_where_the_engine_did(place: str, tmp_path: Path) -> None:
    pair = tiny_pair("other", seed=8)
    prompts = prompts_of(3)
    live, texts, _ = decode_live(pair, Fails(place), prompts, Sampling(), tmp_path / "live", may_fail=True)
    rounds = open_trace(tmp_path / "live").requests[0].shard.rounds
    assert (rounds.suspended if place == "begin" else rounds.fallback).any()
    assert replay_live(open_trace(tmp_path / "live"), Fails(place), example_cost()).mismatches == ()
    assert replayed(open_trace(tmp_path / "live"), Fails(place)) == live
    if place != "begin":  # a dense trace knows of no suspension, and a failing `begin` suspends in replay as well
        assert replayed(write_dense(pair, texts, Sampling(), tmp_path / "dense"), Fails(place)) == live


def test_replay_equals_live_at_the_end_of_the_context(tmp_path: Path) -> None:
    pair = tiny_pair("pruned", context=24)
    prompts = [[3, 7, 1, 9] * 4, [5] * 22]
    for spec in ("topn:10x3", "static:2x4"):
        folder = tmp_path / spec.partition(":")[0]
        live, texts, _ = decode_live(pair, parse_policy(spec), prompts, Sampling(), folder / "live")
        assert [len(text.completion) for text in texts] == [8, 2]
        assert replayed(open_trace(folder / "live"), parse_policy(spec)) == live
        assert replayed(write_dense(pair, texts, Sampling(), folder / "dense"), parse_policy(spec)) == live


@pytest.mark.parametrize("sampling", [Sampling(0.8, seed=5), Sampling(1.0, top_k=9, seed=6)])
@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("draft", ["same", "other"])
def test_every_ranking_replays(draft: Draft, ranking: str, sampling: Sampling, tmp_path: Path) -> None:
    pair = tiny_pair(draft, seed=2)
    texts_of = {}
    for spec in ("frontier", "static:3x3", "random"):
        prompts = prompts_of(4)
        live, texts, _ = decode_live(pair, policy_of(spec), prompts, sampling, tmp_path / spec, ranking=ranking)
        assert replayed(open_trace(tmp_path / spec), policy_of(spec)) == live
        dense = write_dense(pair, texts, sampling, tmp_path / f"dense-{spec}", ranking)
        assert dense.manifest.ranking == ranking
        assert replayed(dense, policy_of(spec)) == live
        texts_of[spec] = [text.completion for text in texts]
    plain, _, _ = texts_of.values()
    assert all(texts == plain for texts in texts_of.values())


def test_a_log_replays_under_its_own_ranking_only(tmp_path: Path) -> None:
    sampling = Sampling(0.8, seed=5)
    decode_live(tiny_pair("same"), policy_of("frontier"), prompts_of(4), sampling, tmp_path, ranking="plain")
    trace = open_trace(tmp_path)
    other = replace(trace.deployment(example_cost()), ranking="both")
    with pytest.raises(ParameterError, match=r"deployment.ranking must be that of the log of prompt p0, 'plain'"):
        Replayer(policy_of("frontier"), other).run(trace.requests[0])


NARROW_TREE = TopNSettings(nodes=3, depth=3)  # unlike that of the fallback


class Flaky(TopNPolicy):
    """A rule that goes wrong in every third round, through no fault of its own: replay meets no such thing."""

    def __init__(self, place: str) -> None:
        super().__init__(NARROW_TREE)
        self.place = place
        self.rounds = 0

    def expand(self, level: Level) -> Expansion:
        self.rounds += level.index == 0
        if self.place == "expand" and self.rounds % 3 == 0 and level.index == 1:
            raise OSError("a file was gone")
        return super().expand(level)

    def select(self, forest: ForestView) -> BoolArray:
        if self.place == "select" and self.rounds % 3 == 0:
            raise OSError("a file was gone")
        return super().select(forest)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("place", ["expand", "select"])
@pytest.mark.parametrize("draft", ["other", "none"])
def test_a_fallback_that_does_not_come_again_is_obeyed_as_recorded(place: str, draft: Draft, tmp_path: Path) -> None:
    pair = tiny_pair(draft, seed=8)
    live, _, _ = decode_live(pair, Flaky(place), prompts_of(3), Sampling(), tmp_path, may_fail=True)
    trace = open_trace(tmp_path)
    fallen = int(trace.requests[0].shard.rounds.fallback.sum())
    assert fallen
    assert replay_live(trace, TopNPolicy(NARROW_TREE), example_cost()).mismatches
    check = replay_live(trace, TopNPolicy(NARROW_TREE), example_cost(), as_recorded=True)
    assert (check.mismatches, check.compared) == ((), len(live))
    deployment = trace.deployment(example_cost())
    replayer = Replayer(TopNPolicy(NARROW_TREE), deployment, as_recorded=True)
    replayer.run_all(trace.requests)
    result = replayer.result()
    assert int(result.fallback.sum()) == fallen
    assert (result.policy_calls[result.fallback] == 0).all()
    assert (modelled_ms(result, replace(deployment, cost=replace(example_cost(), level_ms=30.0)), 0.05) > 0).all()


def test_a_recorded_round_answers_for_its_own_rows_only(tmp_path: Path) -> None:
    pair = tiny_pair("same", seed=2)
    decode_live(pair, parse_policy("topn:10x3"), prompts_of(3), Sampling(), tmp_path)
    request = open_trace(tmp_path).requests[0]
    with pytest.raises(CoverageError, match="holds no round at position 3"):
        RecordedRound(request, 3)


def test_a_dense_trace_has_nothing_recorded(tmp_path: Path) -> None:
    pair = tiny_pair("none", seed=2)
    _, texts, _ = decode_live(pair, parse_policy("plain"), prompts_of(3), Sampling(), tmp_path / "live")
    dense = write_dense(pair, texts, Sampling(), tmp_path / "dense")
    with pytest.raises(ParameterError, match="as_recorded must be off unless all traces are live, got True"):
        ab([dense], [example_cost()], ["plain"], as_recorded=True)
