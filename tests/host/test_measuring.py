"""Timing run lists on this machine: what is timed, in which order, and what of it can be trusted. No test knows how long anything takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iron_core import OperatorImage
from iron_core.backends import measuring as measuring_core
from iron_core.backends.measuring import Keeping, Measuring, Run, RunList, Timing, drawn, measuring
from iron_core.declare.formats import as_format
from iron_core.devices import device
from iron_core.errors import BoundsError, CallError
from iron_host import measure as measuring_host
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, RMSNorm, RoPE, Sample

HOST = device("host")
PRODUCT = GEMV(M=96, K=64, W=as_format("q4_1"), activations="int8_block")


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    """One copy of a list, but where a test says otherwise: how many there are changes no result."""
    monkeypatch.setattr(measuring_host, "COLD", 1)


def measured(*lists, backend=None, **timing):
    return measuring(backend or HostBackend(threads=2)).measure(lists, HOST, Timing(**{"rounds": 2, "calls": 2, "retries": 0} | timing))


def test_the_host_measures_and_keeps():
    """A tuner finds it by the protocols, and its platform is the processor, what its kernels are compiled for, and the threads."""
    backend = HostBackend(threads=2)
    assert isinstance(backend, Measuring) and isinstance(backend, Keeping)
    assert backend.platform(HOST).name.endswith("2 threads")
    assert backend.platform(HOST) != HostBackend(threads=1).platform(HOST)


def test_the_platform_names_the_flags_that_kernels_have(monkeypatch):
    """Figures of AVX-512 and of portable kernels are never put together."""
    plain = HostBackend().platform(HOST)
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "-march=x86-64")
    assert HostBackend().platform(HOST) != plain


def test_what_is_written_is_what_a_call_writes():
    """By (run, operand), cut to the run's numbers: the bits an image of that operator makes of the same inputs."""
    x = np.linspace(-1, 1, 64).astype(PRODUCT.format("B").dtype)
    weights = PRODUCT.test.draw(PRODUCT, np.random.default_rng(5))["A"]
    runs = RunList(
        "two", (Run(PRODUCT, members={"valid": 33}), Run(ElementwiseAdd(size=50))), seed=3, inputs={(0, "B"): x, (0, "A"): weights}
    )
    (found,) = measured(runs)
    whole = OperatorImage(PRODUCT, backend="host")(weights, x)
    assert set(found.outputs) == {(0, "C"), (1, "y")}
    np.testing.assert_array_equal(found.outputs[0, "C"], np.asarray(whole)[:33])
    (again,) = measured(runs)
    assert found.digest() == again.digest() != measured(RunList("two", runs.runs, seed=4))[0].digest()


def test_every_run_has_buffers_of_its_own():
    """The same operator twice draws two inputs; operands that are written in place start anew."""
    (found,) = measured(RunList("twice", (Run(ElementwiseAdd(size=40)), Run(ElementwiseAdd(size=40)))))
    assert (found.outputs[0, "y"] != found.outputs[1, "y"]).any()


def test_weights_are_read_from_memory(monkeypatch):
    """A list has copies until its weights and caches are more than a processor keeps; activations are no such thing."""
    found = []
    compiled = HostBackend.compiled
    monkeypatch.setattr(HostBackend, "compiled", lambda *a, **k: found.append(compiled(*a, **k)) or found[-1])
    one = measured(RunList("a", (Run(PRODUCT), Run(ElementwiseAdd(size=50)))))
    weights = measuring_host.kept_bytes(PRODUCT)
    assert weights == PRODUCT.format("A").nbytes((96, 64)) and measuring_host.kept_bytes(ElementwiseAdd(size=50)) == 0
    monkeypatch.setattr(measuring_host, "COLD", 2 * weights + 1)
    three = measured(RunList("a", (Run(PRODUCT), Run(ElementwiseAdd(size=50)))))
    assert len(found[1].steps) == 3 * len(found[0].steps) and len(found[1].tiles) == 3
    assert one[0].digest() == three[0].digest()


