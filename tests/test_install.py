"""What is installed: by `make run` and `make test`, with constraints.txt, and in the package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sigdir.serve.servers.startup import PARTS, STEPS
from tests.conftest import ROOT, environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(("target", "installed"), [("run", ["."]), ("test", [".", "'.[dev,fast]'"])])
def test_make_installs_what_the_target_needs(tmp_path: Path, target: str, installed: list[str]) -> None:
    """Running needs no tools of developers; tests need them and the extras. The kernels are compiled at install."""
    planned = subprocess.run(
        ["make", "--dry-run", target, f"VENV={tmp_path}/venv"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in planned.splitlines() if "pip install" in line]
    assert [line.partition(" --editable ")[2].partition(";")[0] for line in lines] == installed
    assert planned.count("sigdir compile\n") == 1


@pytest.mark.long
def test_sigdir_compile_covers_imports_a_server_and_decoding(tmp_path: Path) -> None:
    """None calls a kernel with types that the steps of `sigdir compile` have not compiled."""
    code = f"""
import gc
from contextlib import suppress
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from sigdir.cli.main import main
from sigdir.serve.servers.startup import PARTS, STEPS, open_app
from sigdir.serve.core.settings import Settings
from sigdir.pipeline.formats.solidity import declarations

def compiled():
    kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher) and each.py_func.__module__.startswith("sigdir.")]
    return {{(kernel.py_func.__qualname__, types) for kernel in kernels for types in kernel.signatures}}

for part in PARTS:
    for step in part:
        STEPS[step]()
before = compiled()
assert before
main(["import", {str(ROOT / "samples")!r}, "docs/examples/Token.sol", "--quiet"], standalone_mode=False)
for name in ("token.hex", "transfer.json", "multicall.hex", "error.hex"):
    with suppress(SystemExit):
        main(["decode", "auto", "@docs/examples/" + name], standalone_mode=False)
list(declarations(b"contract A {{ function f(uint a) external {{}} }}"))
open_app(Settings(warehouse=Path({str(tmp_path / "w")!r})))
assert compiled() == before, compiled() - before
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(tmp_path / "w"), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-P", "-m", "sigdir.serve.servers.startup", "import"]  # as `sigdir compile` runs it
    assert subprocess.run(command, cwd=ROOT, env=environment(tmp_path / "w"), check=False).returncode == 0
    assert sorted(step for part in PARTS for step in part) == sorted(STEPS)


def test_the_constraints_fit_the_requirements() -> None:
    """Each package that pyproject.toml names has a version in constraints.txt, and it is one that is asked for.

    Two extras have none: atheris needs a compiler, and pyspark is in the way of pyspark-client.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    pinned = {canonicalize_name(name): number for name, _, number in (line.partition("==") for line in lines)}
    extras = PROJECT["optional-dependencies"]
    names = [name for extra in extras if extra not in ("fuzz", "spark") for name in extras[extra]]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *names]):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: make constraints"


@pytest.mark.long
def test_the_samples_are_in_the_package(tmp_path: Path) -> None:
    """`sigdir import --samples` works in any folder. Without it and without paths the command says what is missing."""
    command = [sys.executable, "-m", "sigdir", "import"]
    run = partial(subprocess.run, cwd=tmp_path, env=environment(tmp_path / "w"), capture_output=True, text=True)
    done = run([*command, "--samples", "--dry-run", "--json"])
    assert done.returncode == 0, done.stderr
    for sample in (ROOT / "samples").glob("*.txt"):
        assert sample.name in done.stdout
    done = run(command)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Error: name the files to import, or give --samples")


def test_the_image_keeps_its_promises() -> None:
    """Slim, packages that need no compiler, kernels compiled in the build, a user without rights, a read-only root."""
    stages = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").split("\nFROM ")[1:]
    assert [stage.split()[0] for stage in stages] == ["python:3.11-slim"] * 2
    build, image = stages
    assert "--only-binary :all:" in build
    assert re.search(r"pip install .*&& sigdir compile$", build, re.MULTILINE)
    [extras] = re.findall(r"'/source\[(.*)\]'", build)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert "useradd --system --uid 10001 " in image
    assert image.index("\nUSER 10001\n") < image.index("\nENTRYPOINT")
    assert "SIGDIR_WAREHOUSE=/data" in image
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    layers = {link.readlink().name for link in (ROOT / "sigdir").iterdir() if link.is_symlink()}
    assert {"sigdir", "pyproject.toml", "constraints.txt", *layers} <= set(kept)
    assert all((ROOT / name).exists() for name in kept)
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["signatures"]
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])  # noqa: S108
    assert service["volumes"] == ["warehouse:/data"]
    assert service["ports"] == ["127.0.0.1:8000:8000"]
