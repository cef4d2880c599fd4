"""Imports run downwards, each dependency is used in its own layer only, and nothing of it is replaced at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

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
        "table", "staging", "log", "evidence", "index", "sql", "transfer", "publish", "compact", "vacuum", "verify",
    ),
    "serve": (
        "http", "core", "metrics", "statistics", "pages", "lists", "api", "bulk", "dialects", "app", "servers",
    ),
}  # fmt: skip
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


def _is_foreign(module: str | None) -> bool:
    return (module or "").split(".", maxsplit=1)[0] != "sigdir"


def third_party_names(tree: ast.Module) -> set[str]:
    """The local names of everything that a module imports from other packages."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if _is_foreign(node.module if isinstance(node, ast.ImportFrom) else alias.name)
    }


def replacements(path: str, tree: ast.Module) -> Iterator[str]:
    """Assignments to, and deletions of, an attribute of something imported from another package."""
    foreign = third_party_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) if _root(node) in foreign:
                yield f"{path}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[changed, *_]) if _root(changed) in foreign:
                yield f"{path}: {ast.unparse(node)}"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_every_layer_is_searched() -> None:
    """Modules of every layer are found; a wrong path would let the tests below pass without any module."""
    assert {path.split("/")[1] for path in modules() if path.count("/") > 1} == set(LAYERS)


def test_imports_run_downwards_by_full_names() -> None:
    """No module imports a higher layer, a higher part of its own, or a dependency that it does not own."""
    assert [violation for path, tree in modules().items() for violation in violations(path, tree)] == []


def test_nothing_of_a_dependency_is_replaced() -> None:
    assert [replacement for path, tree in modules().items() for replacement in replacements(path, tree)] == []
    source = "import os.path as p, sigdir.a\np.x.y = 1\ndel p.z\nsetattr(p, 'a', 1)\nsigdir.a.b = 2"
    assert len(list(replacements("a.py", ast.parse(source)))) == 3


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
