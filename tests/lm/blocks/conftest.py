"""Blocks alone: the backends they run on, and how they are run."""

from __future__ import annotations

import pytest

from iron_lm.run import Run


@pytest.fixture(scope="session", params=["reference", "host"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def run() -> Run:
    """float32 all through."""
    return Run(16, 16, dtype="float32", cache_dtype="float32")
