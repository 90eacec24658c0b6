"""What every backend keeps, as tests to inherit."""

from __future__ import annotations

import pickle
from threading import Thread
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from iron_core.backends import choose
from iron_core.backends.protocol import Available, Backend, Executable, Unavailable
from iron_core.declare.cases import operators
from iron_core.declare.value import Carried, Scratchpad
from iron_core.devices import device
from iron_core.errors import BoundsError, CallError, IronError, ShapeError, UnknownName
from iron_core.graph.carry import carry
from iron_core.graph.graph import Graph
from iron_core.graph.weight import state, weight
from iron_core.lowering.answer import No, Yes
from iron_core.plugins.registry import registry

SIZE, ROWS = 4096, 16


class Sum(Graph):
    """relu(x) + w, of which the second version's weight is also a part; nothing is kept between calls."""

    def __init__(self, add: Any, relu: Any, dtype: Any) -> None:
        self.w = weight(np.full(SIZE, 3, dtype))
        self.add, self.relu = add, relu

    def body(self, x: Any) -> Any:
        return self.add(self.relu(x), self.w if x.shape == (SIZE,) else x)


class Counts(Graph):
    """ReLU of a state, and a number that goes on."""

    def __init__(self, relu: Any, dtype: Any) -> None:
        self.s = state((SIZE,), dtype)
        self.relu = relu

    def body(self, *, n: Carried[np.int32]) -> Any:
        return self.relu(self.s), carry(n=n + 2)


class Bounded(Graph):
    """relu of the first n rows, twice added up: an intermediate that two operands read."""

    def __init__(self, add: Any, relu: Any) -> None:
        self.add, self.relu = add, relu

    def body(self, x: Any, *, n: Scratchpad[np.int32]) -> Any:
        y = self.relu(x[:n])
        return self.add(y, y)


