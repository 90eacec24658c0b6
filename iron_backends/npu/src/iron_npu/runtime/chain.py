"""`ChainExecutable`: a version whose steps are dispatches, in a chain of xclbins or in a context for each array."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from iron_core.backends.array_profile import TimedStep
from iron_core.errors import IronError
from iron_npu.image.image import Dispatch
from iron_npu.runtime import failures
from iron_npu.runtime.buffers import SharedBuffer
from iron_npu.runtime.device import SLICE_MS
from iron_npu.runtime.executable import NpuExecutable, control_words
from iron_npu.runtime.loaded import Handle, LoadedXclbin
from iron_npu.runtime.loaded_image import LoadedImage
from iron_npu.runtime.pyxrt import UNDER_WAY, Bo, name

#: What says that an xclbin's kernel is given a stream of transactions.
OPCODE = 3
#: Runs that XRT hands over as one command.
TOGETHER = 24


@attrs.define(eq=False)
class _Stream:
    """A dispatch's instructions on the device, and the scalars that they are for."""

    bo: Bo
    nbytes: int
    scalars: tuple[int, ...]


class ChainExecutable(NpuExecutable):
    """Dispatches follow one another; with `Running.lists` those of one context, with nothing for the host to do in between, as a list."""

    def _use(self, image: LoadedImage) -> None:
        super()._use(image)
        self._streams: dict[str, _Stream] = {}
        self._controls: dict[tuple[str, int], SharedBuffer] = {}

    def _run(self, values: Mapping[str, int], words: Sequence[int]) -> None:
        for group in self._groups():
            xclbin = self.image.xclbin(group[0].binary)
            if len(group) == 1:
                self._alone(xclbin, group[0], words)
            else:
                self._together(xclbin, group, words)

    def _groups(self) -> Iterator[list[Dispatch]]:
        """Dispatches that go together."""
        group: list[Dispatch] = []
        each = not self.how.lists or self.recording is not None  # of a list nobody knows what its parts take
        for dispatch in self.version.dispatches:
            apart = each or dispatch.control or (group and dispatch.binary != group[0].binary) or len(group) == TOGETHER
            if group and apart:
                yield group
                group = []
            group.append(dispatch)
            if dispatch.control:
                yield group
                group = []
        if group:
            yield group

    def _alone(self, xclbin: LoadedXclbin, dispatch: Dispatch, words: Sequence[int]) -> None:
        what = f"{self.name}, step {dispatch.step}"
        begin = time.perf_counter()
        made = control_words(self.regions, dispatch)

        def start() -> Handle:
            handle = self._handle(xclbin, dispatch, "alone")
            if handle.flying:  # what interrupted the call that started it came before its wait
                self._finish_alone(xclbin, handle, what)
            self._bind(xclbin, handle, dispatch, words, made)
            handle.start()
            return handle

        handle = self.npu.submit(xclbin, what, start)
        try:
            self._finish_alone(xclbin, handle, what)
            if self.recording is not None:
                self._timed.append(self._step_timed(dispatch, begin))
        finally:
            self._ran(xclbin, [dispatch])

    def _finish_alone(self, xclbin: LoadedXclbin, handle: Handle, what: str) -> None:
        try:
            self.npu.finish(xclbin, handle.run, what, self.how.wait_s)
        finally:
            handle.landed()

    def _step_timed(self, dispatch: Dispatch, begin: float) -> TimedStep:
        step = self.array.steps[self.version.dispatches.index(dispatch)]
        resident = sum(ref.nbytes for ref in step.operands.values() if ref.space == "resident")
        return TimedStep(step, begin, time.perf_counter(), sum(ref.nbytes for ref in step.operands.values()), resident)

    def _together(self, xclbin: LoadedXclbin, group: list[Dispatch], words: Sequence[int]) -> None:
        what = f"{self.name}, steps {group[0].step} to {group[-1].step}"
        key = self.version.name, group[0].step

        def start() -> list[Handle]:
            handles = [self._handle(xclbin, dispatch, "listed") for dispatch in group]
            changed = [self._bind(xclbin, handle, dispatch, words, {}) for handle, dispatch in zip(handles, group, strict=True)]
            xclbin.runlist(key, handles, any(changed)).execute()
            return handles

        handles = self.npu.submit(xclbin, what, start)
        try:
            self._finish(xclbin, key, handles, group)
        except IronError:
            raise
        except BaseException:  # a signal's, which is raised when the runs are over
            self._finish(xclbin, key, handles, group)
            raise
        finally:
            self._ran(xclbin, group)

    def _finish(self, xclbin: LoadedXclbin, key: tuple[str, str], handles: list[Handle], group: list[Dispatch]) -> None:
        """Wait for a list. The first run that did not complete tells what is wrong: its step is named."""
        said: Exception | None = None
        left, done = max(self.how.wait_s * 1000, 1.0), False
        while True:
            piece, begin = min(SLICE_MS, left), time.monotonic()
            try:
                xclbin.runlist(key, handles, False).wait(datetime.timedelta(milliseconds=piece))
                done = True
            except TypeError:  # of a binding that cannot say how the wait ended: states do
                waited = (time.monotonic() - begin) * 1000
                piece = max(waited, 1.0)
                time.sleep(0.001 if waited < 1 else 0)
            except Exception as error:  # of a run that failed, whose state says so too
                said = error.with_traceback(None)  # which would hold this frame, and so the runs
            states = [name(handle.run.state()) for handle in handles]
            left -= piece
            if done or left <= 0 or not UNDER_WAY.intersection(states) or (said is not None and failures.gone(said)):
                break
        if done and UNDER_WAY.issuperset(set(states) - {"COMPLETED"}):
            return  # the list says that it ended well, whatever its runs' own states were left as
        for state, dispatch in zip(states, group, strict=True):
            if state != "COMPLETED":
                raise self.npu.failed(xclbin, f"{self.name}, step {dispatch.step}", state, self.how.wait_s, said)

    # -- one dispatch --------------------------------------------------------------------------------

    def _handle(self, xclbin: LoadedXclbin, dispatch: Dispatch, how: str) -> Handle:
        return xclbin.handle((how, self.version.name, dispatch.step), self.image.kernel(dispatch))

    def _bind(
        self, xclbin: LoadedXclbin, handle: Handle, dispatch: Dispatch, words: Sequence[int], made: Mapping[int, np.ndarray]
    ) -> bool:
        """Its stream, and its buffers as parts of regions. Did something change?"""
        stream = self._stream(xclbin, dispatch, tuple(words[n] for n in dispatch.words))
        buffers = self.regions.buffers()
        arguments: list[Bo | int] = [OPCODE, stream.bo, stream.nbytes]
        for position, place in enumerate(dispatch.buffers):
            if position in made:
                control = self._control(dispatch, position, made[position].nbytes)
                control.put(0, made[position].view(np.uint8))
                control.flush()
                arguments.append(control.bo)
                continue
            buffer = buffers[place.region]
            buffer.flush()
            arguments.append(buffer.part(place.offset, place.nbytes))
        return handle.bind(arguments)

    def _control(self, dispatch: Dispatch, position: int, nbytes: int) -> SharedBuffer:
        key = (dispatch.step, position)
        if key not in self._controls:
            self._controls[key] = SharedBuffer(self.npu, nbytes, f"{self.name}: control words of {dispatch.step}")
        return self._controls[key]

    def _stream(self, xclbin: LoadedXclbin, dispatch: Dispatch, scalars: tuple[int, ...]) -> _Stream:
        """In a buffer of the kernel's own group, made anew for other scalars. It outlives the context."""
        held = self._streams.get(dispatch.step)
        if held is None or held.scalars != scalars:
            content = self.image.stream(dispatch, scalars)
            if held is None or held.bo.size() < len(content):
                xrt = self.npu.xrt
                group = xclbin.kernel(self.image.kernel(dispatch)).group_id(1)
                bo = xrt.bo(self.npu.device, len(content), xrt.bo.flags.cacheable, group)
            else:
                bo = held.bo
            np.frombuffer(bo.map(), np.uint8)[: len(content)] = np.frombuffer(content, np.uint8)
            bo.sync(self.npu.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, len(content), 0)
            self._streams[dispatch.step] = held = _Stream(bo, len(content), scalars)
        return held

    def _ran(self, xclbin: LoadedXclbin, group: Sequence[Dispatch]) -> None:
        buffers = self.regions.buffers()
        for dispatch in group:
            kernel = self.image.kernel(dispatch)
            if kernel != xclbin.entered:
                xclbin.entered = kernel
                self.memory.traffic.loads += 1
            for place in dispatch.buffers:
                buffers[place.region].ran()
