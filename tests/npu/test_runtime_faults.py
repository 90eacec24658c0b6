"""What a device can do wrong, on a simulated one: each is one clear error, nothing hangs, and what can go on goes on."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import BoundsError, CallError, OutOfMemory, UnsupportedError
from iron_npu import building
from iron_npu.backend import NpuBackend
from iron_npu.errors import (
    ArtifactError,
    ContextLost,
    ContextRefused,
    DeviceLost,
    FirmwareMismatch,
    NpuError,
    NpuMissing,
    UnwrittenOutput,
    WatchdogTimeout,
)  # fmt: skip
from iron_npu.runtime import failures
from iron_npu.runtime.loaded import Handle
from iron_ops_aie import Copy, ElementwiseAdd, ReLU, SiLU

PACKAGINGS = {"elf": {}, "chain": {"boundaries": iron.each_step}, "contexts": {"image": iron.CONTEXTS}}
LISTED = {"elf": {}, "chain": PACKAGINGS["chain"], "list": {**PACKAGINGS["chain"], "backend": NpuBackend(wait_s=2, lists=True)}}
N = 1024


class Sums(iron.Graph):
    """Keeps what it is given in a state, and adds what was there."""

    def __init__(self):
        self.kept = iron.state((4, N))

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        before = Copy(self.kept[at])
        Copy(x, self.kept[at])
        return ElementwiseAdd(ReLU(x), before)


def sums(dev="npu2", backend=None, **packaging):
    return Sums().compile(backend=backend or NpuBackend(), dev=dev, x=(N,), **packaging)


def x(value):
    return np.full(N, value, bfloat16)


def first(run, value, at=0):
    return float(run(x(value), at=at)[0])


# -- contexts ------------------------------------------------------------------------------------------


def test_contexts_are_kept_until_the_device_has_no_more(xrt):
    """Then the one used longest ago is given back, with its buffers left as they are, and made again when it is needed."""
    xrt.faults.contexts = 2
    runs = [sums() for _ in range(3)]
    for run in runs:
        first(run, 1)
    assert (xrt.made, len(xrt.alive)) == (3, 2)
    assert first(runs[1], 2) == 3 and first(runs[2], 2) == 3 and xrt.made == 3
    given = xrt.synced["TO_DEVICE"]
    assert first(runs[0], 2) == 3 and xrt.made == 4, "what its state held is there"
    assert xrt.synced["TO_DEVICE"] - given <= 2 * (2 * N) + 8, "an input and room for an output, no more than in any call"
    assert first(runs[2], 3) == 5 and xrt.made == 4
    assert first(runs[1], 3) == 5 and xrt.made == 5


def test_fewer_contexts_may_be_kept(xrt, monkeypatch):
    """As mlir-aie's own runtime is told, by the same variable."""
    monkeypatch.setenv("XRT_CONTEXT_CACHE_SIZE", "2")
    runs = [sums() for _ in range(3)]
    assert [first(run, 1) for run in runs] == [1, 1, 1] and (xrt.made, len(xrt.alive)) == (3, 2)
    assert first(runs[2], 2) == 3 and xrt.made == 3
    assert first(runs[0], 2) == 3 and (xrt.made, len(xrt.alive)) == (4, 2)


def test_npu1_gives_back_all_contexts(device):
    """One alone would take runs of the others with it."""
    xrt = device(name="NPU Phoenix")
    xrt.faults.contexts = 2
    runs = [sums("npu1") for _ in range(3)]
    for value in (1, 2):
        for at, run in enumerate(runs):
            assert first(run, value, at) == 2 * value - 1
    assert len(xrt.alive) == 2 and xrt.made == 6


@pytest.mark.parametrize("contexts", [1, 2])
def test_a_version_runs_with_fewer_contexts_than_it_has_arrays(xrt, contexts):
    """Slower, as they are made anew at every turn."""
    xrt.faults.contexts = contexts
    run = sums(**PACKAGINGS["contexts"])
    assert [first(run, value) for value in (1, 2, 3)] == [1, 3, 5]
    assert len(run.versions) == 1 and xrt.made > 3


def test_no_context_at_all_is_told(xrt):
    """What a device says, and who may have them; weights and states stay."""
    run = sums()
    first(run, 1)
    other = sums()
    xrt.faults.contexts = 0
    with pytest.raises(ContextRefused, match=r"no hardware context \(.*err=-2.*\), and this process holds none\. .*xrt-smi examine"):
        first(other, 1)
    xrt.faults.contexts = 1
    assert first(run, 2) == 3 and first(other, 1) == 1


def test_a_context_at_work_is_not_given_back(xrt):
    """A loop's, in whose middle another graph is called."""

    class Count(iron.Graph):
        def __init__(self):
            self.rows = iron.state((4, 64))

        def body(self, *, n: iron.Carried[np.int32]):
            Copy(SiLU(Copy(self.rows[n])), self.rows[n])
            return iron.carry(n=n + 1)

    xrt.faults.contexts = 1
    loop, run = Count().compile(backend=NpuBackend(), dev="npu2"), sums()
    with pytest.raises(ContextRefused, match="and all 1 of this process are at work"):
        loop.loop(4, lambda index, now: bool(first(run, 1)) and False, n=0)
    assert first(run, 1) == 1


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_a_lost_context_is_made_again(xrt, packaging):
    """What did not start changed nothing."""
    run = sums(**PACKAGINGS[packaging])
    assert first(run, 1) == 1
    made = xrt.made
    xrt.faults.lost = {xrt.starts + 1}
    assert first(run, 2) == 3 and xrt.made == made + 1


