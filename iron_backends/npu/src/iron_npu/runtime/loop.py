"""`ElfLoop`: a version that makes its own next call, looped on the device: each run leaves the next one its words."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from iron_core.backends.loop import after_steps, check_carried, loop_by_calls
from iron_core.declare.affine import Affine, evaluate
from iron_core.devices import WORD
from iron_core.errors import IronError
from iron_core.image.plan import BufferRef, CarryTerm
from iron_npu.runtime.executable import ElfExecutable
from iron_npu.runtime.loaded import Handle
from iron_npu.runtime.loaded_image import LoadedImage
from iron_npu.runtime.pyxrt import Bo
from iron_npu.runtime.words import numbers


class ElfLoop(ElfExecutable):
    """Its last step is `Emit`. Runs take turns; what one drains as its feedback is the scratchpad of the next. Run 0 is for calls.

    Where somebody is told of every step, memory has to be at rest between two of them: one run is under way at a time. Where nobody
    is, and every check is of values that the host knows ahead, up to `Running.depth` are.
    """

    def loop(
        self,
        steps: int,
        outputs: Sequence[np.ndarray],
        values: Mapping[str, int],
        on_step: Callable[[int, dict[str, int]], bool] | None = None,
    ) -> dict[str, int]:
        """See `Looping.loop`."""
        with self.npu.turn:
            self._refresh()
            elf = self.elf
            elf.busy += 1  # its scratchpads hold what no other place does
        try:
            quiet = on_step is None or getattr(on_step, "quiet", False)
            if quiet and self.recording is None and self.how.depth > 1 and self._foreseen() is not None:
                with self.npu.turn:
                    return self._ahead(steps, outputs, values)
            return self._in_turn(steps, outputs, values, on_step)
        finally:
            elf.busy -= 1

    # -- one by one ----------------------------------------------------------------------------------

    def _in_turn(
        self, steps: int, outputs: Sequence[np.ndarray], values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None
    ) -> dict[str, int]:
        turn = 0
        fed: tuple[LoadedImage, int, np.ndarray] | None = None  # what left them, in which context, and as the host sees them

        def call(now: dict[str, int]) -> dict[str, int]:
            with self.npu.turn:  # between two steps others may have theirs
                return step(now)

        def step(now: dict[str, int]) -> dict[str, int]:
            nonlocal turn, fed
            there = fed is not None and fed[0] is self.image  # a version may have been loaded since
            words = fed[2] if fed is not None and there else self._first(now)
            begin = time.perf_counter()
            self._give([], outputs)
            self._start_from(now)  # what was called between two steps may have left other values
            number, following = self._numbers(turn)
            handle = self._start(number, words, partial(self._alias, following), fed[1] if fed is not None and there else None)
            self._ended(handle)
            turn += 1
            fed = self.image, self.elf.loads, self._handle(following).scratchpad(len(self.version.words)).read()
            self.regions.take(outputs, now)
            self._noted(begin, now)
            left = self._left()
            terms = self.array.version.carry
            return {t.name: left[t.name] if isinstance(t.source, BufferRef) else evaluate(t.source, now) for t in terms}

        return loop_by_calls(call, self.array.version, steps, values, on_step)

    def _first(self, values: Mapping[str, int]) -> np.ndarray:
        """The words that the host makes: of the first step."""
        self._forms(values)
        return numbers(self.version.table, self._names, values)

    # -- several at once -----------------------------------------------------------------------------

    def _ahead(self, steps: int, outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> dict[str, int]:
        """Without a look between two steps."""
        foreseen = self._foreseen()
        assert foreseen is not None
        version = self.array.version
        now, made, started = dict(values), 0, 0
        refused: IronError | None = None  # what the next step may not begin on
        flying: deque[Handle] = deque()
        try:
            self._give([], outputs)
            self._start_from(values)
            words: np.ndarray | None = self._first(values)
            while flying or (started < steps and refused is None):
                while started < steps and refused is None and len(flying) < self.how.depth:
                    if started:
                        carried = {term.name: evaluate(term.source, now) for term in foreseen}  # type: ignore[arg-type]
                        try:
                            check_carried(version.values, carried)
                            for check in version.checks:
                                check.verify({**now, **carried})
                        except IronError as error:
                            refused = error
                            break
                        now.update(carried)
                    number, following = self._numbers(started)
                    flying.append(self._start(number, words, partial(self._alias, following), tries=1 if started else 2))
                    words, started = None, started + 1
                self._ended(flying.popleft())
                made += 1
            if refused is not None:
                raise refused
            self.regions.take(outputs, now)
        except BaseException as error:
            for handle in flying:
                self._wait_out(handle)
            after_steps(error, made, steps)
            raise
        left = self._left()
        return {t.name: left[t.name] if isinstance(t.source, BufferRef) else evaluate(t.source, now) for t in self.array.version.carry}

    def _wait_out(self, handle: Handle) -> None:
        """See a run to its end, whatever that is: it writes where the next call does."""
        try:
            self._ended(handle)
        except IronError:
            pass  # what ended the loop is told

    def _foreseen(self) -> list[CarryTerm] | None:
        """The carried values that the host knows ahead; None where one of them, or a check, follows a number that only the device has."""
        version = self.array.version
        known = [term for term in version.carry if not isinstance(term.source, BufferRef)]
        names = {term.name for term in known}
        sources = [term.source for term in known] + [check.expression for check in version.checks]
        follow = {source.value for source in sources if isinstance(source, Affine)}
        return known if follow <= names else None

    # -- what runs leave -----------------------------------------------------------------------------

    def _numbers(self, turn: int) -> tuple[int, int]:
        """Of the run of a step, and of the one that it feeds."""
        several = max(self.how.depth, 2)
        return 1 + turn % several, 1 + (turn + 1) % several

    def _alias(self, number: int) -> Bo:
        return self._handle(number).scratchpad(len(self.version.words)).alias()

    def _left(self) -> dict[str, int]:
        """The carried values that the last step left, as their dtypes have them."""
        kinds = {value.name: value.dtype for value in self.array.version.values}
        names = [term.name for term in self.array.version.carry]
        buffer, offset = self.regions.buffer(self.planes)
        plane = buffer.get(offset, WORD * len(names))
        return {name: int(plane.view(kinds[name])[at]) for at, name in enumerate(names)}