@pytest.mark.parametrize(
    ("op", "members", "error", "words"),
    [
        (ElementwiseAdd(size=4), {"cols": 2}, CallError, r"ElementwiseAdd has no per-call member cols\. Its members: valid\."),
        (ElementwiseAdd(size=4), {"valid": 5}, BoundsError, r"valid is 5 .*legal: 0 to 4"),
        (ElementwiseAdd(size=4), {"valid": -1}, BoundsError, r"valid is -1 .*legal: 0 to 4"),
        (ElementwiseAdd(size=4), {"valid": 2**40}, CallError, "does not fit int32"),
        (ElementwiseAdd(size=4), {"valid": 1.5}, CallError, "is a whole number"),
        (Copy(input_size=4096), {"in_offset": 100_000_000}, BoundsError, "in_offset is 100000000 .*legal: 0 to 0"),
        (Copy(input_size=4096), {"out_offset": -1}, BoundsError, "out_offset is -1"),
        (Sample(vocab=8), {"at": 9_000_000}, BoundsError, "at is 9000000"),
    ],
)
def test_a_number_that_no_call_may_give_is_refused(op, members, error, words):
    """Before anything is compiled: a kernel would read beyond its operand."""
    with pytest.raises(error, match=words):
        Run(op, members)


def test_a_runs_tunables_are_its_lowerings(monkeypatch):
    """Given over everything else; one that the lowering does not have is refused."""
    found = []
    compiled = HostBackend.compiled
    monkeypatch.setattr(HostBackend, "compiled", lambda *a, **k: found.append(compiled(*a, **k)) or found[-1])
    op = RMSNorm(rows=64, cols=512)
    measured(RunList("a", (Run(op),)), RunList("b", (Run(op, tunables={"grain": 1 << 30}),)))
    assert [image.steps[0].threads for image in found] == [4, 1]
    with pytest.raises(CallError, match=r"sets tile, which this lowering does not have"):
        measured(RunList("c", (Run(op, tunables={"tile": 3}),)))


def test_numbers_that_one_value_gives_follow_one_another(capfd):
    """Rows that are so many times those of their angles: measured by the kernel that a graph's step has, not by the reference."""
    op = RoPE(rows=36, cols=64, angle_rows=4)
    (found,) = measured(RunList("turned", (Run(op, members={"valid": 27, "angles_valid": 3}),)))
    assert found.outputs[0, "y"].shape == (27, 64) and "reference" not in capfd.readouterr().err


@pytest.mark.parametrize("turn, times", [(1e9, 7), (0.0, 3)])
def test_a_turn_of_slow_calls_has_fewer(monkeypatch, turn, times):
    """As many calls as were asked for, of no more than fit into a turn, but three."""
    monkeypatch.setattr(measuring_host, "TURN", turn)
    loaded = measuring_host.Loaded(HostBackend(threads=1), RunList("add", (Run(ElementwiseAdd(size=64)),)))
    looped, loop = [], loaded._executable.loop
    monkeypatch.setattr(loaded._executable, "loop", lambda n, *rest: looped.append(n) or loop(n, *rest))
    assert loaded.median_us(7) > 0 and loaded.median_us(7) > 0
    assert looped == [1, times, times]


def test_settings_of_an_operator_have_inputs_that_are_drawn_once(monkeypatch):
    """Those of every run of a list, up to so many bytes; those of the first run in any case; another first run's put them aside."""
    op, seen = ElementwiseAdd(size=64), []
    draw = type(op.test).draw
    monkeypatch.setattr(type(op.test), "draw", lambda self, op, rng: seen.append(op.size) or draw(self, op, rng))
    two, other = RunList("two", (Run(op), Run(op)), seed=11), RunList("other", (Run(ElementwiseAdd(size=32)),), seed=11)

    def inputs(runs, index):
        return {name: np.array(tensor) for name, tensor in drawn(runs, index).items()}

    first = [inputs(two, index) for index in (0, 1, 0, 1)]
    assert seen == [64, 64] and (first[0]["a"] != first[1]["a"]).any()
    np.testing.assert_equal(first[:2], first[2:])
    monkeypatch.setattr(measuring_core, "KEPT", 0)
    inputs(other, 0), inputs(two, 0), inputs(two, 1), inputs(two, 1), inputs(two, 0)
    assert seen == [64, 64, 32, 64, 64, 64]


