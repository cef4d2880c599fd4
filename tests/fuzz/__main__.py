"""Fuzzing by coverage: ``python -m tests.fuzz TARGET [SECONDS]``. Needs Atheris (the extra ``fuzz``).

The target ``cost`` needs no Atheris, and may have a seed and a part of the names of its own targets: see ``cost.py``.

Inputs that reach new code are kept in ``.fuzz/TARGET``; the next run starts from them. An input that fails
is written to ``.fuzz`` and named on the last line; add it to ``FOUND`` in ``test_targets.py``.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

CORPUS = Path(".fuzz")
INSTRUMENTED = {
    "grammar": ["sigdir.signatures.grammar"],
    "readers": [
        "sigdir.pipeline.source",
        "sigdir.signatures.candidates",
        "sigdir.pipeline.formats",
        "csv",
    ],
    "usage": ["sigdir.pipeline.source", "sigdir.pipeline.usage_counts", "sigdir.pipeline.formats.column_tables"],
    "tar": ["sigdir.pipeline.archive", "sigdir.pipeline.inputs", "sigdir.pipeline.source", "tarfile"],
    "parquet": ["sigdir.pipeline.formats.parquet"],
    "decoding": ["sigdir.serve.api.decode", "sigdir.signatures"],
    "log": ["sigdir.warehouse.log", "sigdir.warehouse.log.snapshot", "json"],
    "pack": ["sigdir.signatures.pack", "sigdir.signatures.pack_file", "sigdir.signatures.pack_texts"],
    "bodies": ["sigdir.serve", "sigdir.pipeline.formats", "falcon.media", "json", "urllib.parse"],
}


def with_kernels() -> list[str]:
    """Modules that are not instrumented, because numba cannot compile a function that Atheris has changed."""
    root = Path(__file__).parents[2]
    return [
        ".".join(["sigdir", *path.relative_to(root).with_suffix("").parts])
        for layer in ("pipeline", "serve", "signatures", "warehouse")
        for path in (root / layer).rglob("*.py")
        if re.search(r"^@kernel\b", path.read_text(), re.MULTILINE)
    ]


def main(name: str, seconds: float) -> None:
    if name == "grammar":  # which is instrumented, so it runs uncompiled
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    import atheris

    included = INSTRUMENTED[name]
    excluded = [module for module in with_kernels() if module not in included]
    with atheris.instrument_imports(include=included, exclude=excluded):
        from tests.fuzz import targets
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(targets.seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds:.0f}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=4096"]
    options += [f"-artifact_prefix={CORPUS}/{name}-", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    parser = ArgumentParser("python -m tests.fuzz", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=(*INSTRUMENTED, "cost"))
    parser.add_argument("seconds", nargs="?", type=float, default=60)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("only", nargs="?", default="")
    given = parser.parse_args()
    if given.target == "cost":
        from tests.fuzz import cost

        cost.main(given.seconds, given.seed, given.only)
    else:
        main(given.target, given.seconds)
