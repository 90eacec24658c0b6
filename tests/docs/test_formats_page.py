"""docs/formats.md: its pack is written and installed, its own test passes, and a weight of its format runs as the page says."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import as_format
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV
from tests.docs.pages import files, install, page

PAGE = page("formats")
FILES = dict(files(PAGE))


@pytest.fixture
def pack(site):
    """The page's pack on the path."""
    install(site, "iron-gptq", FILES.items())


def test_the_count_of_files_is_the_pages():
    """Three files, as its table says."""
    assert list(FILES) == ["pyproject.toml", "src/iron_gptq/int4.py", "tests/test_int4.py"]
    assert "| a format that planes describe, on the reference and the CPU | 3 files:" in PAGE


def test_the_packs_own_test_passes(pack):
    """As it stands on the page."""
    module: dict = {}
    exec(compile(FILES["tests/test_int4.py"], "tests/test_int4.py", "exec"), module)
    module["test_int4_is_what_gptq_reads"]()


def test_a_product_runs_by_kernels(pack):
    """By name, on the reference and on the CPU, where every step has a kernel."""

    class Product(iron.Graph):
        def __init__(self, w):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMV(self.w, x)

    w = as_format("gptq.int4").quantize(np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32))
    x = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    for backend in ("reference", HostBackend(strict=True)):
        assert np.allclose(Product(w).compile(backend=backend, x=(x.shape, np.float32))(x), w.dequantize() @ x, rtol=1e-5, atol=1e-4)