def fake(times, busy=()):
    """Loaded run lists that take these microseconds, and others' CPU seconds at each look at the machine."""
    turns, woken = [], fake.woken

    class Loaded:
        def __init__(self, backend, runs):
            self.name, self.left = runs.name, iter(times[runs.name])

        def outputs(self):
            return {}

        def wake(self):
            woken.append(self.name)

        def median_us(self, calls):
            turns.append(self.name)
            return next(self.left)

    woken.clear()
    seen = iter(busy)
    return Loaded, (lambda: next(seen, 0.0)), turns


#: Lists that were called to wake CPUs, in order.
fake.woken = []


@pytest.fixture
def faked(monkeypatch):
    def install(times, busy=()):
        loaded, seconds, turns = fake(times, busy)
        monkeypatch.setattr(measuring_host, "Loaded", loaded)
        monkeypatch.setattr(measuring_host, "busy_seconds", seconds)
        return turns

    return install


def test_every_list_has_its_turn_in_every_round(faked):
    """Another one is first each time, and one far behind the fastest is timed no further."""
    turns = faked({"a": [10, 11, 12, 13], "b": [14, 14, 14, 14], "c": [90, 90, 90, 90]})
    lists = [RunList(name, ()) for name in "abc"]
    a, b, c = measured(*lists, rounds=4, settle=2, cutoff=1.5)
    assert "".join(turns) == "abc" + "bca" + "ab" + "ba"
    assert (a.round_us, b.round_us, c.round_us) == ((10, 11, 12, 13), (14,) * 4, (90, 90))
    assert not a.disturbed and a.us == 11.5
    faked({"a": [10] * 4, "b": [90] * 4})
    assert len(measured(*lists[:2], rounds=4, cutoff=math.inf)[1].round_us) == 4


def test_cpus_are_awake_before_a_round(faked):
    """The first of every round is called once untimed: a CPU that comes out of its sleep would be slow for whoever is first."""
    faked({"a": [10] * 3, "b": [14] * 3})
    measured(RunList("a", ()), RunList("b", ()), rounds=3)
    assert fake.woken == ["a", "b", "a"]


def test_a_disturbed_round_is_taken_again(faked):
    """What the machine's CPUs did beside this process says which; only one that stays so to the last try is reported, and ends it."""
    faked({"a": [99, 10, 11]}, busy=[0, 50, 50, 50, 50, 50])
    (found,) = measured(RunList("a", ()), rounds=2, retries=3)
    assert (found.round_us, found.disturbed) == ((10, 11), "")
    faked({"a": [99, 98, 11]}, busy=[0, 50, 50, 100, 100, 100])
    (found,) = measured(RunList("a", ()), rounds=2, retries=1)
    assert found.round_us == (98,)
    assert found.disturbed.startswith("others used ") and found.disturbed.endswith("in round 1 of 2, which was taken 2 times")


def test_lists_of_one_run_are_timed_together(monkeypatch):
    """What reads its weights from memory takes as long in a list of one as in a list of three; others have turns of their own."""
    loads = []

    class Loaded:
        def __init__(self, backend, runs):
            loads.append(runs.name)
            self.runs = runs

        def outputs(self):
            return {(index, "C"): np.full(2, index) for index in range(len(self.runs.runs))}

        def wake(self):
            pass

        def median_us(self, calls):
            return 30.0

    monkeypatch.setattr(measuring_host, "Loaded", Loaded)
    monkeypatch.setattr(measuring_host, "busy_seconds", lambda: 0.0)
    run, other = Run(PRODUCT), Run(PRODUCT, tunables={"parts": 2})
    small = Run(RMSNorm(rows=1, cols=64))
    lists = [RunList("one", (run,)), RunList("three", (run,) * 3, compared=False), RunList("else", (other,)), RunList("both", (run, other))]
    lists += [RunList("small", (small,)), RunList("smalls", (small,) * 3)]
    one, three, *_ = measured(*lists)
    assert loads == ["three", "else", "both", "small", "smalls"]
    assert (one.round_us, three.round_us) == ((10.0, 10.0), (30.0, 30.0))
    assert set(one.outputs) == {(0, "C")} and not three.outputs
