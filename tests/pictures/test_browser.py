"""Pages in a headless Chromium: nothing overflows, nothing fails, nothing is fetched; what is there can be found and read."""

from __future__ import annotations

import os

import pytest

from iron_core.visualize import operator_html
from iron_core.visualize.history import read
from iron_core.visualize.history_page import history_html
from iron_ops_aie import GEMM, MHA
from tests.pictures.browser import Browser, find
from tests.pictures.conftest import Priced
from tests.pictures.test_history import ROWS
from tests.pictures.test_page import _names

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ROWS_SEEN = "[...document.querySelectorAll('table.steps tbody tr')].filter(r => r.checkVisibility()).map(r => r.textContent)"


@pytest.fixture(scope="module")
def browser():
    program = find()
    if program is None:
        missing = "no chromium on PATH (the package chromium of Debian, or another build of it)"
        if "chromium" in os.environ.get("IRON_TESTS_REQUIRE", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    found = Browser(program)
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(layers, tmp_path_factory):
    """By name, the file of a page: 200 steps that run, 600 that do not fold, an operator's array, a history."""
    folder = tmp_path_factory.mktemp("pages")
    compiled = layers(100)
    table = Priced(_names(compiled), (5.0,) * 200)
    history = folder / "history.csv"
    history.write_text("commit,date,suite,operator,case,backend,metric,value\n" + "\n".join(",".join(row) for row in ROWS) + "\n")
    texts = {
        "folded": compiled.html(table=table),
        "long": layers(120, fold=False).html(),
        "gemm": operator_html(GEMM(M=512, K=512, N=1024), "npu2"),
        "mha": operator_html(MHA(num_heads=8, num_KV_heads=4, seq_len=64, kv_len=256, d=64), "npu1"),
        "history": history_html(read([history], ["npu2"])),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    (folder / "picture.svg").write_text(compiled.picture(table=table), encoding="utf-8")
    return lambda name: folder / name


@pytest.mark.parametrize("name", ["folded", "long", "gemm", "mha", "history"])
def test_a_page_fits_and_asks_for_nothing(browser, pages, name):
    """At the width of a desk, a tablet and a telephone, in light and in dark; its own address is the only one."""
    page = browser.open(pages(f"{name}.html"))
    for width in (1600, 1360, 820, 400):
        page.resize(width)
        assert page.value(OVERFLOW) <= 0, width
    colours = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        colours.append(page.value("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"))
    assert colours[0] != colours[1]
    page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.resize(1360)
    assert page.value(OVERFLOW) <= 0
    assert [url for url in page.requests if not url.startswith("data:")] == [pages(f"{name}.html").as_uri()]
    assert page.value("performance.getEntriesByType('resource').length") == 0 and page.complaints == []


def test_steps_are_found_by_words(browser, pages):
    """Only rows that hold them all are left, opened, and counted; without words everything is as it was."""
    page = browser.open(pages("folded.html"))
    before = page.value(ROWS_SEEN)
    typed = "(i => { i.value = WORDS; i.dispatchEvent(new Event('input')) })(document.querySelector('.filter input'))"
    page.value(typed.replace("WORDS", "'layers.57. up'"))
    (seen,) = page.value(ROWS_SEEN)
    assert "layers.57.up" in seen and page.value("document.querySelector('.filter output').textContent") == "1 of 200 steps"
    page.value(typed.replace("WORDS", "''"))
    assert page.value(ROWS_SEEN) == before


def test_a_link_opens_what_it_leads_to(browser, pages):
    """A step at a glance leads to its row, wherever that is folded away."""
    page = browser.open(pages("folded.html"))
    assert not page.value("document.getElementById('v0s131').checkVisibility()")
    page.value("document.querySelector('a[href=\"#v0s131\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    page.value("new Promise(done => setTimeout(done, 50))")
    assert page.value("document.getElementById('v0s131').checkVisibility()")


@pytest.mark.parametrize("name", ["gemm", "mha"])
def test_what_is_written_on_a_tile_stays_in_it(browser, pages, name):
    """No name is wider than its box, and nothing is drawn outside the picture."""
    page = browser.open(pages(f"{name}.html"))
    wide = page.value(
        "[...document.querySelectorAll('svg.array g:not(.stream)')].flatMap(g => {"
        " const b = g.querySelector('rect:not(.switch)').getBBox(), right = t => t.getBBox().x + t.getBBox().width;"
        " return [...g.querySelectorAll('text')].filter(t => right(t) > b.x + b.width).map(t => t.textContent) })"
    )
    assert wide == []
    outside = page.value(
        "[...document.querySelectorAll('svg.array')].flatMap(s => { const v = s.viewBox.baseVal;"
        " const inside = b => b.x >= 0 && b.y >= 0 && b.x + b.width <= v.width && b.y + b.height <= v.height;"
        " return [...s.querySelectorAll('path,rect,text')].filter(e => !inside(e.getBBox())).map(e => e.outerHTML) })"
    )
    assert outside == []


def test_columns_of_a_picture_do_not_touch(browser, pages):
    """In no row of the SVG does one text run into the next."""
    page = browser.open(pages("picture.svg"))
    touching = page.value(
        "[...document.querySelectorAll('g')].flatMap(g => {"
        " const t = [...g.querySelectorAll('text')].map(t => [t.getBBox(), t.textContent]).sort((a, b) => a[0].x - b[0].x);"
        " return t.slice(1).filter((b, i) => t[i][0].x + t[i][0].width > b[0].x).map(b => b[1]) })"
    )
    assert touching == [] and page.complaints == []


def test_a_page_that_is_none_of_these_is_noticed(browser, tmp_path):
    """One that is too wide, asks for a picture, and fails."""
    bad = "<p style='width:3000px'>wide</p><img src='http://127.0.0.1:9/x.png'><script>console.error('oh'); null.y</script>"
    (tmp_path / "bad.html").write_text(bad)
    page = browser.open(tmp_path / "bad.html")
    assert page.value(OVERFLOW) > 1000 and "http://127.0.0.1:9/x.png" in page.requests
    assert any("oh" in said for said in page.complaints) and any("TypeError" in said for said in page.complaints)
