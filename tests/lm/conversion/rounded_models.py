"""Tiny models all of whose rows are whole blocks, and what they are behind a conversion that rounds some of their matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core.declare.formats import format_of
from iron_host.backend import HostBackend
from iron_lm import loading
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors_header import read_header
from iron_lm.conversion.roles import by_role
from iron_lm.generation.session import Session
from iron_lm.run import Run
from tests.families.conftest import Family

#: Sizes of tiny models that are no whole blocks, and those that are taken instead.
SIZES = {40: 64, 48: 64, 56: 64, 80: 128, 112: 128}


def tiny_of(name: str, folder: Path) -> Family:
    """A tiny model all of whose rows are whole blocks of 32: what is added to a tensor is drawn as wide as the rest."""
    family, rng = Family(name, folder), np.random.default_rng(0)
    for key, array in family.weights.items():
        shape = tuple(SIZES.get(n, n) for n in array.shape)
        if shape != array.shape:
            drawn = (rng.standard_normal(shape) * array.std()).astype(np.float32)
            drawn[tuple(map(slice, array.shape))] = array
            family.weights[key] = drawn
    family.json |= {key: SIZES.get(value, value) for key, value in family.json.items() if key.endswith("_size") and type(value) is int}
    return family


class Source:
    """A tiny model's folder and its family."""

    def __init__(self, path: Path, family: Any) -> None:
        self.path, self.family = path, family

    def load(self, path: Path | None = None, **options: Any) -> loading.Loaded:
        return loading.load(self.family, path or self.path, **dict(max_seq_len=64) | options)

    @property
    def roles(self) -> dict[str, Any]:
        return by_role(self.family.build(self.load().config, Run(1, 1)))


def raw(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """dtype, shape and bytes of every tensor of a folder, by name."""
    found = {}
    for one in sorted(path.glob("*.safetensors")):
        file = MappedFile(one)
        for e in read_header(file).entries:
            found[e.name] = e.dtype, e.shape, file.read(e.begin, e.end - e.begin, e.name)
    return found


def rounded(path: str, array: Any, paths: Any, format: Any) -> np.ndarray:
    """What a weight is after a conversion that rounds `paths`."""
    wide = np.asarray(array).astype(np.float32)
    return format.quantize(wide).dequantize() if path in paths else wide


def check_numbers(source: Source, out: Path, paths: Any, format: Any) -> loading.Loaded:
    """Every number of what was written is that of the format, or as it was."""
    before, after = source.load(), source.load(out, activations="exact")
    assert set(before.exact) == set(after.exact)
    for path, array in before.exact.items():
        got = after.exact[path]
        assert (str(format_of(got)) == str(format)) == (path in paths), path
        wide = got.dequantize() if format_of(got).packed else np.asarray(got).astype(np.float32)
        np.testing.assert_array_equal(wide, rounded(path, array, paths, format), err_msg=path)
    return after


def check_run(source: Source, out: Path, after: loading.Loaded) -> None:
    """Kernels on what is stored give what the twin makes of the same numbers; with activations rounded, nearly."""
    ids = np.random.default_rng(1).integers(0, after.config.vocab_size, 20).tolist()
    want = after.twin(ids)[-1]
    scale = np.abs(want).max()
    exact = after.model(cache_dtype="float32")  # a cache of float16 may choose another expert
    assert np.abs(Session(exact, backend=HostBackend(strict=True)).logits(ids) - want).max() < 1e-4 * max(scale, 1)
    usual = source.load(out)
    assert usual.run.activations == "int8_block"
    assert np.isfinite(Session(usual.model(), backend=HostBackend(strict=True)).logits(ids)).all()
