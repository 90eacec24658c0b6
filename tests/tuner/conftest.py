"""Every test has a cache of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The root of this test's cache."""
    root = tmp_path / "cache"
    monkeypatch.setenv("NPU_CACHE_HOME", str(root))
    return root
