"""Graphs that are pictured: layers that repeat, with what is folded, tuned and priced."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import Profile, bfloat16
from iron_ops_aie import GEMV, ElementwiseAdd, RMSNorm, SiLU


class Layers(iron.Graph):
    """`count` layers of a norm, a product, SiLU, a product and a residual."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        self.layers = [
            {name: (rng.standard_normal(shape) / 8).astype(bfloat16) for name, shape in (("up", (128, 64)), ("down", (64, 128)))}
            for _ in range(count)
        ]
        self.norm = np.ones(64, bfloat16)

    def body(self, x):
        for layer in self.layers:
            normed = RMSNorm(x.reshape(1, 64), weight=self.norm).reshape(64)
            hidden = SiLU(GEMV(layer["up"], normed))
            x = ElementwiseAdd(GEMV(layer["down"], hidden), x)
        return x


@attrs.frozen
class Priced:
    """As a backend prices: each step 2 microseconds and 1 more for each letter of its name, each entry 5, a call 20."""

    names: tuple[str, ...]
    entries: tuple[float, ...]
    dispatch_us: float = 20.0

    @property
    def total_us(self) -> float:
        return sum(map(self.step_us, self.names)) + sum(self.entries) + self.dispatch_us

    def step_us(self, name: str) -> float | None:
        return 2.0 + len(name) if name in self.names else None


@pytest.fixture(scope="session")
def layers() -> Any:
    """`layers(count, dev="npu2", **options)`: the graph compiled for pictures, every fold taken."""

    def compiled(count: int, dev: str = "npu2", **options: Any) -> Any:
        return Layers(count).compile(x=(64,), backend="null", dev=dev, **({"fold": True} | options))

    return compiled


@pytest.fixture(scope="session")
def tuned() -> Any:
    """Two layers whose first products are tuned by a profile."""
    with (profile := Profile()):
        profile.add(GEMV, M=128, tile_size_input=2)
        return Layers(2).compile(x=(64,), backend="null", dev="npu2", fold=True)


class Outline(HTMLParser):
    """A page taken apart: its elements as (tag, attributes), its text, whether every element is closed where it should be."""

    VOID = frozenset({"meta", "link", "input", "br", "wbr", "hr", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.wrong += [f"{tag} is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str, kind: str = "") -> list[Mapping[str, str | None]]:
        """Attributes of the elements of a tag, of one class."""
        return [own for name, own in self.elements if name == tag and kind in [*(own.get("class") or "").split(), ""]]


@pytest.fixture(scope="session")
def outline() -> type[Outline]:
    return Outline
