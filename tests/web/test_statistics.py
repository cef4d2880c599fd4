"""The statistics page and the report in Chromium: charts appear on their own and can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

import sigdir
from sigdir.serve.statistics import page as report_page
from sigdir.warehouse.sql.statistics import statistics
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import Application
from tests.web.conftest import PHONE, Open

FIGURES = 7


def test_charts_appear_on_their_own(page_of: Open) -> None:
    """The page reloads until each figure has a chart: as wide as its card, with contrast, whole labels and a table."""
    page = page_of("/statistics/")
    expect(page.locator("figure")).to_have_count(FIGURES, timeout=SAFETY_SECONDS * 1000)
    for svg in page.locator("figure svg.chart").all():
        box, card = svg.bounding_box(), svg.locator("xpath=ancestor::figure").bounding_box()
        assert box is not None
        assert card is not None
        assert box["width"] > 0.85 * card["width"]
        assert box["height"] > 80
    expect(page.locator(".totals div")).to_have_count(8)
    assert cut_off(page) == []
    for scheme, colour in (("light", "rgb(36, 83, 166)"), ("dark", "rgb(127, 171, 255)")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate((ROOT / "tests/web/contrast.js").read_text()) == []
        bar = page.locator("#types .fill-first").first
        assert bar.evaluate("bar => getComputedStyle(bar).fill") == colour
    table = page.locator("#types").get_by_role("table")
    expect(table).to_be_hidden()
    page.locator("#types summary").focus()
    page.keyboard.press("Enter")
    expect(table).to_be_visible()
    expect(table.get_by_role("rowheader", name="address", exact=True)).to_be_visible()


def test_no_label_of_large_numbers_is_cut_off(browser: Browser, app: Application, tmp_path: Path) -> None:
    """Nor are those of a thousand million rows and of long names, on a phone."""
    found = statistics(sigdir.open(app.folder))
    large = replace(
        found,
        growth=tuple(replace(held, signatures=held.signatures + 10**9) for held in found.growth),
        sources=tuple(replace(source, path="W" * 60, read=1_234_567_890) for source in found.sources),
        zeros=tuple(replace(chance, found=1_234_567_890) for chance in found.zeros),
        reasons=(("a" * 60, 1_234_567_890),),
    )
    (tmp_path / "large.html").write_bytes(report_page(large))
    page = browser.new_page(java_script_enabled=False, **PHONE)
    page.goto((tmp_path / "large.html").as_uri())
    assert page.locator("figure svg.chart").count() == FIGURES + 1
    assert cut_off(page) == []
    page.close()


def cut_off(page: Page) -> list[str]:
    texts: list[str] = page.locator("figure svg.chart text").evaluate_all(
        """texts => texts.filter(text => {
            const [a, b] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
            return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
        }).map(text => text.textContent)"""
    )
    return texts
