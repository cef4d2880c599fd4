"""The page that looks for texts of unknown hashes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from tests.conftest import import_files
from tests.serve.support import get, request, selector, serving, topic

HIDDEN, EVENT = "withdraw(address,uint256)", "Deposited(address,uint256)"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_the_page_solves_in_a_process_that_gives_way(tmp_path: Path) -> None:
    """By a link and by the form, each text with its posterior; what is no hash or no code is refused with the reason."""
    (tmp_path / "texts.txt").write_text(
        "deposit(address,uint256)\nwithdraw(address)\nevent Deposited(address)\nevent Out(address,uint256)"
    )
    import_files([tmp_path / "texts.txt"], tmp_path / "warehouse")
    with serving(tmp_path / "warehouse", "--solve", "--threads", "3", workers=1) as server:
        found = get(server.port, f"/solve/?hash={selector(HIDDEN)}").body.decode()
        assert f"<code>{HIDDEN}</code></td><td>0.999</td>" in found
        body = urlencode({"hash": topic(EVENT), "code": ""}).encode()
        assert f"<code>{EVENT}</code>" in request(server.port, "POST", "/solve/", body, FORM).body.decode()
        assert b"No text was found" in get(server.port, "/solve/?hash=0x00000001").body
        for fields, reason in (
            ({"hash": "0x12"}, b"neither a selector nor a topic"),
            ({"hash": "0x12345678", "code": "0x0g"}, b"code: "),
        ):
            refused = request(server.port, "POST", "/solve/", urlencode(fields).encode(), FORM)
            assert (refused.status, reason in refused.body) == (400, True)
        unknown = get(server.port, "/selector/0x00000001/", {"Accept": "text/html"}).body.decode()
        assert 'href="/solve/?hash=0x00000001"' in unknown
        assert get(server.port, "/solve/").status == 200
    with serving(tmp_path / "warehouse", workers=1) as server:
        assert get(server.port, "/solve/").status == 404
        assert "/solve/" not in get(server.port, "/selector/0x00000001/", {"Accept": "text/html"}).body.decode()
