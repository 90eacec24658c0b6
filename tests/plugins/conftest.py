"""Imports of plugins take no time in these tests, however busy the machine is."""

from __future__ import annotations

import pytest

from iron_core.plugins import record


@pytest.fixture(autouse=True)
def _no_time(monkeypatch):
    monkeypatch.setattr(record, "clock", lambda: 0.0)
