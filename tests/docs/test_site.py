"""The site of docs/: its navigation has every page, its links lead where those of the files do. `nox -s docs` builds it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAV = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


def loaded(name):
    """A module of docs/site, by its path, as mkdocs loads it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def outside():
    """What brings pages from outside of docs/."""
    return loaded("outside")


def test_every_page_is_in_the_navigation_once(outside):
    """A page of docs/, and those alone that come from the root; the distributions' are put where their index is."""
    named = re.findall(r"(\S+\.md)$", NAV, re.M)
    wanted = [file.name for file in (ROOT / "docs").glob("*.md")] + list(outside.ALONE.values()) + ["packages/index.md", "api/index.md"]
    assert sorted(named) == sorted(wanted)


def test_links_lead_to_the_pages_that_files_became(outside):
    """From docs/ out, from the root in, between folders; code and what is no file stay as they are."""
    docs, own = ROOT / "docs" / "npu.md", ROOT / "iron_backends" / "npu" / "README.md"
    cases = {
        (docs, "npu.md"): {
            "[README](../README.md#the-distributions)": "[README](index.md#the-distributions)",
            "[its README](../iron_backends/npu/README.md#running)": "[its README](packages/npu.md#running)",
            "[cache.md](cache.md)": "[The cache](cache.md)",
            "[a](#b) `[c](cache.md)` <https://x.y>": "[a](#b) `[c](cache.md)` <https://x.y>",
            "```\n[cache.md](cache.md)\n```": "```\n[cache.md](cache.md)\n```",
            "[gone](gone.md) [far](https://x.y/z.md)": "[gone](gone.md) [far](https://x.y/z.md)",
            "[the run](../noxfile.py)": "the run",
        },
        (ROOT / "README.md", "index.md"): {"[docs/cache.md](docs/cache.md)": "[The cache](cache.md)"},
        (own, "packages/npu.md"): {
            "[x](../../docs/npu.md) [y](../host/README.md)": "[x](../npu.md) [y](host.md)",
            "[`z`](../../docs/cache.md#a)": "[`z`](../cache.md#a)",
        },
    }
    for (source, place), links in cases.items():
        for written, shown in links.items():
            assert outside.rewritten(written, source, place) == shown


def test_every_page_from_outside_begins_with_its_title(outside):
    """It is the page's name in the navigation."""
    for path in outside.outside():
        assert (ROOT / path).read_text().startswith("# "), path


def test_nothing_generated_is_committed():
    """The site is built outside of docs/, where git does not look."""
    said = (ROOT / "mkdocs.yml").read_text()
    assert "\nsite_dir: build/site\n" in said and "build/" in (ROOT / ".gitignore").read_text().split()
    files = [file for file in (ROOT / "docs").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert {file.suffix for file in files} == {".md", ".py", ".css", ".svg"}


def test_the_picture_is_of_the_pages_code():
    """Run `python docs/site/drawn.py`."""
    drawn = loaded("drawn")
    assert drawn.PICTURE.read_text() == drawn.drawn()


def test_the_catalogue_of_errors_is_what_the_classes_say():
    """Run `python -m docs.site.errors`. Every class has a line of its own, with an example and its fix where it has them."""
    errors = loaded("errors")
    page = errors.PAGE.read_text()
    assert page == errors.text()
    found = [cls for module in errors.modules().values() for cls in errors.classes(module)]
    assert len(found) > 30 and re.findall(r"^### (\w+)$", page, re.M) == [cls.__name__ for cls in found]
    assert page.count("* raised by: ") == page.count("* mended by: ") == sum("Raises:" in (cls.__doc__ or "") for cls in found)
