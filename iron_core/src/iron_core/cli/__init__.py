"""The commands `iron` and `iron-run`."""

from __future__ import annotations

from iron_core.cli.entry import main

__all__ = ["main"]
