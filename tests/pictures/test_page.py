"""Pages, SVG and Graphviz text: well formed, whole, and of nothing from outside."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import iron_core as iron
from iron_core.visualize import html, picture
from iron_core.visualize.subject import subject
from tests.pictures.conftest import Layers, Priced

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def deep(layers):
    """Sixty layers priced: 120 steps that run, of 300."""
    compiled = layers(60)
    return compiled, Priced(_names(compiled), (5.0,) * 120)


def _names(compiled):
    shown = subject(compiled)
    return tuple(row.name for row in shown.run_list(shown.version(None)).rows)


def test_a_page_is_well_formed_and_needs_nothing_from_outside(deep, outline):
    """Every element is closed where it should be; no address of anything that would be fetched."""
    compiled, priced = deep
    page = outline(html(compiled, table=priced))
    assert not page.wrong
    fetched = [(tag, own) for tag, own in page.elements if {"src", "srcset", "data", "action"} & own.keys()]
    assert not fetched and all(own.get("href", "#").startswith(("#", "data:,")) for _, own in page.elements)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html(compiled))


def test_every_step_is_there_once_and_is_linked_to(deep, outline):
    """A row with an id for each that runs, to which the glance leads, as do all links on the page to something."""
    page = outline(html(deep[0]))
    ids = [own["id"] for _, own in page.elements if "id" in own]
    assert len(ids) == len(set(ids))
    assert [f"v0s{n}" for n in range(120)] == [i for i in ids if i.startswith("v0s") and i[3:].isdigit()]
    targets = {own["href"][1:] for own in page.all("a")}
    assert targets <= set(ids) and {f"v0s{n}" for n in range(120)} <= targets


def test_layers_are_told_once(deep, outline):
    """Sixty rounds of two steps, one told for all, each of the others to be opened."""
    text = " ".join(outline(html(deep[0], table=deep[1])).texts)
    assert "60 × 2 steps" in text and "each of the 60 rounds" in text and "layers.*.up" in text
    assert "round 59" in text and "layers.59" in text


def test_figures_add_up(deep, outline):
    """The total is what the backend says, and the steps' share is of the steps'."""
    compiled, priced = deep
    text = " ".join(outline(html(compiled, table=priced)).texts)
    assert f"{priced.total_us / 1e3:.2f} ms" in text and "120" in text and "of 300 folded into others" in text
    assert "100.0 %" in text and "entering them 600.0 us" in text and "dispatch 20.0 us" in text


def test_all_is_told_in_words(deep, outline):
    """A picture has a name, what can be hovered over a title, and a table the heads of its columns."""
    page = outline(html(deep[0]))
    assert all(own.get("aria-label") for own in page.all("svg"))
    assert page.all("th") and all(own.get("scope") == "col" for own in page.all("th"))
    assert len(page.all("title")) > 120


@pytest.mark.parametrize(("options", "says"), [({}, "xclbin"), ({"image": iron.CONTEXTS}, "contexts")])
def test_a_chain_has_a_page_too(options, says, outline):
    """On npu1 every step is a dispatch, of an xclbin or a context; no entries are shown."""
    compiled = Layers(2).compile(x=(64,), backend="null", dev="npu1", fold=True, **options)
    page = outline(compiled.html())
    assert says in page.texts and not page.wrong and "entries" not in page.texts and "dispatches" in page.texts


def test_moved_tunables_are_shown_and_listed(tuned, outline):
    """Beside their step, and in a table with the value that the operator would have chosen."""
    page = outline(tuned.html())
    assert len(page.all("span", "moved")) >= 2 and "Moved tunables" in page.texts
    assert "tile_size_input=2" in tuned.dot() and "tile_size_input=2" in tuned.picture()


def test_a_version_has_pictures_of_its_own(layers):
    """Of two, the one that is asked for."""
    graph = Layers(1).compile(x=(64,), backend="null", dev="npu2")
    (version,) = graph.versions.values()
    assert version.picture() == graph.picture() and "gemv0" in version.dot() and "gemv0" in version.html()


def test_nothing_of_a_graph_is_taken_for_markup(outline):
    """Names are the author's."""

    class Odd(iron.Graph):
        """A weight of a strange name."""

        def __init__(self):
            self.parts = {"<b>&\"'": iron.state((8,))}

        def body(self, x):
            from iron_ops_aie import ElementwiseAdd

            return ElementwiseAdd(x, self.parts["<b>&\"'"])

    compiled = Odd().compile(x=(8,), backend="null", dev="npu1")
    page = outline(compiled.html(table={"elementwiseadd0": "<i>&"}))
    assert not page.wrong and "parts.<b>&\"'" in page.texts and "<i>&" in page.texts and not page.all("i")
    ET.fromstring(compiled.picture(table={"elementwiseadd0": "<i>&"}))


def test_a_picture_is_xml_with_a_row_for_each_step(deep):
    """Told what it is, with its time, what is folded in and where it runs."""
    compiled, priced = deep
    root = ET.fromstring(picture(compiled, table=priced))
    rows = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    assert len(rows) == 120
    words = [" ".join(t.text or "" for t in g.iter(f"{SVG}text")) for g in rows]
    assert all("array" in text and " us" in text for text in words) and "GEMV + RMSNorm + SiLU" in words[0]
    width = float(root.attrib["width"])
    assert all(0 <= float(r.attrib["x"]) <= width - float(r.attrib["width"]) + 0.1 for r in root.iter(f"{SVG}rect"))


def test_dot_has_what_runs_and_how_data_flows(layers):
    """A box for each row, no arrow to what is folded away, and each weight with its reader."""
    text = layers(2).dot()
    boxes = re.findall(r"v0s(\d+) \[label=.*shape=box", text)
    arrows = re.findall(r"(v0\w+) -> (v0\w+)", text)
    assert boxes == ["0", "1", "2", "3"] and len(arrows) == len(set(arrows))
    assert {("v0s0", "v0s1"), ("v0s1", "v0s2"), ("v0s1", "v0s3"), ("v0input0", "v0s0"), ("v0input0", "v0s1")} <= set(arrows)
    assert all(a != b for a, b in arrows) and "after: SiLU (silu0)" in text


def test_pages_are_the_same_each_time(tuned):
    """Nothing in them depends on when or where they are made."""
    assert tuned.html() == tuned.html() and tuned.picture() == tuned.picture()
