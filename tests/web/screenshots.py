"""`make screenshots`: the pages of the bundled samples in Chromium, light, dark and on a phone, as small PNG files."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from sigdir.serve.pages.decode import EXAMPLE, MULTICALL_EXAMPLE
from sigdir.serve.pages.page import FOLDER
from tests.conftest import ROOT, SAFETY_SECONDS, import_files
from tests.serve.support import HOST, serving
from tests.web.conftest import CHROMIUM, COLLIDING, FLAGS

_SOLIDITY = """pragma solidity ^0.8.0;

contract Desk {
    struct Order { address maker; uint256 amount; uint64 until; }
    event Filled(bytes32 indexed id, Order order);
    error TooLate(uint64 until);
    function fill(Order calldata order, bytes calldata signature) external {}
    function transfer(address to, uint256 amount) external returns (bool) {}
    function settle(Missing what) external {}
}
"""


def _preview(page: Page) -> None:
    page.get_by_label("Signatures, an ABI").fill(_SOLIDITY)
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Preview", level=1).wait_for()


def _type(page: Page) -> None:
    page.get_by_role("searchbox").press_sequentially("transfer")
    page.locator("#results mark").first.wait_for()


def _code(page: Page) -> None:
    page.get_by_label("Calldata, log").fill((ROOT / "docs" / "examples" / "token.hex").read_text())
    page.get_by_role("heading", name="Contract").wait_for()


def _drawn(page: Page) -> None:
    page.locator("figure").last.wait_for(timeout=SAFETY_SECONDS * 1000)


_ALL = ("light", "dark", "phone")
PICTURES: dict[str, tuple[str, Callable[[Page], None] | None, tuple[str, ...]]] = {
    "home": ("/", None, (*_ALL, "shared")),
    "search": ("/", _type, ("light", "phone")),
    "record": ("/selector/0xa9059cbb/", None, ("dark", "phone")),
    "preview": ("/submit/", _preview, ("light", "dark")),
    "decode": (f"/decode/?data={EXAMPLE}", None, ("light", "phone")),
    "tree": (f"/decode/?data={MULTICALL_EXAMPLE}", None, _ALL),
    "contract": ("/decode/", _code, _ALL),
    "statistics": ("/statistics/", _drawn, ("light", "dark")),
}
"""By the name of the picture: the path, an action before the picture is taken, and the windows."""

_WINDOWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1100, "height": 760}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1100, "height": 760}, "color_scheme": "dark"},
    "shared": {"viewport": {"width": 800, "height": 420}, "device_scale_factor": 1.5},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True, "is_mobile": True},
}


def main(folder: Path) -> None:
    """Serve the samples and take a picture of each page in each window."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        warehouse = Path(name) / "warehouse"
        (Path(name) / "more.txt").write_text(COLLIDING)
        import_files([ROOT / "samples"], warehouse, source="bundled sample")
        import_files([Path(name) / "more.txt"], warehouse)
        with serving(warehouse, workers=1) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
            for window, options in _WINDOWS.items():
                context = browser.new_context(base_url=f"http://{HOST}:{server.port}", **options)
                for picture, (path, first, shown_in) in PICTURES.items():
                    if window not in shown_in:
                        continue
                    page = context.new_page()
                    page.goto(path)
                    if first is not None:
                        first(page)
                    # What a shared link shows is one of the pages' own files.
                    target = FOLDER / "preview.png" if window == "shared" else folder / f"{picture}-{window}.png"
                    page.screenshot(path=target, animations="disabled", caret="hide")
                    page.close()
                context.close()
            browser.close()
    print(f"{sum(len(shown_in) for _, _, shown_in in PICTURES.values())} pictures in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
