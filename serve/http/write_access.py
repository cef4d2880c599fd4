"""Who may store: nobody on a read-only server or a replica, holders of the token if one is set, otherwise everybody.

``Negotiation`` checks this before a POST of any resource that ``stores`` marks.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field

from sigdir.serve.http.errors import reject

_REALM = "signature directory"


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """An empty ``token`` means that storing needs none. ``primary_url`` is where a replica sends writers, if known."""

    read_only: bool = False
    token: str = field(default="", repr=False)
    is_replica: bool = False
    primary_url: str = ""

    def require(self, authorization: str, *, is_page: bool, path: str = "", allow: str = "") -> None:
        """Raise HttpError, 403, 405 or 401, unless a request with this Authorization header may store.

        ``path`` is the request's, ``allow`` has the methods of its route, both for the answer of a replica.

        The API takes ``Bearer TOKEN``. A page also takes Basic credentials with the token as password, which a
        browser asks its user for. The API does not take those: a browser adds them to forms of other sites, and
        only the pages refuse such forms.
        """
        if self.is_replica:
            where = f": POST to {self.primary_url}{path}" if self.primary_url else ""
            methods = ", ".join(method for method in allow.split(", ") if method != "POST")
            raise reject(405, {"detail": f"This server is a read replica{where}."}, "replica", {"Allow": methods})
        if self.read_only:
            raise reject(403, {"detail": "This directory is read-only."}, "read_only")
        if self.token and not self._is_held(authorization, is_page):
            scheme = f'Basic realm="{_REALM}", charset="UTF-8"' if is_page else f'Bearer realm="{_REALM}"'
            raise reject(
                401, {"detail": "Storing needs this directory's write token."}, "no_token", {"WWW-Authenticate": scheme}
            )

    def _is_held(self, authorization: str, is_page: bool) -> bool:
        scheme, _, credentials = authorization.partition(" ")
        given = credentials.strip().encode("latin-1", "replace")
        if scheme.lower() == "basic" and is_page:
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self.token.encode())


def _password(credentials: bytes) -> bytes:
    """The password of Basic credentials (RFC 7617); empty if they are malformed."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""
