"""Machine code for the learned policy's arithmetic and for replay's trees, made by numba.

Only modules whose name begins with `compiled` import numba, and nothing imports those but the learned policy and
batched replay, when they are made; without the extra `fast` the same decisions come from numpy. Every function has one
signature, so all of it is compiled, or read from the cache on disk, while its module is imported, and never during a
call.

The cache notices changes of the module that holds a function, not of others. So such a function calls none of another
module and reads no constant of one: what it needs is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

Function = TypeVar("Function", bound=Callable[..., Any])


def read(item: Any, dimensions: int = 1) -> Any:
    """The type of a contiguous array that is only read; one that may be written to will do as well."""
    return types.Array(item, dimensions, "C", readonly=True)


def written(item: Any, dimensions: int = 1) -> Any:
    """The type of a contiguous array that is written to."""
    return types.Array(item, dimensions, "C")


def compiled(signature: Any) -> Callable[[Function], Function]:
    """Decorator: `signature` of a function as machine code that runs without the interpreter's lock."""

    def of(function: Function) -> Function:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        try:
            made = njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):  # no folder that can be written, or no room in it: compiled in every process
            made = njit(signature, **options)(function)
        return made  # type: ignore[no-any-return]

    return of
