"""What every backend keeps, as tests to inherit: `class TestMine(Conformance): backend = MyBackend()`.

Graphs are of elementwise steps on float32 or bfloat16 (`dtype`) in sizes that an array takes too.
"""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.protocol import Available, Backend, Executable
from iron_core.errors import CallError, IronError, ShapeError, UnknownName
from iron_ops_aie import ElementwiseAdd, ReLU

SIZE = 4096


class Sum(iron.Graph):
    """relu(x) + w, of which the second version's weight is also a part; nothing is kept between calls."""

    def __init__(self, dtype: Any) -> None:
        self.w = iron.weight(np.full(SIZE, 3, dtype))

    def body(self, x: Any) -> Any:
        return ElementwiseAdd(ReLU(x), self.w if x.shape == (SIZE,) else x)


class Counts(iron.Graph):
    """ReLU of a state, and a number that goes on."""

    def __init__(self, dtype: Any) -> None:
        self.s = iron.state((SIZE,), dtype)

    def body(self, *, n: iron.Carried[np.int32]) -> Any:
        return ReLU(self.s), iron.carry(n=n + 2)


class Conformance:
    """Set `backend`; `dtype` and `dev` where the defaults are not its own."""

    backend: ClassVar[Any]
    dtype: ClassVar[Any] = np.dtype(np.float32)
    dev: ClassVar[str | None] = None

    @pytest.fixture
    def sum(self) -> Any:
        return Sum(self.dtype).compile(backend=self.backend, dev=self.dev, x=((SIZE,), self.dtype))

    @pytest.fixture
    def counts(self) -> Any:
        return Counts(self.dtype).compile(backend=self.backend, dev=self.dev)

    def x(self) -> np.ndarray:
        return (np.arange(SIZE) % 64 - 32).astype(self.dtype)

    def test_it_keeps_the_protocol(self) -> None:
        """It is a Backend, says that it is there, and compares by value."""
        assert isinstance(self.backend, Backend) and isinstance(self.backend.probe(), Available)
        same = pickle.loads(pickle.dumps(self.backend))
        assert same == self.backend and hash(same) == hash(self.backend)
        assert (self.dev or self.backend.devices()[0]) in self.backend.devices()

    def test_it_computes_what_the_reference_does(self, sum) -> None:
        """Twice alike; what it gave is the caller's own, and what it was given is left alone."""
        x, before = self.x(), self.x()
        got, again = sum(x), sum(x)
        assert np.array_equal(got, sum.reference(x)) and np.array_equal(got, again)
        assert np.array_equal(x, before) and not np.shares_memory(got, again)

    def test_versions_share_weights(self, sum) -> None:
        """One added later leaves the first as it was; a weight that is written is new to both, the caller's array is not."""
        first = sum(self.x())
        more = np.ones(2 * SIZE, self.dtype)
        assert (sum(more) == 2).all() and np.array_equal(sum(self.x()), first)
        sum.write("w", np.full(SIZE, 5, self.dtype))
        assert (sum.read("w") == 5).all() and (sum.graph.w.data == 3).all()
        assert np.array_equal(sum(self.x()), sum.reference(self.x()) + self.dtype.type(2))

    def test_a_loop_carries(self, counts) -> None:
        """Step by step with what on_step is told, which may read, write and stop."""
        told = []

        def on_step(index: int, carried: dict[str, int]) -> bool:
            told.append((index, carried["n"], float(counts.read("s")[0])))
            counts.write("s", np.full(SIZE, index + 1, self.dtype))
            return index == 2

        assert counts.loop(9, on_step, n=1) == {"n": 7}
        assert told == [(0, 3, 0), (1, 5, 1), (2, 7, 2)]
        assert counts.loop(2, n=1) == {"n": 5}
        made, carried = counts(n=4)
        assert (made == 3).all() and carried.n == 6

    def test_what_calls_copy_is_counted(self, sum) -> None:
        """Until the first there is nothing; a weight is in place before it and copied by no call, only where it is written."""
        nothing = type(sum.traffic)()
        assert sum.traffic == nothing
        sum(self.x())
        first = sum.traffic
        for _ in range(3):
            before = sum.traffic
            sum(self.x())
            assert sum.traffic - before == (last := attrs.evolve(first, residents=0, loads=(sum.traffic - before).loads))
        assert last.inputs in (0, SIZE * self.dtype.itemsize) and last.outputs in (0, SIZE * self.dtype.itemsize)
        before = sum.traffic
        sum.write("w", np.full(SIZE, 5, self.dtype))
        assert sum.traffic - before == attrs.evolve(nothing, residents=SIZE * self.dtype.itemsize)

    def test_what_is_wrong_is_refused_and_leaves_it_as_it_was(self, sum, counts) -> None:
        """Shapes, dtypes, names and ranges, each as an error of Iron's."""
        (version,) = sum.versions.values()
        for given, error in ((np.ones(8, self.dtype), ShapeError), (np.full(SIZE, 0.1), CallError), ("text", IronError)):
            with pytest.raises(error, match="input `x`"):
                version.call([given], {})
        with pytest.raises(UnknownName):
            sum.read("no such weight")
        with pytest.raises(ShapeError):
            sum.write("w", np.ones(3, self.dtype))
        with pytest.raises(CallError):
            counts.loop(5, n=2**31 - 3)
        assert np.array_equal(sum(self.x()), sum.reference(self.x()))

    def test_an_image_is_data(self, sum) -> None:
        """It pickles, and is loaded again over the same memory."""
        (version,) = sum.versions.values()
        executable = self.backend.load(pickle.loads(pickle.dumps(version.image)), sum._program.memory())
        assert isinstance(executable, Executable)
        made = np.zeros(SIZE, self.dtype)
        executable.run([self.x()], [made], {})
        assert np.array_equal(made, sum(self.x()))

    def test_it_refuses_what_it_does_not_take(self) -> None:
        """Keywords of a compile that nobody reads."""
        for keyword in ("feeds", "coresident"):
            with pytest.raises(IronError, match=f"{keyword}="):
                Sum(self.dtype).compile(backend=self.backend, dev=self.dev, x=((SIZE,), self.dtype), **{keyword: "nonsense"})
