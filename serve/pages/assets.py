"""The stylesheets, the script and the icon, each at an address that contains the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import falcon

from sigdir.serve.http.errors import not_found
from sigdir.serve.http.negotiate import packed, packed_in

FOLDER = Path(__file__).parent / "assets"

_ASSET_SECONDS = 365 * 86_400
_DAY = 86_400  # /favicon.ico keeps its address when the icon changes
_PNG = "image/png"  # is packed already
_TYPES = {
    ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
    ".png": _PNG, ".txt": "text/plain; charset=utf-8",
}  # fmt: skip

_packed_once = cache(packed_in)


class Asset(NamedTuple):
    """A file that pages refer to. ``name`` contains the content's hash, so the content at a name never changes."""

    name: str
    type: str
    body: bytes

    @classmethod
    def of(cls, path: Path) -> Asset:
        body = path.read_bytes()
        return cls(f"{path.stem}-{hashlib.sha256(body).hexdigest()[:12]}{path.suffix}", _TYPES[path.suffix], body)


@lru_cache(maxsize=1)
def assets() -> Mapping[str, Asset]:
    """The assets by the name of their file."""
    return {path.name: Asset.of(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}


def asset_address(file_name: str) -> str:
    """The address of an asset."""
    return f"/assets/{assets()[file_name].name}"


class AssetResource:
    """The assets, each at its current name only."""

    def __init__(self) -> None:
        self._by_name = {asset.name: asset for asset in assets().values()}

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        asset = self._by_name.get(name)
        if asset is None:
            raise not_found()
        _send(req, resp, asset, f"public, max-age={_ASSET_SECONDS}, immutable")


class NamedAssetResource:
    """An asset at the address where browsers or crawlers look for it on their own: the icon, as with a JSON answer."""

    def __init__(self, file_name: str) -> None:
        self._asset = assets()[file_name]

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        _send(req, resp, self._asset, f"public, max-age={_DAY}")


def _send(req: falcon.Request, resp: falcon.Response, asset: Asset, cache_control: str) -> None:
    resp.content_type = asset.type
    resp.set_header("Cache-Control", cache_control)
    resp.data = asset.body if asset.type == _PNG else packed(req, resp, asset.body, _packed_once)
