"""The one exception tree of treewise.

TreewiseError
├── ParameterError (ValueError)      a setting or argument breaks its rule
│   └── PolicySpecError              an unknown or malformed policy spec string
├── PromptError (ValueError)         a prompt file or a prompt that cannot be decoded
├── PairError                        target, draft and tokenizer do not fit together
│   ├── TokenMapError                token maps differ; names the first difference
│   └── ChecksumError                stored bytes are not the bytes that were promised
├── CacheRollbackError               a model whose cache cannot be rolled back
├── ModelOutputError                 NaN or infinity in a model's logits
├── PolicyError                      a policy raised, or answered with NaN or a wrong shape
├── TraceError                       a trace that cannot be read or used
│   ├── ShardError                   one shard is corrupted, truncated or foreign
│   └── CoverageError                a policy may ask for more than the trace holds
├── CorpusError (ValueError)         a corpus of recycled guesses that cannot be read or does not fit
├── SchemaVersionError               stored under another schema version
├── BundleError                      a policy bundle that does not fit
├── CostProfileError                 a cost profile that cannot be used
├── WorkerError                      a process that shared the work died
└── MissingExtraError (ImportError)  an optional dependency is not installed

TreewiseWarning (UserWarning)
├── LossyWarning                     a lossy verification rule: the text is no longer plain decoding's
├── CaptureWarning                   passes that were to be replayed from a recording run eagerly
└── AcceptanceWarning                a draft that never agrees with the target
"""

from __future__ import annotations


class TreewiseError(Exception):
    """Everything that treewise raises on purpose."""


class ParameterError(TreewiseError, ValueError):
    """A setting or argument breaks its rule. The message reads `name must be RULE, got VALUE`."""


class PolicySpecError(ParameterError):
    """A policy spec string that names no registered policy or has malformed settings."""


class PromptError(TreewiseError, ValueError):
    """A prompt file, or a prompt, that cannot be decoded."""


class PairError(TreewiseError):
    """Target, draft and tokenizer do not fit together."""


class TokenMapError(PairError):
    """The token maps of target and draft differ; the message names the first difference."""


class ChecksumError(PairError):
    """Stored bytes are not the bytes that were promised."""


class CacheRollbackError(TreewiseError):
    """A model whose cache cannot be rolled back to the accepted path."""


class ModelOutputError(TreewiseError):
    """NaN or infinity in a model's logits."""


class PolicyError(TreewiseError):
    """A policy raised, or answered with NaN or a wrong shape."""


class TraceError(TreewiseError):
    """A trace that cannot be read, or not be used as asked."""


class ShardError(TraceError):
    """One shard is corrupted, truncated or foreign."""


class CoverageError(TraceError):
    """A policy may ask for more than the trace holds."""


class CorpusError(TreewiseError, ValueError):
    """A corpus of recycled guesses is missing, damaged or of another tokenizer."""


class SchemaVersionError(TreewiseError):
    """Stored under another schema version than this one reads."""

    def __init__(self, what: str, found: object, expected: object, cure: str) -> None:
        super().__init__(f"{what} has schema version {found!r}, this treewise reads {expected!r}: {cure}")
        self.what = what
        self.found = found
        self.expected = expected
        self.cure = cure

    def __reduce__(self) -> tuple[type[SchemaVersionError], tuple[object, ...]]:
        """So that it comes back whole from another process."""
        return type(self), (self.what, self.found, self.expected, self.cure)


class BundleError(TreewiseError):
    """A policy bundle whose hash, features or envelope do not fit."""


class CostProfileError(TreewiseError):
    """A cost profile that cannot be used."""


class WorkerError(TreewiseError):
    """A process that shared the work died."""


class MissingExtraError(TreewiseError, ImportError):
    """An optional dependency is not installed; the message names the cure."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; install it with `pip install treewise[{extra}]`")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """So that it comes back whole from another process."""
        return type(self), (self.package, self.extra)


class TreewiseWarning(UserWarning):
    """Everything that treewise warns of by a class of its own."""


class LossyWarning(TreewiseWarning):
    """A lossy verification rule is in use; the message names what is lost."""


class CaptureWarning(TreewiseWarning):
    """Passes that were to be replayed from a recording run eagerly; the message says which and why."""


class AcceptanceWarning(TreewiseWarning):
    """The draft costs time and brings nothing: none of its tokens was accepted over many rounds."""


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise `ParameterError("name must be RULE, got VALUE")` unless `condition` holds."""
    if not condition:
        raise ParameterError(f"{name} must be {rule}, got {value!r}")
