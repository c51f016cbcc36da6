"""The conditions of a controller's traces: what their manifest says, and whether a recorder's says the same."""

from __future__ import annotations

from typing import Any

from treewise.data.errors import require
from treewise.data.trace_manifest import EXACT, TraceManifest
from treewise.policy.hook import DRAFT, Deployment


def conditions_of(deployment: Deployment, corpus_hash: str | None) -> dict[str, Any]:
    """Fields of `TraceManifest`, by name, that a controller of `deployment` knows and keeps to."""
    return {
        "kind": "live",
        "envelope": deployment.envelope,
        "prior_table": deployment.prior_table,
        "vocab_size": deployment.vocab_size,
        "suffix_corpus_hash": corpus_hash,
        "ranking": deployment.ranking,
        "verification": EXACT,  # the walk accepts what equals the target's token, nothing else
    }


def check_conditions(manifest: TraceManifest, deployment: Deployment, corpus_hash: str | None) -> None:
    """Raise `ParameterError`, naming it, where a recorder's `manifest` says another condition."""
    for name, ours in conditions_of(deployment, corpus_hash).items():
        theirs = getattr(manifest, name)
        require(theirs == ours, f"recorder's {name}", f"the controller's {ours!r}", theirs)
    ours, theirs = not deployment.sources & DRAFT, manifest.draft_reads == "none"  # what a draft reads is the loop's
    require(theirs == ours, "recorder's draft_reads none", f"the controller's {ours!r}", theirs)
