"""docs/host-kernels.md: its two operators are installed as the page writes them, and run by their kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_host import build, compiler
from iron_host.backend import HostBackend
from tests.docs.pages import files, install, page

FILES = files(page("host-kernels"))
X86 = compiler.vector_width() in ("AVX2", "AVX-512")


@pytest.fixture(params=["x86-64-v3", "x86-64"] if X86 else ["here"])
def road(request, monkeypatch):
    """Kernels made for AVX2 and for no vectors that a machine might lack; elsewhere for this processor."""
    if request.param != "here":
        name = request.param.replace("-", "_") if compiler.find().name.startswith("zig") else request.param
        monkeypatch.setenv("IRON_HOST_CXXFLAGS", f"-march={name}")
    monkeypatch.setattr(build, "_loaded", {})
    return request.param


@pytest.fixture
def lines(site):
    """The pack, its two commits installed."""
    install(site, "iron-lines", FILES)


def test_each_commit_is_four_files():
    """As the table of the page counts them."""
    names = [Path(name).name for name, _ in FILES]
    assert names[:4] == ["pyproject.toml", "softsign.py", "softsign.h", "softsign_host.py"]
    assert names[4:] == ["pyproject.toml", "norms.py", "norms.h", "norms_host.py"]


class One(iron.Graph):
    """One operator alone."""

    def __init__(self, operator: type) -> None:
        self.operator = operator

    def body(self, x):
        return self.operator(x)


def operators() -> list[Any]:
    from iron_lines.norms import Norms
    from iron_lines.softsign import Softsign

    return [
        *(Softsign(size=n, T=T) for n in (1, 1003) for T in (np.float32, iron.bfloat16)),
        *(Norms(rows=r, cols=c, T=np.float32) for r, c in ((1, 5), (33, 1003))),
    ]


def test_they_run_by_their_kernels(lines, road):
    """On each road, within their contracts, by C++: without a kernel the call would be refused."""
    for op in operators():
        x = np.random.default_rng(0).standard_normal(op.shape("x")).astype(np.dtype(op.T))
        got = One(type(op)).compile(backend=HostBackend(strict=True), x=(x.shape, x.dtype))(x)
        assert op.check((got,), (op.reference(x),), x).compared == got.size
        kernel = {"Softsign": "unary<lines::", "Norms": "lines::norms<"}[type(op).__name__]
        assert any(unit.template.startswith(kernel) for *_, unit in build._loaded)


def test_a_bound_reaches_the_kernel(lines):
    """`valid` is the slot of that name: rows past it are not computed."""
    from iron_lines.norms import Norms

    class Some(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return Norms(x[:n])

    x = np.full((9, 16), 3, np.float32)
    graph = Some().compile(backend=HostBackend(strict=True), x=(x.shape, x.dtype))
    for n in (9, 4, 1):
        assert np.array_equal(graph(x, n=n), np.full(n, 12, np.float32))


def test_explain_names_them(lines):
    """As kernels, by the names the lowerings have."""
    said = {type(op).__name__: HostBackend().supports(op).how for op in operators()}
    assert said == {"Softsign": "kernel Softsign", "Norms": "kernel norms"}
