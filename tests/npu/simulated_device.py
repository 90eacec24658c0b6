"""A device behind pyxrt's calls: what is built are designs, pickled, and running them is the simulator's array over buffer objects.

Host and device have memory apart, so what is not synced is not there. Runs begin when they are waited for, in the order started. `Faults`
says what goes wrong when.
"""

from __future__ import annotations

import ctypes
import pickle
import weakref
from collections import deque
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from iron_core.array.build import kernels_of
from iron_core.image.packaging import ELF
from iron_npu.mlir.sequence import same_words
from iron_npu.runtime.regions import WINDOW
from iron_npu.tools.request import Built, Stream
from iron_sim.control import BASE
from iron_sim.dma import HostRegion
from iron_sim.machine import Machine

State = Enum("ert_cmd_state", {f"ERT_CMD_STATE_{name}": number for number, name in enumerate(
    ("NEW", "QUEUED", "COMPLETED", "ERROR", "ABORT", "SUBMITTED", "TIMEOUT", "NORESPONSE", "SKERROR", "SKCRASHED"), 1)})  # fmt: skip
Direction = Enum("xclBOSyncDirection", ("XCL_BO_SYNC_BO_TO_DEVICE", "XCL_BO_SYNC_BO_FROM_DEVICE"))
PAGE, LINE = 4096, 64

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def state(name: str) -> State:
    return State[f"ERT_CMD_STATE_{name}"]


@attrs.define
class Faults:
    """contexts: how many there are. refuses: an errno of every context that is asked for. lost: starts, counted from 1, whose context is
    gone. ends: starts that end in a state instead of running ("SUBMITTED": never). idle: starts that end well and do nothing. gone:
    no device any more. room: bytes that buffers may have."""

    contexts: int = 16
    refuses: int = 0
    lost: set[int] = attrs.field(factory=set)
    ends: dict[int, str] = attrs.field(factory=dict)
    idle: set[int] = attrs.field(factory=set)
    gone: bool = False
    room: int = 1 << 40


