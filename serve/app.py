"""The HTTP application: one table of all routes.

The Allow header and the redirects to the final slash derive from the table. A request uses one View throughout, so
an answer never mixes two versions.
"""

from __future__ import annotations

from typing import Any

import falcon

from sigdir.serve.api.contract import ContractResource
from sigdir.serve.api.decode import DecodeResource
from sigdir.serve.api.document import DocumentResource
from sigdir.serve.api.evidence import EvidenceResource
from sigdir.serve.api.health import LiveResource, ReadyResource
from sigdir.serve.api.imports import AbiImportResource, SolidityImportResource
from sigdir.serve.api.search import SearchResource
from sigdir.serve.api.stored_contract import StoredContractResource
from sigdir.serve.bulk import changes, dumps, ranges, resolve
from sigdir.serve.core.budget import BudgetProcess, CostlyRequests
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.dialects import openchain
from sigdir.serve.dialects.hash_files import HashFileResource
from sigdir.serve.http.middleware import AnswerHeaders, Negotiation
from sigdir.serve.http.page_cache import PageCache
from sigdir.serve.http.routing import Route, add_routes
from sigdir.serve.http.streams import StreamLimit
from sigdir.serve.http.write_access import WriteAccess
from sigdir.serve.lists.resources import ListResource, RowResource
from sigdir.serve.mcp_http import McpResource
from sigdir.serve.metrics.counts import Counts
from sigdir.serve.metrics.recorder import AnswerRecorder
from sigdir.serve.metrics.resource import MetricsResource
from sigdir.serve.pages.answers import add_error_handlers
from sigdir.serve.pages.assets import AssetResource, NamedAssetResource
from sigdir.serve.pages.browse import BrowsePage
from sigdir.serve.pages.decode import DecodePage
from sigdir.serve.pages.docs import DocsPage
from sigdir.serve.pages.home import HomePage
from sigdir.serve.pages.links import LinkPage
from sigdir.serve.pages.llms import LlmsResource
from sigdir.serve.pages.page import page_cache, set_public_url
from sigdir.serve.pages.record import RecordPage
from sigdir.serve.pages.search import ResultsPage
from sigdir.serve.pages.solve import SolvePage
from sigdir.serve.pages.statistics import StatisticsPage
from sigdir.serve.pages.status import StatusPage
from sigdir.serve.pages.stored import PATH as STORED_PATH
from sigdir.serve.pages.stored import StoredPage
from sigdir.serve.pages.stored_contract import StoredContractPage
from sigdir.serve.pages.submit import StorePage, SubmitPage
from sigdir.signatures.collections import EVENT_SIGNATURES as EVENTS
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.origins import Origins
from sigdir.warehouse.index.view import Reader


def create_app(
    settings: Settings, reader: Reader, writer: Writer, counts: Counts | None = None, pages: PageCache | None = None,
    budget: BudgetProcess | None = None, patient: BudgetProcess | None = None,
) -> Any:  # fmt: skip
    """The WSGI application of one warehouse; ``pages`` keeps the pages for people.

    ``counts`` gets what /metrics shows; without it no answer is counted or logged. ``budget`` answers costly requests and
    ``patient`` SQL and what is to be solved; without them the application answers itself.
    """
    set_public_url(settings.public_url)
    table = routes(settings, reader, writer, counts, pages)
    app: Any = falcon.App()
    if counts is not None:
        app.add_middleware(AnswerRecorder(counts, log=settings.log_requests))
    is_replica = bool(settings.follow_store)
    access = WriteAccess(settings.read_only, settings.write_token, is_replica, settings.primary_url)
    app.add_middleware([Negotiation(table, access), AnswerHeaders()])
    if budget is not None:
        app.add_middleware(CostlyRequests(budget, settings, patient))
    app.req_options.strip_url_path_trailing_slash = False
    add_error_handlers(app)
    add_routes(app, table)
    return app


