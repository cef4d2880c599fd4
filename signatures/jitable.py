"""Marks the functions that are plain Python and parts of kernels too, so that a pack is read without loading numba.

numba learns of them when ``kernels.py`` makes the first kernel that may call them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

marked: list[Callable[..., Any]] = []
"""Those that numba does not know yet."""


def jitable(function: Function) -> Function:
    """Note a function, and leave it as it is."""
    marked.append(function)
    return function