class BackendConformance:
    """Set `backend`; `dtype` and `dev` where the defaults are not its own.

        class TestMine(BackendConformance):
            backend = MyBackend()

    Graphs are of elementwise steps in sizes that an array takes too: of the operators `relu` and `add` by their names, for a backend
    that takes others. Where the backend's probe says that it cannot run here, what would run is skipped.
    """

    backend: ClassVar[Any]
    dtype: ClassVar[Any] = np.dtype(np.float32)
    dev: ClassVar[str | None] = None
    relu: ClassVar[str] = "ReLU"
    add: ClassVar[str] = "ElementwiseAdd"

    def operators(self) -> tuple[Any, Any]:
        """The classes of `add` and `relu`; skips the test where the backend cannot run here, or they are not installed."""
        said = choose.probe(self.backend)
        if not isinstance(said, Available):
            pytest.skip(f"it cannot run here: {said.reason}")
        if not {self.add, self.relu} <= set(registry().names("operators")):
            pytest.skip(f"{self.add} and {self.relu} are not installed")
        return registry().load("operators", self.add), registry().load("operators", self.relu)

    @property
    def device(self) -> str:
        """The device that is meant."""
        return self.dev or self.backend.devices()[0]

    @pytest.fixture
    def sum(self) -> Any:
        return Sum(*self.operators(), self.dtype).compile(backend=self.backend, dev=self.dev, x=((SIZE,), self.dtype))

    @pytest.fixture
    def counts(self) -> Any:
        return Counts(self.operators()[1], self.dtype).compile(backend=self.backend, dev=self.dev)

    @pytest.fixture
    def bounded(self) -> Any:
        return Bounded(*self.operators()).compile(backend=self.backend, dev=self.dev, x=((ROWS, SIZE // ROWS), self.dtype))

    def x(self) -> np.ndarray:
        return (np.arange(SIZE) % 64 - 32).astype(self.dtype)

    # -- what it says of itself -----------------------------------------------------------------------

    def test_it_keeps_the_protocol(self) -> None:
        """It is a Backend with a name of one word, and a rank or none among those that are chosen unasked."""
        assert isinstance(self.backend, Backend)
        assert self.backend.name and not set(self.backend.name) & set(" \n")
        assert self.backend.preference is None or type(self.backend.preference) is int

    def test_its_probe_says_whether_it_can_run(self) -> None:
        """It never raises: Available with what is there in a line, or Unavailable with the reason; twice alike."""
        said = self.backend.probe()
        assert isinstance(said, Available | Unavailable)
        line = said.summary if isinstance(said, Available) else said.reason
        assert line.strip() and "\n" not in line
        assert type(self.backend.probe()) is type(said)

    def test_it_is_a_value(self) -> None:
        """It pickles, and compares by its options: equal ones are one backend to a graph."""
        same = pickle.loads(pickle.dumps(self.backend))
        assert same == self.backend and hash(same) == hash(self.backend)

    def test_its_devices_are_known(self) -> None:
        """One name or more, each a device that there is."""
        names = self.backend.devices()
        assert names and all(device(name).name == name for name in names)
        assert self.device in names

    def test_an_option_that_is_none_is_refused(self) -> None:
        """A misspelt keyword is an error that names it."""
        with pytest.raises(CallError, match="no_such_option"):
            type(self.backend)(no_such_option=1)

    def test_it_answers_for_every_operator(self) -> None:
        """`supports()` says yes and how, or no and the rule, of whatever is installed: it raises for none."""
        for cls in operators():
            for case in list(cls.test.cases(cls))[:1]:
                answer = self.backend.supports(cls(**case.fields), self.device)
                assert isinstance(answer, Yes | No), cls
                assert (answer.how if isinstance(answer, Yes) else answer.rule).strip(), cls

    # -- graphs ---------------------------------------------------------------------------------------

    def test_it_is_named_where_a_graph_is_explained(self, sum: Any) -> None:
        """`explain()` says which backend, and for which device."""
        assert self.backend.name in sum.explain() and self.device in sum.explain()

    def test_it_computes_what_the_reference_does(self, sum: Any) -> None:
        """Twice alike; what it gave is the caller's own, and what it was given is left alone."""
        x, before = self.x(), self.x()
        got, again = sum(x), sum(x)
        assert np.array_equal(got, sum.reference(x)) and np.array_equal(got, again)
        assert np.array_equal(x, before) and not np.shares_memory(got, again)

    def test_a_call_is_given_any_array(self, sum: Any) -> None:
        """Strided, read-only, or of another shape of as many numbers' rows: what it computes is the same."""
        x = self.x()
        strided = np.stack([x, x], -1)[:, 0]
        locked = x.copy()
        locked.flags.writeable = False
        for given in (strided, locked):
            assert np.array_equal(sum(given), sum(x))

    def test_bounds_follow_each_call(self, bounded: Any) -> None:
        """One build for every number of rows; what lies behind a bound is neither read nor written."""
        x = self.x().reshape(ROWS, -1)
        for n in (ROWS, 3, 1, ROWS - 1):
            got = bounded(x, n=n)
            assert got.shape[0] == n and np.array_equal(got, 2 * np.maximum(x[:n], 0))
        assert len(bounded.versions) == 1
        with pytest.raises(BoundsError):
            bounded(x, n=ROWS + 1)

    def test_folded_equals_unfolded(self) -> None:
        """Every fold that it accepts leaves each bit as it was."""
        add, relu = self.operators()
        made = [
            Sum(add, relu, self.dtype).compile(backend=self.backend, dev=self.dev, fold=fold, x=((SIZE,), self.dtype))(self.x())
            for fold in (False, True)
        ]
        assert np.array_equal(*made)

    def test_two_graphs_are_apart(self, sum: Any) -> None:
        """A weight that one of them is given is not the other's."""
        other = Sum(*self.operators(), self.dtype).compile(backend=self.backend, dev=self.dev, x=((SIZE,), self.dtype))
        first = sum(self.x())
        other.write("w", np.zeros(SIZE, self.dtype))
        assert np.array_equal(sum(self.x()), first) and np.array_equal(other(self.x()) + self.dtype.type(3), first)

    def test_calls_of_several_threads_take_turns(self, sum: Any) -> None:
        """Each gets the answer to what it gave."""
        want = {k: sum.reference(self.x() + self.dtype.type(k)) for k in range(4)}
        got: dict[int, Any] = {}
        threads = [Thread(target=lambda k=k: got.update({k: sum(self.x() + self.dtype.type(k))})) for k in want]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(got[k], want[k]) for k in want)

    def test_versions_share_weights(self, sum: Any) -> None:
        """One added later leaves the first as it was; a weight that is written is new to both, the caller's array is not."""
        first = sum(self.x())
        more = np.ones(2 * SIZE, self.dtype)
        assert (sum(more) == 2).all() and np.array_equal(sum(self.x()), first)
        sum.write("w", np.full(SIZE, 5, self.dtype))
        assert (sum.read("w") == 5).all() and (sum.graph.w.data == 3).all()
        assert np.array_equal(sum(self.x()), sum.reference(self.x()) + self.dtype.type(2))

    def test_a_loop_carries(self, counts: Any) -> None:
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

    def test_what_calls_copy_is_counted(self, sum: Any) -> None:
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

    def test_what_is_wrong_is_refused_and_leaves_it_as_it_was(self, sum: Any, counts: Any) -> None:
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

    def test_an_image_is_data(self, sum: Any) -> None:
        """It pickles, and is loaded again over the same memory."""
        (version,) = sum.versions.values()
        executable = self.backend.load(pickle.loads(pickle.dumps(version.image)), sum._program.memory())
        assert isinstance(executable, Executable)
        made = np.zeros(SIZE, self.dtype)
        executable.run([self.x()], [made], {})
        assert np.array_equal(made, sum(self.x()))

    def test_compiling_again_gives_an_equal_image(self, sum: Any) -> None:
        """An image follows from the plan and the options alone: no time, no address, no random number is in it."""
        plan, signature = sum.plan, next(iter(sum.versions))
        assert pickle.dumps(self.backend.compile(plan, signature)) == pickle.dumps(self.backend.compile(plan, signature))

    def test_it_refuses_what_it_does_not_take(self) -> None:
        """Keywords of a compile that nobody reads."""
        for keyword in ("feeds", "coresident"):
            with pytest.raises(IronError, match=f"{keyword}="):
                given = {keyword: "nonsense", "x": ((SIZE,), self.dtype)}
                Sum(*self.operators(), self.dtype).compile(backend=self.backend, dev=self.dev, **given)
