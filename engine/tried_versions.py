"""Whether an adapter was ever tried with the installed version of its engine."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Sequence


def installed_version(package: str) -> str | None:
    """The installed version of the distribution `package`, None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def warn_if_untried(package: str, tried: Sequence[str], found: str | None = None) -> bool:
    """Warn, naming the versions that were tried, where another one is installed; whether it warned.

    `found` stands for the installed version where the caller knows it. A package that is not installed is no reason.
    """
    version = installed_version(package) if found is None else found
    if version is None or version.partition("+")[0] in tried:
        return False
    warnings.warn(
        f"this adapter was tried with {package} {', '.join(tried)}, got {version}; what it does not know it refuses",
        RuntimeWarning,
        stacklevel=3,
    )
    return True
