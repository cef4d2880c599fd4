"""The HTTP application: one table of all routes.

The Allow header and the redirects to the final slash derive from the table. A request uses one View throughout, so
an answer never mixes two versions.
"""

from __future__ import annotations

from typing import Any

import falcon

from sigdir.serve import dialects
from sigdir.serve.api.decode import ContractResource, DecodeResource
from sigdir.serve.api.evidence import EvidenceResource, StoredContractPage, StoredContractResource
from sigdir.serve.api.search import SearchResource
from sigdir.serve.api.status import (
    AbiImportResource,
    DocumentResource,
    LiveResource,
    ReadyResource,
    SolidityImportResource,
    WantedPage,
    WantedResource,
)
from sigdir.serve.bulk import changes, dumps, resolve
from sigdir.serve.core.budget import CostlyRequests, Processes
from sigdir.serve.core.misses import MissCounter, Misses
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.dialects import HashFileResource
from sigdir.serve.http.bodies import StreamLimit
from sigdir.serve.http.caching import PageCache
from sigdir.serve.http.routing import AnswerHeaders, Negotiation, WriteAccess, add_routes
from sigdir.serve.lists.resources import ListResource, RowResource
from sigdir.serve.mcp_http import McpResource
from sigdir.serve.metrics import AnswerRecorder, Counts, MetricsResource
from sigdir.serve.pages.decode import DecodePage
from sigdir.serve.pages.docs import DocsPage, StatisticsPage, StatusPage
from sigdir.serve.pages.page import CACHE_BYTES, AssetResource, NamedAssetResource, add_error_handlers, set_public_url
from sigdir.serve.pages.record import RecordPage
from sigdir.serve.pages.search import BrowsePage, HomePage, LinkPage, ResultsPage, SolvePage
from sigdir.serve.pages.submit import STORED_PATH, StoredPage, StorePage, SubmitPage
from sigdir.signatures.collections import EVENT_SIGNATURES as EVENTS
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.manifest import Origins


def create_app(
    settings: Settings, reader: Reader, writer: Writer, counts: Counts | None = None,
    processes: Processes | None = None,
) -> Any:  # fmt: skip
    """The WSGI application of one warehouse.

    ``counts`` gets what /metrics shows; without it no answer is counted or logged. ``processes`` answer costly requests;
    without one the application answers itself.
    """
    set_public_url(settings.public_url)
    table = routes(settings, reader, writer, counts)
    app: Any = falcon.App()
    if counts is not None:
        app.add_middleware(AnswerRecorder(counts, settings.log_requests))
    is_replica = bool(settings.follow_store)
    access = WriteAccess(settings.read_only, settings.write_token, is_replica, settings.primary_url)
    app.add_middleware([Negotiation(access), AnswerHeaders()])
    if settings.count_misses:
        app.add_middleware(MissCounter(Misses(reader.paths.misses), reader))
    if processes:
        app.add_middleware(CostlyRequests(processes, settings))
    add_error_handlers(app)
    add_routes(app, table)
    return app


