"""Errors of the contract, and the one place where they become statuses."""

from __future__ import annotations

from typing import Any


class HttpError(Exception):
    """An answer other than success: ``body`` is the JSON of it."""

    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers = headers or {}


def detail(status: int, text: str) -> HttpError:
    return HttpError(status, {"detail": text})


def field_error(name: str, text: str) -> HttpError:
    return HttpError(400, {name: [text]})


def not_found() -> HttpError:
    return detail(404, "Not found.")
