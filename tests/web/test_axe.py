"""axe-core, with all of its rules, finds no barrier in any page: light on a desktop, and dark on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.conftest import SAFETY_SECONDS
from tests.examples import long_except
from tests.web.conftest import DESKTOP, PHONE, SOME_PATHS, Open

each_look = pytest.mark.parametrize(
    "look",
    [
        pytest.param(("light", DESKTOP), id="light"),
        pytest.param(("dark", PHONE), id="dark", marks=pytest.mark.long),
    ],
)
"""Each colour scheme and each window once: no rule depends on both."""
ERRORS = long_except(
    {("/nowhere/", "404")}, [("/nowhere/", "404"), ("/selector/0x00000000/", "404"), ("/decode/?data=z", "400")]
)


def assert_no_findings(page: Page, look: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    scheme, window = look
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(window["viewport"])
    report = axe.run(page)
    assert report.violations_count == 0, report.generate_report()


@each_look
@pytest.mark.parametrize("path", SOME_PATHS)
def test_a_page_has_no_findings(page_of: Open, path: str, look: Any) -> None:
    page = page_of(path)
    if path == "/statistics/":  # until the charts are there, it reloads by itself
        page.locator("figure").last.wait_for(timeout=SAFETY_SECONDS * 1000)
    assert_no_findings(page, look)


@pytest.mark.parametrize(("path", "status"), ERRORS)
@each_look
def test_an_error_has_no_findings(page_of: Open, path: str, status: str, look: Any) -> None:
    assert_no_findings(page_of(path, expected=status), look)


@each_look
def test_a_submission_has_no_findings(page_of: Open, look: Any) -> None:
    """The preview with a line of each kind, and the page after storing."""
    name = f"axe{look[0]}"
    page = page_of("/submit/")
    page.get_by_label("Signatures, an ABI").fill(
        f"{name}(uint a)\n{name}(uint)\ntransfer(address,uint256)\nf(uint7)\nevent {name}()"
    )
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Preview", level=1).wait_for()
    assert_no_findings(page, look)
    page.get_by_role("button", name="Store 2 new").click()
    page.get_by_role("heading", name="Stored", level=1).wait_for()
    assert_no_findings(page, look)
