"""Imports run downwards, each dependency is used in its own layer only, and nothing of it is replaced at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard

import pytest

from tests.conftest import ROOT

LAYERS = ("signatures", "warehouse", "pipeline", "serve", "cli")
"""From the bottom; a layer may import itself and the layers listed earlier."""

OWNERS = {
    "deltalake": (),  # an oracle of tests
    "duckdb": ("sigdir/warehouse/",),
    "evmole": ("sigdir/signatures/bytecode.py",),
    "falcon": ("sigdir/serve/",),
    "mcp": ("sigdir/serve/mcp_server.py", "sigdir/serve/mcp_http.py"),
    "pydantic": ("sigdir/serve/mcp_server.py",),
    "obstore": ("sigdir/warehouse/table/stores.py",),
    "granian": ("sigdir/serve/servers/",),
    "prometheus_client": ("sigdir/serve/metrics.py",),
    "pysail": ("sigdir/cli/spark_session.py",),
    "pyspark": ("sigdir/cli/spark_session.py",),
    "waitress": ("sigdir/serve/servers/",),
}
"""The path prefixes under which a dependency may be imported."""

PARTS = {
    "warehouse": (
        "table",
        "staging",
        "log",
        "evidence",
        "index",
        "sql",
        "transfer",
        "publish",
        "compact",
        "vacuum",
        "verify",
    ),
    "serve": (
        "http",
        "core",
        "metrics",
        "statistics",
        "pages",
        "lists",
        "api",
        "bulk",
        "dialects",
        "app",
        "servers",
    ),
}
"""The subpackages of a layer, from the bottom; one imports itself and those listed earlier, and no other module beside them."""


@cache
def sources() -> dict[str, str]:
    """The text of each of our modules, by its path in the import package."""
    package = ROOT / "sigdir"
    files = [*package.glob("*.py"), *(file for layer in LAYERS for file in (package / layer).rglob("*.py"))]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax tree of each of our modules."""
    return {path: ast.parse(source) for path, source in sources().items()}


def imports(tree: ast.AST) -> Iterator[str]:
    """The full names that a tree imports, inside of functions too; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def violations(path: str, tree: ast.Module) -> Iterator[str]:
    """The imports of a module that its layer does not allow."""
    layer = path.split("/")[1]
    for name in imports(tree):
        package, *inner = name.split(".")
        if package in ("", *LAYERS):
            yield f"{path}: {name} is not a full name"
        elif package == "sigdir" and layer in LAYERS:
            if inner[0] not in LAYERS:
                yield f"{path}: {name} belongs to no layer"
            elif LAYERS.index(inner[0]) > LAYERS.index(layer):
                yield f"{path}: {name} is in a higher layer"
        elif not path.startswith(OWNERS.get(package, "")):
            yield f"{path}: {name} has another owner"
        if package == "sigdir" and inner[:1] == [layer] and layer in PARTS and path.count("/") > 2:
            parts, part = PARTS[layer], path.split("/")[2]
            if inner[1] not in parts or parts.index(inner[1]) > parts.index(part):
                yield f"{path}: {name} is above {part}"


def third_party_names(tree: ast.Module) -> set[str]:
    """The local names of everything that a module imports from other packages."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names if _is_foreign(alias.name)}
        elif isinstance(node, ast.ImportFrom) and _is_foreign(node.module or ""):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _is_foreign(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] != "sigdir"


def replacements(path: str, tree: ast.Module) -> Iterator[str]:
    """Assignments to, and deletions of, an attribute of something imported from another package."""
    foreign = third_party_names(tree)
    for node in ast.walk(tree):
        if (isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root(node) in foreign) or (
            _is_setattr(node) and _root(node.args[0]) in foreign
        ):
            yield f"{path}: {ast.unparse(node)}"


def _is_setattr(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr")


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_every_layer_is_searched() -> None:
    """Modules of every layer are found; a wrong path would let the tests below pass without any module."""
    assert {path.split("/")[1] for path in modules() if path.count("/") > 1} == set(LAYERS)


@pytest.mark.parametrize("layer", ["", *LAYERS])
def test_imports_run_downwards_by_full_names(layer: str) -> None:
    """No module imports a higher layer, a higher part of its own, or a dependency that it does not own."""
    found = [
        violation
        for path, tree in modules().items()
        if path.split("/")[1:-1][:1] == ([layer] if layer else [])
        for violation in violations(path, tree)
    ]
    assert found == []


def test_nothing_of_a_dependency_is_replaced() -> None:
    """No module assigns to or deletes an attribute of another package."""
    found = {replacement for path, tree in modules().items() for replacement in replacements(path, tree)}
    assert found == set()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sigdir/warehouse/a.py", "def f():\n    import sigdir.pipeline.run"),
        ("sigdir/warehouse/log/a.py", "from sigdir.warehouse.index.view import View"),
        ("sigdir/pipeline/a.py", "from serve import app"),
        ("sigdir/pipeline/a.py", "from . import run"),
        ("sigdir/serve/pages/a.py", "from sigdir.serve.servers.start import bind"),
        ("sigdir/serve/a.py", "import waitress.server"),
        ("sigdir/pipeline/a.py", "import duckdb"),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str) -> None:
    """Each of these imports is reported."""
    assert list(violations(path, ast.parse(source)))
