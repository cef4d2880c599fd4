"""The settings of a server, read once from options of the command line or from SIGDIR_ variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """``max_body`` bounds a POST, ``max_import_body`` the two imports; both in bytes."""

    warehouse: Path = Path("data")
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    threads: int = 8
    max_body: int = MIB
    max_import_body: int = 16 * MIB
    fold_every: float = 60.0
    trust_proxy: bool = False
    log_requests: bool = True

    def environment(self) -> dict[str, str]:
        """The settings as variables, for the worker processes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {f"SIGDIR_{name.upper()}": str(int(v) if isinstance(v, bool) else v) for name, v in values.items()}

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings that the variables name, the defaults for the others; raises ValueError."""
        kinds = get_type_hints(cls)
        given: dict[str, Any] = {}
        for field in fields(cls):
            value = os.environ.get(f"SIGDIR_{field.name.upper()}")
            if value is not None:
                kind = kinds[field.name]
                given[field.name] = bool(int(value)) if kind is bool else kind(value)
        return cls(**given)
