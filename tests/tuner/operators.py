"""The operators that a test tunes: small arrays of three classes, and what a fake backend says of their settings."""

from __future__ import annotations

from typing import Any

from iron_core.devices import device
from iron_core.plugins.registry import registry

NPU2 = device("npu2")


def made(name: str, **fields: Any) -> Any:
    """An operator of the installed catalogs."""
    return registry().load("operators", name)(**fields)


def by_width(run: Any) -> float:
    """A model in which wide settings are fast, and long tiles a little."""
    return 800 / (run.op.num_aie_columns * run.op.num_channels) + 2000 / run.op.tile_size
