"""Calling graphs on the host: per-call numbers, ports, loops, call-backs, versions that share memory."""

from __future__ import annotations

import pickle
import re
import threading
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4_1, Q8_0, bfloat16
from iron_core.declare.rounding import round_to, widen
from iron_core.errors import BoundsError, CallError, DeclarationError, UnsupportedError
from iron_host.backend import HostBackend, thread_count
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, Sample, SiLU, Softmax


class Negate(iron.UnaryElementwise):
    """y = -x: an operator nobody wrote a kernel for."""

    def reference(self, x: Any) -> Any:
        return -widen(x)


class Cached(iron.Graph):
    """A row goes into a cache at `at`; the first `n` rows come back, doubled."""

    def __init__(self) -> None:
        self.cache = iron.state((6, 8), dtype=np.float32)

    def body(self, x: Any, *, at: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]) -> Any:
        Copy(x, self.cache[at])
        rows = Copy(self.cache[:n])
        return ElementwiseAdd(rows, rows)


def test_offsets_and_bounds_change_from_call_to_call():
    """One compiled version serves every position and row count; outputs come back cut."""
    graph = Cached()
    host = graph.compile(backend=HostBackend(strict=True), x=((8,), np.float32))
    kept = np.zeros((6, 8), np.float32)
    for at, n in ((0, 1), (5, 6), (2, 3), (2, 0), (0, 6)):
        x = np.full(8, 10 * at + n, np.float32)
        kept[at] = x
        got = host(x, at=at, n=n)
        assert got.shape == (n, 8)
        assert (got == 2 * kept[:n]).all()
    assert (host.read("cache") == kept).all()


def test_an_index_outside_its_view_never_reaches_the_kernels():
    """The call is refused before it runs, and the state is as it was."""
    host = Cached().compile(backend="host", x=((8,), np.float32))
    with pytest.raises(BoundsError, match="legal: 0 to 5"):
        host(np.ones(8, np.float32), at=6, n=1)
    assert not host.read("cache").any()


class Mixed(iron.Graph):
    def __init__(self, weight: Any) -> None:
        self.w = weight

    def body(self, x: Any) -> Any:
        return Softmax(GEMM(SiLU(x), self.w, b_col_maj=True, **self._how))

    _how: dict = {}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_call_twice_and_on_any_number_of_threads_is_equal_bit_for_bit(threads):
    """Threads share rows and outputs; they never change the order in which a number is added up."""
    rng = np.random.default_rng(0)
    graph = Mixed(Q4_1.quantize(rng.standard_normal((200, 320)).astype(np.float32)))
    graph._how = dict(activations="int8_block")
    x = rng.standard_normal((33, 320)).astype(np.float32)
    one = graph.compile(backend=HostBackend(threads=1), x=x)(x)
    graph = Mixed(graph.w)
    graph._how = dict(activations="int8_block")
    host = graph.compile(backend=HostBackend(threads=threads), x=x)
    assert host(x).tobytes() == host(x).tobytes() == one.tobytes()


@pytest.mark.parametrize("format", [Q4_1, Q8_0])
def test_a_row_of_a_block_product_does_not_depend_on_how_many_rows_ran_with_it(one_step, format):
    """GEMM of any row count, and GEMV, give the same bits for the same row."""
    rng = np.random.default_rng(1)
    weight = format.quantize(rng.standard_normal((50, 96)).astype(np.float32))
    x = rng.standard_normal((9, 96)).astype(np.float32)
    common = dict(K=96, W=format, T=np.float32, activations="int8_block")
    whole = one_step(GEMM(M=9, N=50, b_col_maj=True, **common))(dict(A=x, B=weight))[0]
    five = one_step(GEMM(M=5, N=50, b_col_maj=True, **common))(dict(A=x[2:7], B=weight))[0]
    alone = one_step(GEMV(M=50, **common))(dict(A=weight, B=x[4]))[0]
    assert whole[2:7].tobytes() == five.tobytes()
    assert whole[4].tobytes() == alone.tobytes()