@pytest.mark.parametrize("packaging", LISTED)
def test_one_lost_twice_is_told(xrt, packaging):
    run = sums(**LISTED[packaging])
    assert first(run, 1) == 1
    xrt.faults.lost = {xrt.starts + 1, xrt.starts + 2}
    with pytest.raises(ContextLost, match=r"Sums.*its hardware context was lost \(.*err=-22.*Weights and states are kept"):
        first(run, 2)
    assert first(run, 2) == 3


# -- runs ----------------------------------------------------------------------------------------------

ENDS = {
    "TIMEOUT": (WatchdogTimeout, r"watchdog stopped it .*tdr_timeout_ms=10000` in /etc/modprobe\.d"),
    "ABORT": (FirmwareMismatch, r"aborted it .*firmware, driver and XRT are not of one release.*xrt-smi examine"),
    "ERROR": (NpuError, r"ERT_CMD_STATE_ERROR\. `dmesg \| grep amdxdna`"),
    "NORESPONSE": (NpuError, "ERT_CMD_STATE_NORESPONSE"),
    "SUBMITTED": (WatchdogTimeout, r"no answer from the NPU within 2 s \(the run is SUBMITTED\)\. Raise wait_s="),
}


@pytest.mark.parametrize("packaging", LISTED)
@pytest.mark.parametrize("state", ENDS)
def test_a_run_that_does_not_complete(xrt, packaging, state):
    """One error for each state, which names what ran; the next call is well, with what the state held."""
    run = sums(**{"backend": NpuBackend(wait_s=2), **LISTED[packaging]})
    assert first(run, 1) == 1
    xrt.faults.ends = {xrt.starts + 1: state}
    kind, says = ENDS[state]
    with pytest.raises(kind, match=("Sums: .*" if packaging == "elf" else "Sums, step copy0: .*") + says) as caught:
        first(run, 2)
    assert type(caught.value) is kind and "\n" not in str(caught.value)
    assert first(run, 3) == 4 and run.read("kept")[0, 0] == 3


@pytest.mark.parametrize("lists", [True, False])
def test_the_step_that_failed_is_named(xrt, lists):
    """The first of a list that did not end well, whatever became of those behind it."""
    run = sums(backend=NpuBackend(lists=lists), **PACKAGINGS["chain"])
    first(run, 1)
    xrt.faults.ends = {xrt.starts + 3: "TIMEOUT"}
    with pytest.raises(WatchdogTimeout, match="Sums, step relu0: "):
        first(run, 2)
    assert first(run, 3) in (4, 5), "the state was written, or not, before the step that failed"


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_an_output_that_nobody_wrote_is_told(xrt, packaging):
    """A run that ends well and did nothing; the last of a chain."""
    run = sums(**PACKAGINGS[packaging])
    first(run, 1)
    steps = 1 if packaging == "elf" else 4
    xrt.faults.idle = {xrt.starts + steps}
    with pytest.raises(UnwrittenOutput, match=r"Sums: the run ended well, and output \w+\[0\] is as nobody wrote it"):
        first(run, 2)
    assert first(run, 3) == (4 if packaging == "elf" else 5)


