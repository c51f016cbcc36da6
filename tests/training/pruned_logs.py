"""Live traces of pruned trees, made from dense ones: what a policy that walks the dense trace would have logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.training.worlds import COST, as_trace, manifest
from treewise.data.trace_schema import concatenate
from treewise.policy.hook import DRAFT, TreePolicy
from treewise.policy.outcome import Walk
from treewise.policy.record import build_tables, node_columns
from treewise.policy.registry import parse_policy
from treewise.policy.round import RoundTree
from treewise.training.logged import LoggedRequest
from treewise.training.logged_trace import LoggedTrace
from treewise.training.replay import Replayer

# What a live round knows and a dense one does too.
_ROOT = (
    *("prompt_id", "task", "position", "generated_tokens", "remaining_tokens", "prompt_tokens", "temperature", "seed"),
    *("root_token", "target_entropy", "target_margin", "lookup_match_length", "lookup_count", "lookup_share"),
    *("lookup_age", "recycled_prob", "recycled_order", "recycled_weight"),
)


# Who wrote a log, who is replayed on it, and how that ends.
LOG_ENDS = (
    ("chain:2,sources=free", "topn:8x2", "prompt-0, round 0: the log did not draft at path depth 0"),
    ("chain:2,sources=draft", "topn:8x2", "prompt-0, round 0: the log did not ask the lookup at path depth 0"),
    ("chain:2,sources=both", "topn:8x2", "prompt-0, round 0: the log did not ask for recycled guesses at path depth 0"),
    ("topn:8x3,sources=draft", "plain", "prompt-0: the log holds no round at position"),
)


class _Recorder:
    """Watches a replay of one request and keeps its rounds as a live engine would."""

    def __init__(self, explorer: str, propensity: float) -> None:
        self.rounds: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self._decider = {"explorer": explorer, "propensity": propensity}

    def watch(self, request: LoggedRequest, position: int, tree: RoundTree, walk: Walk) -> None:
        rounds, row, number = request.shard.rounds, request.row_at(position), len(self.rounds)
        nodes = node_columns(tree.forest, 0, number, 0, tree.kept, walk.on_path, walk.match)
        self.nodes.append(nodes)
        count = len(walk.tokens[0])
        drafted = int(walk.drafted_path[0])
        at = position - request.first_position
        agrees = request.draft_agrees[at : at + count].tolist()
        self.rounds.append(
            {
                **{name: getattr(rounds, name)[row] for name in _ROOT},
                **self._decider,
                "request": 0,
                "round": number,
                "committed": list(walk.tokens[0]),
                "draft_agrees": [one if place < drafted else -1 for place, one in enumerate(agrees)],
                "lookup_agrees": request.lookup_agrees[at : at + count].tolist(),
                "opening": int(tree.forest.column("grown")[0]),
                "num_nodes": len(nodes["node"]),
                "accepted_length": int(walk.accepted_length[0]),
                "draft_growths": len(tree.growth_tokens),
                "draft_tokens": sum(tree.growth_tokens),
                "policy_calls": tree.policy_calls,
                "finish": "",
            }
        )


def pruned(
    trace: LoggedTrace,
    policy: str,
    deciders: Sequence[tuple[str, float]] = (),
    make: Mapping[str, Callable[[], TreePolicy]] | None = None,
) -> LoggedTrace:
    """The live trace of `policy` on the texts of a dense `trace`.

    `deciders` are (explorer, propensity) of each request; an empty explorer is `policy` itself. `make` knows policies
    that are no spec strings.
    """
    own = make or {}
    setting = trace.deployment(COST)
    shards = []
    for place, request in enumerate(trace.requests):
        explorer, propensity = deciders[place] if deciders else ("", 1.0)
        recorder = _Recorder(explorer, propensity)
        name = explorer or policy
        decides = own[name]() if name in own else parse_policy(name)
        Replayer(decides, setting, recorder.watch).run(request)
        recorder.rounds[-1]["finish"] = request.finish
        rounds, nodes = build_tables(recorder.rounds, recorder.nodes)
        shards.append(type(trace.requests[0].shard)(rounds, nodes))
    conditions = replace(manifest("live", trace.envelope, policy), vocab_size=trace.manifest.vocab_size)
    reads = "prefix" if trace.sources & DRAFT else "none"
    return as_trace(concatenate(shards), replace(conditions, draft_reads=reads))


def drawn(seed: int, count: int, probability: float, explorers: Sequence[str]) -> list[tuple[str, float]]:
    """Deciders of `count` requests, one of `explorers` with `probability`."""
    rng = np.random.default_rng(seed)
    return [
        (str(rng.choice(explorers)), probability / len(explorers)) if one < probability else ("", 1.0 - probability)
        for one in rng.random(count).tolist()
    ]
