"""Which modules a source text imports, and whether it does so when it is itself imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; `lazy` when inside a function or under `if TYPE_CHECKING`."""

    name: str
    line: int
    lazy: bool


class _Collector(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Import] = []
        self._lazy_depth = 0

    def _add(self, name: str, line: int) -> None:
        self.found.append(Import(name, line, self._lazy_depth > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        # `from treewise import engine` names a room in its second half, so both halves count.
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            self._add(f"{module}.{alias.name}" if module == "treewise" else module, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._add(name.value, node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_lazily(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_lazily(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            self._visit_lazily(node)
        else:
            self.generic_visit(node)

    def _visit_lazily(self, node: ast.AST) -> None:
        self._lazy_depth += 1
        self.generic_visit(node)
        self._lazy_depth -= 1


def imports_of(source: str) -> list[Import]:
    """Every import statement and every `import_module` of a literal name in `source`, in order."""
    collector = _Collector()
    collector.visit(ast.parse(source))
    return collector.found
