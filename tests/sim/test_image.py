"""An `ArrayImage` is data: out of a pickle or the cache, in another process, it runs and gives the same bits."""

from __future__ import annotations

import pickle
import subprocess
import sys

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.cache.store import Cache
from iron_core.image.array_image import freeze, thaw
from iron_ops_aie import GEMV, ElementwiseAdd, SiLU
from iron_sim.backend import SimBackend


class Gated(iron.Graph):
    """y[:n] = silu(w @ x)[:n] + b[:n] in several designs, one of which follows a call's number."""

    def body(self, x, w, b, *, n: iron.Scratchpad[np.int32]):
        return ElementwiseAdd(SiLU(GEMV(w, x)[:n]), b[:n])


class Folded(iron.Graph):
    """The same without a bound: all of it runs in the product's cores."""

    def body(self, x, w, b):
        return ElementwiseAdd(SiLU(GEMV(w, x)), b)


def compiled(graph, dev="npu2", **options):
    return graph.compile(x=(64,), w=(64, 64), b=(64,), backend="sim", dev=dev, **options)


def inputs():
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(bfloat16) for shape in ((64,), (64, 64), (64,))]


RUNS = {
    "designs": (Gated(), {}, {"n": 40}),
    "designs in a chain": (Gated(), {"dev": "npu1"}, {"n": 64}),
    "folded": (Folded(), {"fold": True}, {}),
}

#: A process that has never seen the graph: the plan's memory, the image out of the cache, one call.
CHILD = """
import pickle, sys
from pathlib import Path
from iron_core.cache.store import Cache
from iron_core.image.array_image import thaw
from iron_sim.backend import SimBackend

folder, key = Path(sys.argv[1]), sys.argv[2]
plan, inputs, outputs, values = pickle.loads((folder / "call").read_bytes())
image = thaw(Cache("sim", folder).read(key, "image.pickle"))
backend = SimBackend()
backend.load(image, backend.memory(plan)).run(inputs, outputs, values)
(folder / "result").write_bytes(b"".join(out.tobytes() for out in outputs))
"""


def outputs():
    """Of a whole call: what a bound leaves out of it stays zero."""
    return [np.zeros(64, bfloat16)]


def image_of(run):
    (version,) = run.versions.values()
    return version.image


@pytest.mark.parametrize("name", RUNS)
def test_an_image_from_the_cache_gives_the_same_bits_in_another_process(name, tmp_path):
    graph, options, values = RUNS[name]
    run = compiled(graph, **options)
    want = np.asarray(run(*inputs(), **values))
    Cache("sim", tmp_path).keep("0" * 32, "image.pickle", freeze(image_of(run)))
    (tmp_path / "call").write_bytes(pickle.dumps((run.plan, inputs(), outputs(), values)))
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), "0" * 32], check=True)
    assert np.frombuffer((tmp_path / "result").read_bytes(), bfloat16)[: len(want)].tobytes() == want.tobytes()


@pytest.mark.parametrize("name", RUNS)
def test_an_image_holds_no_operator_and_no_kernel(name):
    """Its bytes name core's classes; a kernel is found again by its array's key, where the image is run."""
    graph, options, _ = RUNS[name]
    content = freeze(image_of(compiled(graph, **options)))
    image = thaw(content)
    assert image is not None and not image.version.steps
    assert len(image.steps) == (1 if name == "folded" else 3)
    for step in image.steps:
        assert step.array_key[0].startswith("iron_ops_aie.")
    bare = attrs.evolve(image, steps=tuple(attrs.evolve(step, array_key=()) for step in image.steps))
    assert b"iron_ops_aie" not in freeze(bare)


class Again(iron.Graph):
    """Two steps of one configuration of the array, and one of another."""

    def body(self, x):
        return ElementwiseAdd(SiLU(SiLU(x)), x)


def test_the_arrays_of_an_image_stay_shared():
    """Steps that share a configuration of the array share it when they are read again."""
    image = image_of(Again().compile(x=(4096,), backend="sim", dev="npu2"))
    again = thaw(freeze(image))
    assert again.entries == image.entries and again.columns == image.columns
    for one, other in zip(image.steps, again.steps, strict=True):
        assert (one.name, one.design, one.placement, one.written) == (other.name, other.design, other.placement, other.written)
    for found in (image, again):
        first, second, third = (step.design.array for step in found.steps)
        assert first is second is not third


class Runs:
    """What must not be loaded: unpickled it would run a function."""

    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps({"version": 1}), pickle.dumps(Runs())], ids=range(4))
def test_bytes_that_are_no_image_are_none(content, capsys):
    """Damaged, another thing, or something that would run code: nothing is loaded and nothing runs."""
    assert thaw(content) is None
    assert not capsys.readouterr().out


def test_an_image_runs_on_the_backend_that_is_given_it():
    """Any process's backend, over the memory of the plan."""
    run = compiled(Gated())
    backend = SimBackend()
    (out,) = made = outputs()
    backend.load(thaw(freeze(image_of(run))), backend.memory(run.plan)).run(inputs(), made, {"n": 7})
    assert out[:7].tobytes() == np.asarray(run(*inputs(), n=7)).tobytes()
