"""Every python block of docs/*.md and of the distributions' pages runs as it stands, each in a namespace of its own.

README.md and models.md, and adding.md, plugins.md and host-kernels.md, whose blocks are files of a pack, have tests of their own;
so has a block below the name of its file on another page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributions import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]
PAGES = [p for p in sorted((ROOT / "docs").glob("*.md")) if p.name not in ("adding.md", "plugins.md", "host-kernels.md", "models.md")]
PAGES += [one.path / "README.md" for one in DISTRIBUTIONS]
BLOCKS = [
    (p.relative_to(ROOT).as_posix(), i, b)
    for p in PAGES
    for i, b in enumerate(re.findall(r"(?<!`\n\n)^```python\n(.*?)^```", p.read_text(), re.M | re.S))
]


@pytest.mark.parametrize(("page", "number", "source"), BLOCKS, ids=[f"{page}-{i}" for page, i, _ in BLOCKS])
def test_a_block_runs(page, number, source, tmp_path, monkeypatch):
    """In any folder, and it leaves nothing there."""
    monkeypatch.chdir(tmp_path)
    exec(compile(source, f"{page} block {number}", "exec"), {"__name__": "page"})
    assert not list(tmp_path.iterdir())
