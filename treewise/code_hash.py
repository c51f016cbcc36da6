"""Hashes of code: of what a module and everything that it imports says, so that results are kept until it changes."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGE = "treewise"


@cache
def code_closure(modules: tuple[str, ...]) -> str:
    """SHA-256, in hex, over the sources of `modules` and of all of treewise that they import when they are imported.

    What a function imports when it is called, and what only type checkers import, does not count.
    """
    found: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        found[name] = Path(spec.origin).read_bytes()
        waiting.extend(_imports(ast.parse(found[name]).body))
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n".encode())
        digest.update(found[name])
    return digest.hexdigest()


def _imports(body: Sequence[ast.stmt]) -> list[str]:
    names: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            names.extend(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names.append(statement.module)
    return [name for name in names if name.startswith(f"{PACKAGE}.")]