class Xrt(SimpleNamespace):
    """The module: give it to `sys.modules["pyxrt"]`. What happened is in `starts`, `made` (contexts), `alive`, `synced` (bytes by
    direction) and `flying` (the most runs that were under way at once)."""

    def __init__(self, name: str = "NPU Strix", absent: bool = False) -> None:
        self.faults = Faults()
        self.starts = self.made = self.flying = self.handed = 0
        self.alive: weakref.WeakSet[HwContext] = weakref.WeakSet()
        self.synced = dict.fromkeys(("TO_DEVICE", "FROM_DEVICE"), 0)
        self.queue: deque[Run] = deque()
        self.scratchpads: weakref.WeakValueDictionary[int, Bo] = weakref.WeakValueDictionary()
        self._next = PAGE
        here = self
        self.npu1 = "Phoenix" in name
        self.says = False  # does a list say that it ended, instead of its runs?
        self.ert_cmd_state, self.xclBOSyncDirection = State, Direction
        self.xrt_info_device = SimpleNamespace(name="name")

        class device:
            def __init__(self, index: int) -> None:
                if absent or here.faults.gone:
                    raise RuntimeError("No such device with index '0'")

            def get_info(self, key: Any) -> str:
                return name

            def register_xclbin(self, xclbin: Any) -> Any:
                here.there()
                return xclbin

        self.device = device
        self.elf = self.xclbin = lambda path: pickle.loads(Path(path).read_bytes())
        self.hw_context = lambda device, file: HwContext(here, file)
        self.kernel = Kernel
        self.run = Run
        self.runlist = RunList
        self.ext = SimpleNamespace(kernel=Kernel, bo=lambda device, pointer, size: Alias(here, pointer, size))

        class bo:
            flags = SimpleNamespace(host_only="host_only", cacheable="cacheable")

            def __new__(cls, first: Any, size: int, third: Any, group: int | None = None) -> Any:
                return Part(first, size, third) if isinstance(first, Bo) else Bo(here, size)

        self.bo = bo

    def there(self) -> None:
        if self.faults.gone:
            raise RuntimeError("ioctl failed (err=-19): No such device")

    def place(self, size: int) -> int:
        at = self._next
        self._next += -(-size // PAGE) * PAGE + PAGE
        return at


# -- memory ----------------------------------------------------------------------------------------------


class Bo:
    """Bytes as the host has them, and as the device has them; neither begins as anything in particular."""

    def __init__(self, xrt: Xrt, size: int) -> None:
        xrt.there()
        xrt.faults.room -= size
        if xrt.faults.room < 0:
            raise RuntimeError("bo allocation failed (err=-12): Cannot allocate memory")
        self.xrt = xrt
        self.host, self.device = np.full(size, 0xAB, np.uint8), np.full(size, 0xCD, np.uint8)
        self._at = xrt.place(size)

    def map(self) -> memoryview:
        return memoryview(self.host)

    def size(self) -> int:
        return self.host.size

    def address(self) -> int:
        return self._at

    def sync(self, direction: Direction, size: int | None = None, offset: int = 0) -> None:
        self.xrt.there()
        size = self.host.size if size is None else size
        assert 0 < size <= self.host.size - offset
        way = direction.name.removeprefix("XCL_BO_SYNC_BO_")
        self.xrt.synced[way] += size
        # Whole cache lines go, with what the host has of the bytes beside.
        part = slice(offset // LINE * LINE, min(-(-(offset + size) // LINE) * LINE, self.host.size))
        if way == "TO_DEVICE":
            self.device[part] = self.host[part]
        else:
            self.host[part] = self.device[part]

    def write(self, offset: int, data: np.ndarray) -> None:
        """By the device."""
        self.device[offset : offset + data.size] = data


class Part(Bo):
    """A part of a whole, which is one of a device's."""

    def __init__(self, parent: Bo, size: int, offset: int) -> None:
        assert type(parent) is Bo, "a part of a part"
        assert 0 < size <= parent.size() - offset
        self.xrt, self._parent = parent.xrt, parent
        self.host, self.device = (of[offset : offset + size] for of in (parent.host, parent.device))
        self._at = parent.address() + offset


class Alias(Bo):
    """The host's memory of a scratchpad: what a device writes there is in the scratchpad, and in the host's memory when it is synced."""

    def __init__(self, xrt: Xrt, pointer: Any, size: int) -> None:
        scratchpad = xrt.scratchpads[_pointer(pointer, None)]
        assert size == scratchpad.size()
        self.xrt = xrt
        self.host, self.device = scratchpad.host, scratchpad.device
        self._at = xrt.place(size)


# -- contexts and runs -----------------------------------------------------------------------------------


class HwContext:
    """A file with the array that it configured."""

    def __init__(self, xrt: Xrt, file: Mapping[str, Any]) -> None:
        xrt.there()
        if xrt.faults.refuses:
            raise RuntimeError(f"DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-{xrt.faults.refuses}): no")
        if len(xrt.alive) >= xrt.faults.contexts:
            raise RuntimeError("DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-2): No such file or directory")
        self.xrt, self.file = xrt, file
        self.broken = False
        self.machine: tuple[str, Machine] | None = None
        xrt.made += 1
        xrt.alive.add(self)

    def __del__(self) -> None:
        if getattr(self, "xrt", None) is not None and self.xrt.npu1:
            for other in self.xrt.alive:  # runs of theirs go wrong from now on
                other.broken = True


class Kernel:
    def __init__(self, context: HwContext, name: str) -> None:
        if name not in context.file:
            raise RuntimeError(f"no such kernel {name}, there are {', '.join(context.file)}")
        self.context, self.name, self.program = context, name, context.file[name]

    def group_id(self, index: int) -> int:
        return index


class Run:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.context, self.xrt = kernel, kernel.context, kernel.context.xrt
        self.arguments: dict[int, Any] = {}
        self.now = state("NEW")
        self.listed = False
        self._scratchpad: Bo | None = None

    def get_ctrl_scratchpad_bo(self) -> Bo:
        if self._scratchpad is None:
            self._scratchpad = Bo(self.xrt, 4 * self.kernel.program.scratchpad)
            self.xrt.scratchpads[self._scratchpad.host.ctypes.data] = self._scratchpad
        return self._scratchpad

    def set_arg(self, index: int, value: Any) -> None:
        assert self.now not in (state("QUEUED"), state("SUBMITTED")), "an argument of a run that is under way"
        assert isinstance(value, Bo) or -(1 << 31) <= value < 1 << 31
        self.arguments[index] = value

    def start(self) -> None:
        assert not self.listed, "a run of a list is not started by itself"
        self.submit()

    def submit(self) -> None:
        xrt = self.xrt
        xrt.there()
        assert self.now not in (state("QUEUED"), state("SUBMITTED")), "it is under way"
        xrt.starts += 1
        self.number = xrt.starts
        if self.number in xrt.faults.lost or self.context.broken:
            self.context.broken = True
            raise RuntimeError("DRM_IOCTL_AMDXDNA_EXEC_CMD IOCTL failed (err=-22): Invalid argument")
        self.now = state("QUEUED")
        xrt.queue.append(self)
        xrt.flying = max(xrt.flying, len(xrt.queue))

    def state(self) -> State:
        return self.now

    def wait(self, timeout_ms: int) -> State:
        assert timeout_ms > 0, "a wait of 0 is for ever"
        self.xrt.there()
        while self.now == state("QUEUED"):
            self.xrt.queue.popleft().execute()
        return state("TIMEOUT") if self.now == state("SUBMITTED") else self.now

    def execute(self) -> None:
        faults = self.xrt.faults
        self.now = state(faults.ends.get(self.number, "COMPLETED"))
        if self.number not in faults.ends and self.number not in faults.idle:
            self.kernel.program.execute(self)


class RunList:
    def __init__(self, context: HwContext) -> None:
        self.context, self.runs = context, []

    def add(self, run: Run) -> None:
        assert run.context is self.context
        assert len(self.runs) < 24
        run.listed = True
        self.runs.append(run)

    def execute(self) -> None:
        self.context.xrt.handed += 1
        for run in self.runs:
            run.submit()

    def wait(self, timeout: Any) -> None:
        assert timeout.total_seconds() > 0
        failed = None
        for run in self.runs:
            if failed is None and run.wait(1) != state("COMPLETED"):
                failed = run
            elif failed is not None:
                run.now = state("ABORT")
                if run in run.xrt.queue:
                    run.xrt.queue.remove(run)
        if failed is not None:
            raise RuntimeError("runlist failed execution")
        if self.context.xrt.says:
            for run in self.runs:
                run.now = state("NEW")  # the command that they were together ended well
        else:
            raise TypeError("Unable to convert function return value to a Python type!")  # as a binding of XRT's does


# -- what is built ---------------------------------------------------------------------------------------


@attrs.frozen
class ElfProgram:
    """A version in an ELF: what it runs, where buffers are, and which number of the scratchpad each of its words is."""

    array: Any
    addresses: Any
    places: tuple[int, ...]
    scratchpad: int

    def execute(self, run: Run) -> None:
        array = self.array
        words = []
        for place, word in zip(self.places, array.parameters, strict=True):
            kept = int(run.get_ctrl_scratchpad_bo().device.view(np.int32)[place])
            words.append(kept >> word.shift)
        numbers = {use: words[n] for n, word in enumerate(array.parameters) for use in word.uses}
        for entry in array.entries:
            first = array.steps[entry[0]]
            machine = Machine(first.design.array, kernels_of(first.configured, array.dev), first.placement)
            for index in entry:
                step = array.steps[index]
                regions = {name: self._region(run, name, ref) for name, ref in step.operands.items()}
                given = {word.name: numbers[index, word.name] for word in step.design.sequence.words}
                machine.run(step.design.sequence, regions, given)

    def _region(self, run: Run, name: str, ref: Any) -> HostRegion:
        at = self.addresses.find(ref.space, ref.index, ref.offset)
        bo = run.arguments[at.argument]
        part = bo.device[at.offset : at.offset + ref.nbytes]
        return HostRegion(name, part.view(ref.format.streamed), None, bo.address() + at.offset + WINDOW - BASE)


@attrs.frozen
class XclbinProgram:
    """A kernel of an xclbin: the array that it configures. Its runs are given streams, see `Stream`."""

    array: Any
    configured: Any
    placement: Any
    dev: str

    def execute(self, run: Run) -> None:
        opcode, instructions, nbytes, *buffers = (run.arguments[i] for i in range(len(run.arguments)))
        assert opcode == 3
        sequence, scalars = pickle.loads(instructions.device[:nbytes].tobytes())
        name = run.kernel.name
        if run.context.machine is None or run.context.machine[0] != name:
            run.context.machine = name, Machine(self.array, kernels_of(self.configured, self.dev), self.placement)
        first = [word for word, same in same_words(sequence).items() if word == same]
        held = {word: int(number) for word, number in zip(first, scalars, strict=True)}
        numbers = {word.name: held[same] for word, same in same_words(sequence).items()}
        regions = {}
        for argument, bo in zip(sequence.arguments, buffers, strict=True):
            kind = np.dtype("uint32") if argument.control is not None else _dtype(argument)
            regions[argument.operand] = HostRegion(argument.operand, bo.device.view(kind), None, bo.address() + WINDOW - BASE)
        run.context.machine[1].run(sequence, regions, numbers)


def _dtype(argument: Any) -> np.dtype:
    from iron_core.declare.formats import as_format

    return as_format(argument.dtype_name).dtype


def stream(file: Stream, scalars: tuple[int, ...]) -> bytes:
    """A dynamic stream's file is a sequence."""
    content = pickle.dumps((pickle.loads(file.path.read_bytes()), scalars))
    return content + bytes(-len(content) % 4)


class Builder:
    """What takes the place of the tools: every binary of an image as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builds = 0

    def files(self, compiled: Any) -> list[Built]:
        self.builds += 1
        folder = self.folder / str(self.builds)
        folder.mkdir()
        image = compiled.image
        make = self._elf if image.kind == ELF else self._xclbin
        return [make(compiled, number, folder) for number in range(len(image.binaries))]

    def _elf(self, compiled: Any, number: int, folder: Path) -> Built:
        image = compiled.image
        programs, words = {}, ()
        for version, array in zip(image.versions, compiled.arrays, strict=True):
            (dispatch,) = version.dispatches
            if dispatch.binary == number:
                words = version.words
                known = {(word.kind, word.form.key): at for at, word in enumerate(words)}
                places = tuple(known[word.kind, word.form.key] for word in array.parameters)
                name = image.binaries[number].kernels[dispatch.kernel].name
                programs[name] = ElfProgram(array, version.addresses, places, 32)
        path, table = folder / f"{number}.elf", folder / f"{number}.txt"
        path.write_bytes(pickle.dumps(programs))
        lines = [f"{w.symbol} {at} i32 {'core' if w.shift else 'addr'}" for at, w in enumerate(words)]
        table.write_text("\n".join([str(len(lines)), *lines]) + "\n")
        return Built(folder, path, parameters=table if words else None)

    def _xclbin(self, compiled: Any, number: int, folder: Path) -> Built:
        image = compiled.image
        programs, streams = {}, {}
        for version, array in zip(image.versions, compiled.arrays, strict=True):
            for dispatch, step in zip(version.dispatches, array.steps, strict=True):
                if dispatch.binary != number:
                    continue
                kernel = image.binaries[number].kernels[dispatch.kernel]
                programs[kernel.name] = XclbinProgram(step.design.array, step.configured, step.placement, array.dev)
                sequence = step.design.sequence
                path = folder / f"{number}-{dispatch.kernel}-{dispatch.sequence}"
                content = pickle.dumps(sequence if dispatch.words else (sequence, ()))
                path.write_bytes(content + bytes(-len(content) % 4))
                streams[path] = Stream(dispatch.kernel, dispatch.sequence, path, bool(dispatch.words))
        path = folder / f"{number}.xclbin"
        path.write_bytes(pickle.dumps(programs))
        return Built(folder, path, tuple(streams.values()))