def test_attention_of_a_row_does_not_depend_on_the_rows_that_run_with_it(one_step):
    """A prompt in one chunk or several, and the last token alone, give the same bits."""
    rng = np.random.default_rng(2)
    common = dict(num_heads=4, num_KV_heads=2, kv_len=70, d=16, T=np.float32, heads_interleaved=True, kv_interleaved=True)
    k, v = (rng.standard_normal((70, 2, 16)).astype(np.float32) for _ in range(2))
    q = rng.standard_normal((40, 4, 16)).astype(np.float32)
    whole = one_step(MHA(seq_len=40, **common))(dict(Q=q, K=k, V=v))[0]
    for rows in (1, 7, 23):
        part = one_step(MHA(seq_len=rows, **common))(dict(Q=q[-rows:], K=k, V=v))[0]
        assert whole[-rows:].tobytes() == part.tobytes()


class Counting(iron.Graph):
    """Draws a token from a table row picked by the last token, and records it."""

    def __init__(self) -> None:
        self.table = np.eye(5, dtype=np.float32)[[1, 2, 3, 4, 0]]
        self.draws = np.zeros((8, 4), np.int32)
        self.record = iron.state((8,), dtype=np.int32)
        self.logits = iron.state((5,), dtype=np.float32)

    def body(self, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]) -> Any:
        Copy(iron.weight(self.table)[token], self.logits)
        _, drawn = Sample(self.logits, self.draws, self.record, row=position * 4, at=position)
        return iron.carry(token=drawn, position=position + 1)


def test_a_loop_is_one_call_with_a_call_back_that_can_stop_it():
    """Every step's carried values reach the call-back in order; True stops, and what was carried last comes back."""
    host = Counting().compile(backend=HostBackend(strict=True))
    seen = []
    last = host.loop(4, lambda i, carried: seen.append((i, carried["token"])), token=0, position=0)
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert last == dict(token=4, position=4)
    assert host.read("record").tolist() == [1, 2, 3, 4, 0, 0, 0, 0]
    stopped = host.loop(8, lambda i, carried: carried["token"] == 2, token=0, position=0)
    assert stopped == dict(token=2, position=2)
    assert host.loop(3, None, token=1, position=2) == dict(token=4, position=5)


class Fixed(iron.Graph):
    """Carries 7, whatever it is called with."""

    def __init__(self) -> None:
        self.seen = iron.state((8, 4), np.float32)

    def body(self, x: Any, *, at: iron.Carried[np.int32]) -> Any:
        Copy(x, self.seen[at])
        return SiLU(x), iron.carry(at=7)


def test_a_carried_constant_is_that_number():
    """It follows no value."""
    host = Fixed().compile(backend="host", x=((4,), np.float32))
    assert vars(host(np.ones(4, np.float32), at=2)[1]) == dict(at=7)
    host(np.ones(4, np.float32), **vars(host(np.ones(4, np.float32), at=2)[1]))
    assert host.read("seen").any(1).tolist() == [row in (2, 7) for row in range(8)]


def test_a_loop_stops_before_a_step_whose_index_is_outside():
    """The record has eight places; the ninth step is refused and the eight before it stand."""
    host = Counting().compile(backend="host")
    with pytest.raises(BoundsError):
        host.loop(9, None, token=0, position=0)
    assert host.read("record").tolist() == [1, 2, 3, 4, 0, 1, 2, 3]


def test_what_a_call_back_raises_comes_out_of_the_loop():
    """Also Ctrl-C; the graph can be called again afterwards."""
    host = Counting().compile(backend="host")

    def interrupt(index: int, carried: dict[str, int]) -> bool:
        if index == 1:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        host.loop(5, interrupt, token=0, position=0)
    assert host.loop(1, None, token=0, position=0) == dict(token=1, position=1)


class Negating(iron.Graph):
    def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
        y = SiLU(x[:n])
        return ElementwiseAdd(Negate(y), y)


def test_an_operator_without_a_kernel_runs_its_reference(capsys):
    """It is announced once on stderr, listed by explain(), runs under bounds, and rounds once."""
    from iron_host import backend

    backend._announced.clear()
    host = Negating().compile(backend="host", x=((6, 8), bfloat16))
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(bfloat16)
    assert not host(x, n=4).any()
    assert host(x, n=4).shape == (4, 8)
    Negating().compile(backend="host", x=((6, 8), bfloat16))
    said = capsys.readouterr().err
    assert said.count("Negate runs its numpy reference (negate0): no host lowering is installed") == 1
    assert "reference call-back: no host lowering is installed" in host.explain()