def routes(
    settings: Settings, reader: Reader, writer: Writer, counts: Counts | None = None, pages: PageCache | None = None
) -> list[Route]:
    """Every route: its path, its resource, its methods."""
    counts = counts or Counts()
    paths = reader.paths
    streams = StreamLimit(settings.thread_shares.streams)
    versions = dumps.Versions(paths, reader)
    cache, origins = pages or page_cache(counts.count_cached), Origins(paths)
    # fmt: off
    return [
        # 4byte.directory's API.
        Route("/api/v1/signatures/", ListResource(SIGNATURES, settings, reader, writer, counts, streams), "GET, POST, HEAD, OPTIONS"),
        Route("/api/v1/signatures/{id}/", RowResource(SIGNATURES, reader), "GET, HEAD, OPTIONS"),
        Route("/api/v1/signatures/{id}/evidence/", EvidenceResource(SIGNATURES, settings, reader), "GET, HEAD"),
        Route("/api/v1/event-signatures/", ListResource(EVENTS, settings, reader, writer, counts, streams), "GET, POST, HEAD, OPTIONS"),
        Route("/api/v1/event-signatures/{id}/", RowResource(EVENTS, reader), "GET, HEAD, OPTIONS"),
        Route("/api/v1/event-signatures/{id}/evidence/", EvidenceResource(EVENTS, settings, reader), "GET, HEAD"),
        Route("/api/v1/import-abi/", AbiImportResource(settings, writer), "POST, OPTIONS"),
        Route("/api/v1/import-solidity/", SolidityImportResource(settings, writer), "POST, OPTIONS"),
        # Decoding and bulk.
        Route("/api/v1/decode/", DecodeResource(reader), "GET, HEAD, POST"),
        Route("/api/v1/contract/", ContractResource(reader), "POST"),
        Route("/api/v1/contracts/{chain}/{address}/", StoredContractResource(reader), "GET, HEAD"),
        Route("/api/v1/search/", SearchResource(settings, reader), "GET, HEAD"),
        Route("/api/v1/resolve/", resolve.ResolveResource(settings, reader, streams), "GET, HEAD, POST"),
        Route("/api/v1/changes/", changes.ChangesResource(reader, streams), "GET, HEAD"),
        Route("/dumps/", dumps.VersionsResource(versions), "GET, HEAD, OPTIONS"),
        Route("/dumps/{version}/", dumps.VersionResource(versions), "GET, HEAD, OPTIONS"),
        Route("/dumps/{version}/{name}", dumps.CollectionResource(versions, streams), "GET, HEAD"),
        Route("/dumps/{version}/{name}/{file}", dumps.FileResource(versions), "GET, HEAD"),
        Route("/range/{collection}/{prefix}", ranges.RangeResource(reader, cache), "GET, HEAD"),
        Route("/range/{collection}/{prefix}/{edition}", ranges.RangeResource(reader, cache), "GET, HEAD"),
        # Other dialects.
        Route("/signature-database/v1/lookup", openchain.LookupResource(reader), "GET, HEAD"),
        Route("/signature-database/v1/search", openchain.SearchResource(reader, cache), "GET, HEAD"),
        Route("/signature-database/v1/import", openchain.ImportResource(settings, writer), "POST"),
        Route("/signature-database/v1/stats", openchain.StatsResource(reader), "GET, HEAD"),
        Route("/signature-database/v1/export", openchain.ExportResource(reader, streams), "GET, HEAD"),
        Route("/api/v1/import", openchain.OlderImportResource(settings, writer), "POST"),
        Route("/api/v1/signatures", openchain.OlderLookup(reader), "GET, HEAD, OPTIONS"),
        Route("/signatures/{hash}", HashFileResource(SIGNATURES, reader), "GET, HEAD"),
        Route("/topic0/{hash}", HashFileResource(EVENTS, reader), "GET, HEAD"),
        # The server itself.
        Route("/healthz", LiveResource(), "GET, HEAD"),
        Route("/readyz", ReadyResource(settings, reader), "GET, HEAD"),
        Route("/metrics", MetricsResource(counts, reader, paths), "GET, HEAD"),
        Route("/api/v1/openapi.json", DocumentResource(), "GET, HEAD"),
        # Pages.
        Route("/", HomePage(reader, cache), "GET, HEAD"),
        Route("/signatures/", LinkPage(SIGNATURES, reader), "GET, HEAD"),
        Route("/event-signatures/", LinkPage(EVENTS, reader), "GET, HEAD"),
        Route("/assets/{name}", AssetResource(), "GET, HEAD"),
        Route("/favicon.ico", NamedAssetResource("icon.svg"), "GET, HEAD"),
        Route("/robots.txt", NamedAssetResource("robots.txt"), "GET, HEAD"),
        Route("/llms.txt", LlmsResource(has_mcp=settings.mcp), "GET, HEAD"),
        *([Route("/mcp", McpResource(reader, solves=settings.solve), "POST")] if settings.mcp else []),
        Route("/search/", ResultsPage(reader, cache, "search.html"), "GET, HEAD"),
        Route("/search/results/", ResultsPage(reader, cache, "results.html"), "GET, HEAD"),
        Route("/browse/", BrowsePage(reader, cache), "GET, HEAD"),
        Route("/browse/{collection}/", BrowsePage(reader, cache), "GET, HEAD"),
        Route("/selector/{hash}/", RecordPage(SIGNATURES, reader, cache, origins, settings.solve), "GET, HEAD"),
        Route("/topic/{hash}/", RecordPage(EVENTS, reader, cache, origins, settings.solve), "GET, HEAD"),
        Route("/submit/", SubmitPage(settings, reader), "GET, HEAD, POST"),
        Route("/submit/store/", StorePage(settings, reader, writer), "POST"),
        Route(STORED_PATH, StoredPage(reader, cache), "GET, HEAD"),
        Route("/decode/", DecodePage(reader, cache, settings.rpc), "GET, HEAD, POST"),
        Route("/contracts/{chain}/{contract}/", StoredContractPage(reader, cache), "GET, HEAD"),
        Route("/docs/", DocsPage(settings), "GET, HEAD"),
        Route("/statistics/", StatisticsPage(reader, paths), "GET, HEAD"),
        Route("/status/", StatusPage(reader, cache, paths), "GET, HEAD"),
        *(_sql_routes(settings, reader) if settings.sql else ()),
        *([Route("/solve/", SolvePage(settings, reader), "GET, HEAD, POST")] if settings.solve else ()),
    ]
    # fmt: on


def _sql_routes(settings: Settings, reader: Reader) -> list[Route]:
    from sigdir.serve.api.sql import SqlResource  # and DuckDB, which other servers do without
    from sigdir.serve.core.sql_runner import SqlRunner
    from sigdir.serve.pages.sql import SqlPage

    runner = SqlRunner(settings, reader)
    return [Route("/api/v1/sql/", SqlResource(runner), "GET, HEAD, POST"), Route("/sql/", SqlPage(runner), "GET, HEAD")]
