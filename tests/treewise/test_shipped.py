"""Dealing a trace's prompts to training and judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import TraceError
from treewise.data.prompt_set import read_prompts
from treewise.engine.collect import CollectSettings, collect_dense
from treewise.engine.pair import Pair
from treewise.shipped import SplitTrace, split_trace, spread


def test_every_third_prompt_of_each_task_is_held_out(traces: Path) -> None:
    split = split_trace(traces)
    train = [(request.task, request.prompt_id) for request in split.train.requests]
    held_out = [(request.task, request.prompt_id) for request in split.held_out.requests]
    assert len(train) == 8
    assert sorted(task for task, _ in held_out) == ["chat", "copy"]
    assert not set(train) & set(held_out)
    again = split_trace(traces)
    assert [request.prompt_id for request in again.held_out.requests] == [prompt for _, prompt in held_out]
    assert again.train_hash == split.train_hash != split.content_hash


def test_spreading_takes_turns_between_tasks(traces: Path) -> None:
    train = split_trace(traces).train
    assert {request.task for request in spread(train, 2).requests} == {"chat", "copy"}
    assert len(spread(train, 100).requests) == len(train.requests)


def test_too_few_prompts_are_refused(pair: Pair, prompts: Path, tmp_path: Path) -> None:
    few = read_prompts(prompts)[:2]
    collect_dense(pair, few, tmp_path, Envelope(), PriorTable(), CollectSettings(max_new_tokens=4))
    with pytest.raises(TraceError, match="must hold 3 prompts to train on and 1 to judge, got 2"):
        split_trace(tmp_path)


def test_traces_beside_the_training_part_are_trained_on_too(pair: Pair, prompts: Path, tmp_path: Path) -> None:
    found = read_prompts(prompts)
    parts = {"train": (found[:4], 0.0), "judge": (found[4:6], 0.0), "train-warm": (found[:2], 1.0)}
    for name, (some, temperature) in parts.items():
        settings = CollectSettings(max_new_tokens=4, temperature=temperature)
        collect_dense(pair, some, tmp_path / name, Envelope(), PriorTable(), settings)
    split = split_trace(tmp_path)
    assert [trace.manifest.temperature for trace in split.also_train] == [1.0]
    assert [trace.manifest.ranking for trace in (split.train, *split.also_train)] == ["plain", "both"]
    assert len(split.also_train[0].requests) == 2
    without = SplitTrace(split.train, split.held_out, split.content_hash)
    assert split.train_hash != without.train_hash