def routes(settings: Settings, reader: Reader, writer: Writer, counts: Counts | None = None) -> dict[str, Any]:
    """Every route: a path template and its resource, which a callable one gets requests of every method for."""
    counts = counts or Counts()
    streams = StreamLimit(settings.thread_shares.streams)
    versions = dumps.Versions(reader)
    cache, origins = PageCache(CACHE_BYTES), Origins(reader.paths)
    # fmt: off
    return {
        # 4byte.directory's API.
        "/api/v1/signatures/": ListResource(SIGNATURES, settings, reader, writer, streams),
        "/api/v1/signatures/{id}/": RowResource(SIGNATURES, reader),
        "/api/v1/signatures/{id}/evidence/": EvidenceResource(SIGNATURES, settings, reader),
        "/api/v1/event-signatures/": ListResource(EVENTS, settings, reader, writer, streams),
        "/api/v1/event-signatures/{id}/": RowResource(EVENTS, reader),
        "/api/v1/event-signatures/{id}/evidence/": EvidenceResource(EVENTS, settings, reader),
        "/api/v1/import-abi/": AbiImportResource(settings, writer),
        "/api/v1/import-solidity/": SolidityImportResource(settings, writer),
        # Decoding and bulk.
        "/api/v1/decode/": DecodeResource(reader),
        "/api/v1/contract/": ContractResource(reader),
        "/api/v1/contracts/{chain}/{address}/": StoredContractResource(reader),
        "/api/v1/search/": SearchResource(settings, reader),
        "/api/v1/resolve/": resolve.ResolveResource(settings, reader, streams),
        "/api/v1/changes/": changes.ChangesResource(reader, streams),
        "/dumps/": dumps.VersionsResource(versions),
        "/dumps/{version}/": dumps.VersionResource(versions),
        "/dumps/{version}/{name}": dumps.CollectionResource(versions, streams),
        "/dumps/{version}/{name}/{file}": dumps.FileResource(versions),
        "/range/{collection}/{prefix}": dumps.RangeResource(reader, cache),
        "/range/{collection}/{prefix}/{edition}": dumps.RangeResource(reader, cache),
        # Other dialects.
        "/signature-database/v1/lookup": dialects.LookupResource(reader),
        "/signature-database/v1/search": dialects.SearchResource(reader, cache),
        "/signature-database/v1/import": dialects.ImportResource(settings, writer),
        "/signature-database/v1/stats": dialects.StatsResource(reader),
        "/signature-database/v1/export": dialects.ExportResource(reader, streams),
        "/api/v1/import": dialects.OlderImportResource(settings, writer),
        "/api/v1/signatures": dialects.OlderLookup(reader),
        "/signatures/{hash}": HashFileResource(SIGNATURES, reader),
        "/topic0/{hash}": HashFileResource(EVENTS, reader),
        # The server itself.
        "/healthz": LiveResource(),
        "/readyz": ReadyResource(settings, reader),
        "/metrics": MetricsResource(counts, reader),
        "/api/v1/openapi.json": DocumentResource(),
        # Pages.
        "/": HomePage(reader, cache),
        "/signatures/": LinkPage(SIGNATURES, reader),
        "/event-signatures/": LinkPage(EVENTS, reader),
        "/assets/{name}": AssetResource(),
        "/favicon.ico": NamedAssetResource("icon.svg"),
        "/robots.txt": NamedAssetResource("robots.txt"),
        "/llms.txt": NamedAssetResource("llms.txt"),
        **({"/mcp": McpResource(reader, solves=settings.solve)} if settings.mcp else {}),
        "/search/": ResultsPage(reader, cache, "search.html"),
        "/search/results/": ResultsPage(reader, cache, "results.html"),
        "/browse/": BrowsePage(reader, cache),
        "/browse/{collection}/": BrowsePage(reader, cache),
        "/selector/{hash}/": RecordPage(reader, cache, SIGNATURES, origins, settings.solve),
        "/topic/{hash}/": RecordPage(reader, cache, EVENTS, origins, settings.solve),
        "/submit/": SubmitPage(settings, reader),
        "/submit/store/": StorePage(settings, reader, writer),
        STORED_PATH: StoredPage(reader, cache),
        "/decode/": DecodePage(reader, cache, settings.rpc),
        "/contracts/{chain}/{contract}/": StoredContractPage(reader, cache),
        "/docs/": DocsPage(settings),
        "/statistics/": StatisticsPage(reader),
        "/status/": StatusPage(reader, cache, settings.count_misses),
        **(_wanted_routes(settings, reader) if settings.count_misses else {}),
        **(_sql_routes(settings, reader) if settings.sql else {}),
        **({"/solve/": SolvePage(settings, reader)} if settings.solve else {}),
    }
    # fmt: on


def _wanted_routes(settings: Settings, reader: Reader) -> dict[str, Any]:
    return {
        "/api/v1/wanted/": WantedResource(settings, reader),
        "/wanted/": WantedPage(settings, reader),
    }


def _sql_routes(settings: Settings, reader: Reader) -> dict[str, Any]:
    from sigdir.serve.api.sql import SqlResource  # and DuckDB, which other servers do without
    from sigdir.serve.core.sql_runner import SqlRunner
    from sigdir.serve.pages.sql import SqlPage

    runner = SqlRunner(settings, reader)
    return {"/api/v1/sql/": SqlResource(runner), "/sql/": SqlPage(runner)}
