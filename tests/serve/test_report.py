"""`sigdir report`: one self-contained page with the numbers of the warehouse."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

import sigdir
from sigdir.warehouse.sql.statistics import statistics
from tests.conftest import ROOT, empty_warehouse, import_files
from tests.pipeline.support import invoke

FIGURES = ["growth", "sources", "types", "parameters", "shared", "zeros", "styles", "reasons"]
HOSTILE = "</style><script>alert(1)</script> $\\frac{1}{2}$ \N{SNOWMAN}"

# Two texts with the same selector.
COLLIDING = ["transfer(address,uint256)", "many_msg_babbage(bytes1)"]
MANY = [f"row{number}(bool)" for number in range(60)]


class Page(HTMLParser):
    """The elements of a page with their attributes, and its tables by figure."""

    def __init__(self, made: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(made.decode())
        self.tables = {
            name: [re.findall("<t[hd][^>]*>([^<]*)<", row) for row in figure.split("<tr>")[1:]]
            for name, figure in re.findall('<figure[^>]* id="([^"]*)"(.*?)</figure>', made.decode(), re.DOTALL)
        }

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled samples, a collision, rejects, and sources with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    file = folder / "a<b>&$x_1$\x01\udce9.txt"
    file.write_text("\n".join([*COLLIDING, *MANY, "f(uint257)", "f(", "g(nosuch)"]))
    import_files([file], folder / "warehouse", source=HOSTILE)
    import_files([ROOT / "samples"], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def made(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("made") / "report.html"
    done = invoke(samples, "report", out)
    assert done.status == 0, done.stderr
    *stages, summary = done.stderr.splitlines()
    assert stages == [
        f"{part} ..." for part in ("count names", "count types", "count collisions", "count imports", "draw")
    ]
    assert re.fullmatch(rf"{samples}: version 2, \d+ rows, \d+\.\d s: {out}, \d+ kB", summary)
    assert [file.name for file in out.parent.iterdir()] == [out.name]
    return out.read_bytes()


def test_the_page_is_self_contained(made: bytes) -> None:
    """No address, no script, and only the style whose hash is in the page's policy."""
    page = Page(made)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "a", "image", "use", "form"}
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & {"src", "href", "srcset", "style", "xlink:href", "action", "data"}
    assert not [name for name in names if name.startswith("on")]
    assert b"http:" not in made
    assert b"https:" not in made
    [style] = re.findall(b"<style>(.*?)</style>", made, re.DOTALL)
    assert not re.search(rb"url\(|@import", style)
    digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv")]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_every_figure_has_a_chart_a_sentence_and_a_table(made: bytes) -> None:
    """The table has the numbers of the chart; ids are unique."""
    page = Page(made)
    assert list(page.tables) == FIGURES
    charts = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    assert len(charts) == len(page.all("figcaption")) == len(page.all("details")) == len(FIGURES)
    assert len(page.all("title")) - 1 == len(page.all("desc")) == len(FIGURES)
    for name, rows in page.tables.items():
        assert len(rows) > 1, name
        assert {len(row) for row in rows} == {len(rows[0])}, name
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    captions = dict(re.findall(rb'<figure class="figure" id="(\w+)">\s*<figcaption>(.*?)</figcaption>', made))
    told = {name.decode() for name, caption in captions.items() if b"The scale is logarithmic." in caption}
    assert told == {"shared", "zeros", "reasons"}


def test_the_tables_have_the_numbers_of_the_warehouse(samples: Path, made: bytes) -> None:
    """Counts are those of the statistics and of the collections; shares are of the row's own collection."""
    warehouse, tables = sigdir.open(samples), Page(made).tables
    functions, events = warehouse.count("signatures"), warehouse.count("event-signatures")
    for types in statistics(warehouse).types[:20]:
        assert [types.what, str(types.signatures)] in [row[:2] for row in tables["types"]]
    assert sum(int(row[1]) for row in tables["parameters"][1:]) == functions
    assert sum(int(row[3]) for row in tables["styles"][1:]) == events
    capitalised = next(row for row in tables["styles"] if row[0] == "Capitalised")
    assert capitalised[4] == f"{100 * int(capitalised[3]) / events:.1f}\u00a0%"
    assert tables["shared"][1][:2] == ["2", "1"]
    assert [row[:2] for row in tables["reasons"][1:]] == [
        ["bad_width", "1"],
        ["unbalanced", "1"],
        ["unknown_type", "1"],
    ]


def test_names_of_sources_are_text(samples: Path, made: bytes) -> None:
    """Markup and characters that XML forbids run nothing, no folder is shown, and a second page is the same."""
    assert any(escape(HOSTILE, quote=False) in cell for row in Page(made).tables["growth"] for cell in row)
    assert "a&lt;b&gt;&amp;$x_1$" in re.sub("<table.*?</table>", "", made.decode(), flags=re.DOTALL), "of the plot"
    assert str(samples.parent).encode() not in made
    assert str(ROOT).encode() not in made
    assert invoke(samples, "report", "-", "--quiet").stdout == made


def test_json_has_the_numbers_that_python_has(samples: Path) -> None:
    """--json writes the Statistics of the version and no page; --as-of those of an older one."""
    done = invoke(samples, "report", "--json", "--quiet")
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    assert done.stdout == orjson.dumps(statistics(sigdir.open(samples)), option=options) + b"\n"
    assert done.stderr == ""
    numbers = orjson.loads(invoke(samples, "report", "--json", "--as-of", "1").stdout)
    assert (numbers["version"], numbers["rows"]["signatures"], numbers["import_count"]) == (1, 62, 1)


def test_an_empty_warehouse_has_a_page_that_says_so(warehouse: Path, tmp_path: Path) -> None:
    """An empty warehouse is not an error."""
    empty_warehouse(warehouse)
    done = invoke(warehouse, "report", tmp_path / "report.html")
    assert done.status == 0
    assert "nothing imported yet" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "<figure" not in page
    assert "Nothing is imported yet" in page


def test_a_failure_is_one_line_and_changes_no_file(samples: Path, tmp_path: Path) -> None:
    """An unwritable or missing OUT, a missing version, a broken warehouse: an existing file keeps its content."""
    kept = tmp_path / "kept.html"
    kept.write_text("before")
    nowhere = tmp_path / "no" / "folder.html"
    for warehouse, arguments, message in (
        (samples, [nowhere], f"{nowhere.parent}: No such file or directory"),
        (samples, [tmp_path], "is a directory"),
        (samples, [], "name the page to write"),
        (samples, ["-", "--json"], "cannot both go to standard output"),
        (samples, [kept, "--as-of", "99"], f"{samples} has no version 99"),
        (kept, [kept], f"{kept}"),
    ):
        done = invoke(warehouse, "report", *arguments)
        assert (done.status, done.stdout) == (2, b""), done
        assert message in done.stderr.splitlines()[-1]
    assert kept.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == [kept.name]
