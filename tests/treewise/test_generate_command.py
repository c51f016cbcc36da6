"""`treewise generate`."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.treewise.test_traces_command import run
from tests.treewise.tiny import DRAFT, HASTY, leave
from treewise.cli import generate as command
from treewise.data.cost import CostProfile
from treewise.engine.decode import Engine
from treewise.engine.pair import Pair, encode_prompt
from treewise.engine.sampling import Sampling
from treewise.policy.registry import parse_policy
from treewise.shipped import split_trace, train_part
from treewise.stream import StableText

PROMPT = "red green red green"
COST = CostProfile.load("example-a100-70b")


def arguments(tiny: Path, *more: str) -> list[str]:
    sizes = ("--cost", "example-a100-70b", "--threads", "1", "--max-new-tokens", "24")
    return ["generate", "--target", str(tiny), "--draft", DRAFT, *sizes, *more]


def answer(pair: Pair, sampling: Sampling) -> str:
    """The text of plain decoding."""
    tokens = Engine(pair, parse_policy("plain"), COST).generate(encode_prompt(pair, PROMPT), 24, sampling).tokens
    return str(pair.tokenizer.decode(list(tokens), skip_special_tokens=True))


@pytest.mark.parametrize("way", ["argument", "option", "dash", "pipe"])
def test_the_text_is_plain_decodings_however_the_prompt_comes(
    tiny: Path, pair: Pair, way: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if way in ("dash", "pipe"):
        monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    given = {"argument": [PROMPT], "option": ["--prompt", PROMPT], "dash": ["-"], "pipe": []}[way]
    assert leave(arguments(tiny, *given)) == 0
    printed = capsys.readouterr()
    assert printed.out == answer(pair, Sampling()) + "\n"
    figures = printed.err.splitlines()[-1]
    assert figures.startswith("24 tokens, cut at --max-new-tokens; ")
    for word in ("tokens/s", "nodes per round", "frontier, "):
        assert word in figures


def test_sampling_options_are_those_of_the_engine(tiny: Path, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    more = (
        "--temperature",
        "0.9",
        "--top-k",
        "20",
        "--top-p",
        "0.95",
        "--seed",
        "7",
        "--min-p",
        "0.02",
        "--typical-p",
        "0.9",
    )
    printed = run(arguments(tiny, PROMPT, *more), capsys)
    assert printed == answer(pair, Sampling(0.9, 20, 0.95, 7, 0.02, 0.9)) + "\n"


def test_a_bundle_decodes(
    tiny: Path, pair: Pair, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_part(split_trace(traces), COST, tmp_path / "policy", HASTY)
    assert leave(arguments(tiny, PROMPT, "--bundle", str(tmp_path / "policy"))) == 0
    printed = capsys.readouterr()
    assert printed.out == answer(pair, Sampling()) + "\n"
    assert "learned:" in printed.err


def test_ctrl_c_stops_between_rounds_and_says_so(
    tiny: Path, pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    presses = []
    add = StableText.add

    def pressed(self: StableText, tokens: Sequence[int]) -> str:
        presses.append(len(tokens))
        if len(presses) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return add(self, tokens)

    monkeypatch.setattr(StableText, "add", pressed)
    before = signal.getsignal(signal.SIGINT)
    assert leave(arguments(tiny, PROMPT, "--policy", "plain")) == command.EXIT_INTERRUPTED == 130
    assert signal.getsignal(signal.SIGINT) is before
    printed = capsys.readouterr()
    assert printed.out == answer(pair, Sampling())[:2] + "\n"
    assert "2 tokens, stopped; " in printed.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((PROMPT, "--prompt", PROMPT), "prompt must be given once, got an argument and --prompt"),
        ((PROMPT, "--policy", "plain", "--bundle", "x"), "policy must be given as one of --policy and --bundle"),
        ((PROMPT, "--policy", "magic"), "policy must be one of"),
        ((PROMPT, "--bundle", "nowhere"), "bundle must be a folder with a bundle.json, got"),
        (("-",), "prompt must be given as an argument, --prompt or standard input, got none"),
        ((PROMPT, "--verification", "magic"), "verification must be"),
        (("a" * 9000,), "prompt must be shorter than the target's context of 8192"),
    ],
)
def test_errors_are_one_line(
    tiny: Path,
    more: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert leave(arguments(tiny, *more)) == 2
    assert message in capsys.readouterr().err
