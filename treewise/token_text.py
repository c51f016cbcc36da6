"""The text of a trace's tokens, where the tokenizer that they belong to is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from treewise.data.errors import PairError

if TYPE_CHECKING:
    from treewise.data.trace_manifest import TraceManifest
    from treewise.html_tree import TokenText


def token_text(manifest: TraceManifest) -> TokenText | None:
    """The text of one token of the trace; None where its tokens or its tokenizer are not here.

    Looks where the trace's target is, on this machine alone: the pulled pair, or the folder that the target is named
    by. A tokenizer with another hash than the trace's is left alone.
    """
    target = str(manifest.pair.get("target", ""))
    if not manifest.tokens_included or not target:
        return None
    try:
        from treewise.engine import smollm2
        from treewise.engine.pair import load_tokenizer
        from treewise.engine.tokenizer import tokenizer_sha256
    except ImportError:  # the core alone
        return None
    if target == smollm2.NAME:
        folder = smollm2.folder() if smollm2.is_pulled() else None
    else:
        folder = Path(target) if Path(target).is_dir() else None
    if folder is None:
        return None
    try:
        tokenizer = load_tokenizer(str(folder), name=target)
    except PairError:
        return None
    if tokenizer_sha256(tokenizer) != manifest.tokenizer_hash:
        return None
    return lambda token: str(tokenizer.decode([token]))
