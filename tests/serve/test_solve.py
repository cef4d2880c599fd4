"""The page that looks for texts of unknown hashes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from sigdir.serve.pages import search
from tests.conftest import import_lines
from tests.serve.support import FORM, application, get, post, request, selector, topic

HIDDEN, EVENT = "withdraw(address,uint256)", "Deposited(address,uint256)"


def test_the_page_solves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a link and by the form, each text with its posterior; what is no hash or no code is refused with the reason."""
    known = ("deposit(address,uint256)", "withdraw(address)", "event Deposited(address)", "event Out(address,uint256)")
    import_lines(tmp_path / "warehouse", *known)
    with application(tmp_path / "warehouse", solve=True) as app:
        found = get(app, f"/solve/?hash={selector(HIDDEN)}").body.decode()
        assert f"<code>{HIDDEN}</code></td><td>0.999</td>" in found
        body = urlencode({"hash": topic(EVENT), "code": ""}).encode()
        assert f"<code>{EVENT}</code>" in request(app, "POST", "/solve/", body, FORM).body.decode()
        monkeypatch.setattr(search, "_SECONDS", 0.5)
        assert b"No text was found" in get(app, "/solve/?hash=0x00000001").body
        for fields, reason in (
            ({"hash": "0x12"}, b"neither a selector nor a topic"),
            ({"hash": "0x12345678", "code": "0x0g"}, b"code: "),
            ({"hash": "0x12345678", "code": "\ud800"}, b"code: "),
        ):
            refused = post(app, "/solve/", fields)
            assert (refused.status, reason in refused.body) == (400, True)
        unknown = get(app, "/selector/0x00000001/", {"Accept": "text/html"}).body.decode()
        assert 'href="/solve/?hash=0x00000001"' in unknown
        assert get(app, "/solve/").status == 200
    with application(tmp_path / "warehouse") as app:
        assert get(app, "/solve/").status == 404
        assert "/solve/" not in get(app, "/selector/0x00000001/", {"Accept": "text/html"}).body.decode()
