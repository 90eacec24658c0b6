"""docs/backends.md: its backend is short, and does what every backend has to."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from iron_core.testing import BackendConformance
from tests.docs.pages import files, page

FILES = dict(files(page("backends")))


def test_it_is_at_most_a_hundred_lines():
    """Of Python; and two files."""
    assert set(FILES) == {"pyproject.toml", "src/iron_small/backend.py"}
    assert len(FILES["src/iron_small/backend.py"].splitlines()) <= 100


@pytest.fixture(scope="class")
def small(request, tmp_path_factory):
    """The page's class, from a folder on the path, as the backend of the tests."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "iron_small").mkdir()
    (folder / "iron_small" / "backend.py").write_text(FILES["src/iron_small/backend.py"])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        request.cls.backend = import_module("iron_small.backend").Small()
        yield
    for name in [name for name in sys.modules if name.startswith("iron_small")]:
        del sys.modules[name]


@pytest.mark.usefixtures("small")
class TestSmall(BackendConformance):
    """It passes what `reference`, `host` and `sim` pass."""
