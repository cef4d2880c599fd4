"""One warehouse for all pages, the application over it, a server for a real Chromium whose console must stay empty."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from sigdir.serve.pages.decode import EXAMPLE, LOG_EXAMPLE, MULTICALL_EXAMPLE, PROXY_EXAMPLE
from tests.conftest import ROOT, SAFETY_SECONDS, import_files
from tests.examples import long_except
from tests.serve import support
from tests.serve.support import HOST, SPAM, Application, application, digest, listening
from tests.signatures.assembly import dispatcher, error_code, event_code, metadata, reads_words

CHROMIUM = Path("/usr/bin/chromium")
# Without these it contacts Google at every start. As root it cannot start its sandbox.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    # Each window would load two pages of its address bar, which takes half of its processor time. The last flag of this
    # name counts: the others are those of Playwright.
    ("--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,AvoidUnnecessaryBeforeUnloadCheckSync,"
    "DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,"
    "ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,"
    "AimEnabled,PreconnectToSearch"),
]  # fmt: skip

COLLIDING = SPAM
TOPIC = f"0x{support.TOPIC}"
CODE = "0x" + (
    dispatcher(
        [digest("transfer(address,uint256)")[:4], b"\1\2\3\4"],
        event_code(bytes.fromhex(TOPIC[2:])) + error_code(digest("ERC20InvalidSender(address)")[:4]),
        reads_words(2),
    ) + metadata()
).hex()  # fmt: skip
"""A contract with a function of two words that is known and one that is not, an event and an error."""

PATHS = [
    "/", "/search/?q=transfer", "/search/?q=0x", f"/search/?q={TOPIC}", f"/search/?q=0xa9059cbb{'0' * 128}",
    "/search/?q=function%20nope(uint%20a)", "/search/?q=f(uint7)", "/search/?q=%3F%3F",
    "/search/?q=transfre", "/search/?q=pagedRow&in=functions&page=2", "/browse/", "/browse/functions/", "/browse/events/",
    "/selector/0xa9059cbb/", "/selector/0xa9059cbb/?id=1", f"/topic/{TOPIC}/", "/submit/", "/decode/",
    f"/decode/?data={EXAMPLE}", "/decode/?data=0x12345678",
    f"/decode/?data={EXAMPLE}&chain=1&to=0x{'a1' * 20}", f"/decode/?data={MULTICALL_EXAMPLE}",
    f"/decode/?data={quote(LOG_EXAMPLE)}", f"/decode/?data={PROXY_EXAMPLE}", f"/decode/?data={CODE}", "/docs/", "/statistics/", "/status/", "/dumps/", "/dumps/1/",
    "/api/v1/signatures/", "/api/v1/event-signatures/1/", "/api/v1/signatures/1/evidence/",
]  # fmt: skip
"""Every kind of page."""

SOME_PATHS = long_except(
    {"/", "/search/?q=transfer", "/selector/0xa9059cbb/", "/submit/", "/decode/?data=0x12345678"},
    PATHS,
)  # fmt: skip
"""``PATHS`` for tests that look at each page in the browser; `make test` takes the most used ones."""

DESKTOP: dict[str, Any] = {"viewport": {"width": 1100, "height": 760}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}

PAGED = [f"pagedRow{number}(uint256)" for number in range(130)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled samples, a text that collides with one of them, and enough rows for several pages."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "paged.txt").write_text("\n".join([COLLIDING, *PAGED]))
    import_files([folder / "paged.txt"], folder / "warehouse", source="rows for <b>pages</b>")
    import_files([ROOT / "samples"], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(scope="session")
def app(folder: Path) -> Iterator[Application]:
    with application(folder) as app:
        yield app


@pytest.fixture(scope="session")
def port(app: Application) -> Iterator[int]:
    """Where a browser finds the application."""
    with listening(app) as port:
        yield port


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    expect.set_options(
        timeout=1000 * SAFETY_SECONDS
    )  # milliseconds; the five seconds of the default may pass on a loaded machine
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield running
        running.close()


Open = Callable[..., Page]

WINDOW: dict[str, Any] = {"viewport": {"width": 1280, "height": 720}}
"""Playwright's own."""


@pytest.fixture(scope="session")
def windows(browser: Browser) -> dict[str, Page]:
    """Windows that no test uses now, by their options. A window takes 0.7 s of processor, a page in it 0.2."""
    return {}


@pytest.fixture
def page_of(browser: Browser, windows: dict[str, Page], port: int) -> Iterator[Open]:
    """Opens a path in a window that has no page, cache or cookie of another test, and checks at the end that no window
    logged an error.

    The browser logs an error for everything that breaks the content policy or fails to load. Errors that contain
    ``expected`` are permitted.
    """
    opened: list[tuple[str, Page, dict[str, Callable[..., None]]]] = []
    complaints: list[str] = []
    requested: list[str] = []
    base = f"http://{HOST}:{port}"

    def open_page(path: str, expected: str = "", **options: Any) -> Page:
        key = json.dumps(options, sort_keys=True)
        page = windows.pop(key, None) or browser.new_context(base_url=base, **options).new_page()

        def check(text: str) -> None:
            if not (expected and expected in text):
                complaints.append(f"{page.url}: {text}")

        listeners: dict[str, Callable[..., None]] = {
            "console": lambda message: check(message.text) if message.type in ("error", "warning") else None,
            "pageerror": lambda error: check(str(error)),
            "request": lambda request: requested.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)  # type: ignore[call-overload]
        opened.append((key, page, listeners))
        page.goto(path)
        return page

    yield open_page
    for key, page, listeners in opened:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        if _is_emptied(page, base, json.loads(key)):
            windows[key] = page
        else:
            page.context.close()
    assert complaints == []
    assert [url for url in requested if not url.startswith((base, "data:"))] == []


def _is_emptied(page: Page, base: str, options: dict[str, Any]) -> bool:
    """Bring a window into the state of a new one; False if it is busy."""
    try:
        page.unroute_all(behavior="ignoreErrors")
        page.goto("about:blank")
        page.set_viewport_size((WINDOW | options)["viewport"])
        page.emulate_media(color_scheme=options.get("color_scheme", "light"))
        tools = page.context.new_cdp_session(page)
        tools.send("Network.clearBrowserCache")
        tools.send("Storage.clearDataForOrigin", {"origin": base, "storageTypes": "all"})
        tools.detach()
    except Error:
        return False
    return True