def test_strict_refuses_it():
    """The message names the operator and the step and how to go on."""
    with pytest.raises(UnsupportedError, match=r"strict=True: no host kernel for Negate \(negate0\).*Leave strict out"):
        Negating().compile(backend=HostBackend(strict=True), x=((6, 8), bfloat16))


class Failing(iron.UnaryElementwise):
    def reference(self, x: Any) -> Any:
        raise ArithmeticError("no answer")


class Fails(iron.Graph):
    def body(self, x: Any) -> Any:
        return SiLU(Failing(x))


def test_an_error_in_a_reference_comes_out_of_the_call():
    """Nothing after the failed step runs, and nothing crosses native code."""
    host = Fails().compile(backend="host", x=((8,), np.float32))
    with pytest.raises(DeclarationError, match=r"Failing\.reference\(\) fails at test_calls\.py:\d+: ArithmeticError: no answer"):
        host(np.ones(8, np.float32))


class Chunk(iron.Graph):
    def __init__(self) -> None:
        self.w = np.ones((4, 8), np.float32)
        self.seen = iron.state((4,), dtype=np.float32)

    def body(self, x: Any) -> Any:
        y = ElementwiseAdd(GEMV(self.w, x) if len(x.shape) == 1 else GEMM(x, self.w, b_col_maj=True)[0], self.seen)
        Copy(y, self.seen)
        return Copy(y)


def test_versions_share_weights_states_and_arena():
    """What one version writes the next reads; an added version keeps what is there; a rewritten weight reaches both."""
    graph = Chunk()
    host = graph.compile(backend="host", x=((8,), np.float32))
    assert (host(np.ones(8, np.float32)) == 8).all()
    graph.compile(backend="host", x=((64, 8), np.float32))
    assert len(host.versions) == 2
    assert (host(np.ones((64, 8), np.float32)) == 16).all()
    host.write("seen", np.zeros(4))
    host.write("w", np.full((4, 8), 2))
    assert (host(np.ones(8, np.float32)) == 16).all()
    assert (host(np.ones((64, 8), np.float32)) == 32).all()
    assert (graph.w == 1).all(), "the caller's array is not written"


class Whole(iron.Graph):
    def body(self, x: Any) -> Any:
        return SiLU(x)


def version(shape: tuple[int, ...], dtype: Any, graph: iron.Graph | None = None) -> Any:
    host = (graph or Whole()).compile(backend="host", x=(shape, dtype))
    return next(iter(host.versions.values()))


def test_inputs_are_taken_in_any_layout_and_any_dtype_that_loses_nothing():
    """Strided and wider arrays work where every number is exact; anything else is refused by name."""
    run = version((4, 6), np.float32)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    want = run.call([np.ascontiguousarray(x.T)], {})[0][0]
    for same in (x.T, x.T.astype(np.float64), x.T.astype(bfloat16), x.T.astype(np.int64)):
        assert run.call([same], {})[0][0].tobytes() == want.tobytes()
    with pytest.raises(CallError, match="input `x` is float32; these float64 numbers are not all exact in it"):
        run.call([np.full((4, 6), 0.1)], {})
    with pytest.raises(iron.errors.ShapeError, match=r"input `x` has shape \(6, 4\); it takes \(4, 6\)"):
        run.call([x], {})


class Columns(iron.Graph):
    def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
        return Copy(x[:, :n])


def test_an_input_bounded_inside_may_be_given_cut():
    """A tensor cut on an inner axis is laid out as the whole one would be."""
    host = Columns().compile(backend="host", x=((3, 5), np.float32))
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert (host(x, n=2) == x[:, :2]).all()
    assert (host(np.ascontiguousarray(x[:, :2]), n=2) == x[:, :2]).all()


def test_outputs_are_the_callers_own():
    """A later call does not change what an earlier one returned."""
    host = Whole().compile(backend="host", x=((8,), np.float32))
    first = host(np.ones(8, np.float32))
    kept = first.copy()
    host(np.zeros(8, np.float32))
    assert (first == kept).all()