def test_within_bounds_alone(xrt):
    """What lies behind a call's bound is nobody's."""

    class Rows(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(x[:n])

    run = Rows().compile(backend=NpuBackend(), dev="npu2", x=(4096,))
    assert run(np.ones(1024, bfloat16), n=1024).shape == (1024,)


@pytest.mark.parametrize("packaging", LISTED)
@pytest.mark.parametrize("when", ["start", "end", "context"])
def test_a_device_that_goes_away(xrt, packaging, when):
    """Before a run, during one, or with its contexts; what comes back is opened anew."""
    run = sums(**LISTED[packaging])
    first(run, 1)
    if when == "context":
        xrt.faults.lost = {xrt.starts + 1}
        xrt.faults.refuses = 19
    elif when == "start":
        xrt.faults.gone = True
    else:
        wait, listed = xrt.run.wait, xrt.runlist.wait
        gone = OSError(19, "No such device")

        def leave(*given):
            xrt.queue.clear()
            raise gone

        xrt.run.wait = xrt.runlist.wait = leave
    try:
        with pytest.raises(DeviceLost, match=r"the NPU is gone \(.*No such device|the NPU is gone \(.*err=-19"):
            first(run, 2)
    finally:
        if when == "end":
            xrt.run.wait, xrt.runlist.wait = wait, listed
    xrt.faults.gone, xrt.faults.refuses = False, 0
    assert first(sums(), 5) == 5


@pytest.mark.parametrize("packaging", LISTED)
def test_what_a_signal_raises_comes_when_the_run_is_over(xrt, monkeypatch, packaging):
    """A run writes where the next call does."""
    run = sums(**LISTED[packaging])
    first(run, 1)
    kind = xrt.runlist if packaging == "list" else xrt.run
    wait, seen = kind.wait, []

    def interrupted(self, timeout):
        seen.append(timeout)
        if len(seen) == 1:
            raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(kind, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first(run, 2)
    assert len(seen) >= 2 and not xrt.queue
    assert first(run, 3) in (4, 5)


@pytest.mark.parametrize("packaging", ["elf", "chain"])
def test_a_call_that_is_interrupted_before_it_waits(xrt, monkeypatch, packaging):
    """The next one sees its run to the end first: a run under way takes no other arguments."""
    run = sums(**LISTED[packaging])
    first(run, 1)
    start = Handle.start

    def interrupted(self):
        start(self)
        monkeypatch.setattr(Handle, "start", start)
        raise KeyboardInterrupt

    monkeypatch.setattr(Handle, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first(run, 2)
    assert len(xrt.queue) == 1
    assert first(run, 3) in (4, 5) and not xrt.queue


def test_memory_that_there_is_not(xrt):
    """As the system says it, with the limit that it is mostly."""
    run = sums()
    xrt.faults.room = 4096
    with pytest.raises(OutOfMemory, match=r"Sums's weights and states: no memory for a buffer of 8192 bytes \(.*\)\. .*`ulimit -l`"):
        first(run, 1)
    xrt.faults.room = 1 << 20
    assert first(run, 1) == 1


def test_a_number_that_no_array_takes_never_gets_there(xrt):
    """A transfer of nothing would never end."""

    class Rows(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(x[:n])

    run = Rows().compile(backend=NpuBackend(), dev="npu2", x=(4096,))
    with pytest.raises(BoundsError, match="an array moves at least one tile"):
        run(np.ones(4096, bfloat16), n=0)
    assert not xrt.starts


# -- what is built, and what there is ------------------------------------------------------------------


def test_files_of_another_build_are_told(xrt, builder, monkeypatch):
    def damaged(change):
        def files(compiled):
            made = builder.files(compiled)
            change(made[0])
            return made

        monkeypatch.setattr(building, "files", files)
        return sums()

    swapped = damaged(lambda one: one.parameters.write_text(one.parameters.read_text().replace(" addr", " core")))
    with pytest.raises(ArtifactError, match=r"\.txt: the image's word .* is number 0, of kind addr, and the table has it as 0 core"):
        first(swapped, 1)
    none = damaged(lambda one: one.parameters.write_text("0\n"))
    with pytest.raises(ArtifactError, match="and the table has none"):
        first(none, 1)
    nonsense = damaged(lambda one: one.parameters.write_text("many\n"))
    with pytest.raises(ArtifactError, match="line 1: 'many'; legal: the number of parameters"):
        first(nonsense, 1)
    cut = damaged(lambda one: one.file.write_bytes(b"\x80"))
    with pytest.raises(ArtifactError, match=r"0\.elf: XRT does not read it"):
        first(cut, 1)


def test_compiling_touches_no_device(xrt, builder, monkeypatch):
    """Nor the tools; what it gives is data."""

    class Untouched:
        def __getattribute__(self, name):
            raise AssertionError(f"pyxrt.{name}")

    monkeypatch.setitem(sys.modules, "pyxrt", Untouched())
    for packaging in PACKAGINGS.values():
        run = sums(**packaging)
        run.explain()
        (version,) = run.versions.values()
        assert pickle.loads(pickle.dumps(version.image)).signature == version.plan.signature
    assert builder.builds == 0


def test_no_pyxrt_and_no_device(device, monkeypatch):
    """Found at the first call, where nothing was probed before."""
    device(absent=True)
    with pytest.raises(NpuMissing, match=r"XRT opens no device 0 \(No such device with index '0'\)\. `xrt-smi examine`"):
        first(sums(), 1)
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    with pytest.raises(NpuMissing, match=r"pyxrt cannot be imported: .*Install XRT with its Python module"):
        first(sums(), 1)


def test_another_device_is_told(xrt):
    with pytest.raises(UnsupportedError, match=r"dev='npu1': the device here is NPU Strix, an npu2\. Legal: dev='npu2'"):
        first(sums("npu1"), 1)


def test_options_are_checked():
    for wrong in ({"wait_s": 0}, {"wait_s": "long"}, {"depth": 0}, {"depth": 1.5}, {"lists": 1}):
        with pytest.raises(CallError, match=f"{next(iter(wrong))}="):
            NpuBackend(**wrong)
    assert NpuBackend(depth=3) == NpuBackend(depth=3) != NpuBackend()


def test_what_xrt_raises_is_an_error_of_the_npu():
    """And what is one already stays what it is, with its own words."""
    assert str(failures.raised("x", RuntimeError("odd\nmore"))) == "x: XRT said odd. `dmesg | grep amdxdna` may say more."
    own = WatchdogTimeout("y")
    assert failures.raised("x", own) is own
    assert type(failures.raised("x", RuntimeError("ioctl failed (err=-19): No such device"))) is DeviceLost