def test_an_input_is_read_where_it_lies_in_each_call():
    """The same array with other numbers in it, another array, the first one again; and where a signal's handler left a call before its
    steps knew where the array lies."""
    graph = Cached()
    host = graph.compile(backend=HostBackend(strict=True), x=((8,), np.float32)).load()
    first, second = np.zeros(8, np.float32), np.full(8, 7, np.float32)
    for x, number in ((first, 1), (first, 2), (second, 3), (first, 4), (second, 5)):
        x[:] = number
        assert (host(x, at=0, n=1) == 2 * number).all()
    executable = next(iter(host.versions.values())).executable
    slots = executable._slots["input"][0]

    class Interrupted(list):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    executable._slots["input"][0] = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        host(first, at=0, n=1)
    executable._slots["input"][0] = slots
    first[:] = 6
    assert (host(first, at=0, n=1) == 12).all()


def test_an_image_is_data():
    """It can be pickled and loaded again over the same memory, call-backs included."""
    backend = HostBackend()
    host = Negating().compile(backend="host", x=((6, 8), np.float32))
    version = next(iter(host.versions.values()))
    run = backend.load(pickle.loads(pickle.dumps(version.image)), backend.memory(host.plan))
    x, made = np.ones((6, 8), np.float32), np.zeros((6, 8), np.float32)
    run.run([x], [made], {"n": 3})
    want = host(x, n=3)
    assert made[: len(want)].tobytes() == want.tobytes()


def test_calls_from_several_threads_take_turns():
    """One executable serves any thread; each gets the answer to its own question."""
    host = Whole().compile(backend=HostBackend(threads=2), x=((4096,), np.float32))
    wrong = []

    def ask(k: int) -> None:
        x = np.full(4096, k, np.float32)
        want = host(x)[0]
        for _ in range(50):
            got = host(x)
            if not (got == want).all():
                wrong.append(k)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_come_from_the_option_then_the_environment(monkeypatch):
    """`HostBackend(threads=)`, else IRON_THREADS, else the CPUs of this process; anything but a positive number is refused."""
    monkeypatch.setenv("IRON_THREADS", "3")
    assert thread_count() == 3
    assert thread_count(2) == 2
    monkeypatch.delenv("IRON_THREADS")
    assert thread_count() >= 1
    for given in (0, -1, 1 << 40, 2.5, "2", float("inf"), True):
        with pytest.raises(CallError, match=re.escape(f"threads={given!r}; legal: 1 to ")):
            HostBackend(threads=given)
    monkeypatch.setenv("IRON_THREADS", "many")
    with pytest.raises(CallError, match="IRON_THREADS='many'"):
        thread_count()
    assert "IRON_THREADS" in HostBackend().probe().reason


def test_options_are_the_backends_and_are_checked_where_it_is_made():
    """Equal options are one backend, whatever kind of number; each mistake is named with what would be legal."""
    assert HostBackend() == HostBackend(threads=None, strict=False) != HostBackend(threads=2)
    assert HostBackend(threads=np.int64(2)) == HostBackend(threads=2)
    graph = Whole()
    first = graph.compile(backend=HostBackend(threads=2), x=((8,), np.float32))
    assert graph.compile(backend=HostBackend(threads=2), x=((9,), np.float32)) is first
    assert graph.compile(backend="host", x=((8,), np.float32)) is graph.compile(backend=HostBackend(), x=((8,), np.float32)) is not first
    with pytest.raises(CallError, match="strict='yes'; legal: True or False"):
        HostBackend(strict="yes")
    with pytest.raises(TypeError, match="thread_count"):
        HostBackend(thread_count=2)
    with pytest.raises(UnsupportedError, match="feeds= was given, and backend host takes none"):
        graph.compile(backend="host", feeds="nonsense", x=((8,), np.float32))


def test_the_probe_says_compiler_vectors_and_threads():
    """One line for tables, such as "g++ 12.2, AVX2, 2 threads"."""
    assert HostBackend().probe().summary.endswith(("threads", "thread"))
    assert HostBackend().devices() == ("host",)


def test_rounding_to_the_storage_dtype_happens_once(one_step):
    """A bfloat16 sum is the exact sum rounded to nearest even, element by element."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-4, 4, 1000).astype(bfloat16) for _ in range(2))
    (y,) = one_step(ElementwiseAdd(size=1000))(dict(a=a, b=b))
    assert y.tobytes() == round_to(widen(a) + widen(b), bfloat16).tobytes()
