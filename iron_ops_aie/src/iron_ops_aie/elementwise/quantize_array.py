"""The array of `Quantize`: elementwise where the scale is given; else one core that sees x twice, for its largest and for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Buffer, ObjectFifo, Pattern, Worker, range_, require
from iron_core.array.derive import derive
from iron_ops_aie.elementwise import kernels_quantize as kernels


class QuantizeArray:
    """How a `Quantize` is computed on an array."""

    def kernel(self: Any) -> Any:
        """The `Kernel` of one line whose factor is a word."""
        return kernels.by_word(self.tile_size)

    def words(self: Any) -> tuple[Any, ...]:
        return (self.factor_bits,)

    def _widest(self: Any, dev: Any, channels: int) -> int:
        return 1 if self.measured else int(super()._widest(dev, channels))  # type: ignore[misc]

    def compatible(self: Any, dev: Any) -> None:
        lanes = self.num_aie_columns * self.num_channels
        require(
            not self.measured or lanes == 1,
            f"Quantize: num_aie_columns={self.num_aie_columns} with num_channels={self.num_channels}; the core that finds the scale sees "
            "all of x. Legal: num_aie_columns=1 with num_channels=1; or give scale=.",
        )
        super().compatible(dev)  # type: ignore[misc]

    def array(self: Any, target: Any) -> None:
        if not self.measured:
            super().array(target)  # type: ignore[misc]
            return
        clear, largest, settle, line = kernels.clear(), kernels.largest(self.tile_size), kernels.settle(), kernels.by_state(self.tile_size)

        def core(x: Any, y: Any, found: Any, state: Any, lines: Any) -> None:
            clear(state)
            for _ in range_(lines):
                largest(x.acquire(), state)
                x.release()
            settle(state, found.acquire())
            found.release()
            for _ in range_(lines):
                line(x.acquire(), state, y.acquire())
                x.release()
                y.release()

        ends = []
        for name, way in (("x", "fill"), ("y", "drain"), ("found", "drain")):
            stream = getattr(self, name)
            fifo = ObjectFifo(stream.tile, depth=stream.depth, name=name)
            ends.append(fifo.cons() if way == "fill" else fifo.prod())
            (fifo.prod if way == "fill" else fifo.cons)(tile=stream.lane(0))
        state = Buffer(kernels.STATE, np.float32, name="state")
        Worker(core, [*ends, state], values=[self.count], name="core0")

    def sequence(self: Any, rt: Any) -> None:
        if not self.measured:
            derive(self, rt)
            return
        require("valid" not in rt.bound, "Quantize: size is bounded per call, and no scale= is given. Legal: one of the two.")
        rt.preamble()
        for name in ("y", "found"):
            rt.drain(name, 0, Pattern.whole((getattr(self, name).size,)), wait=True)
        for _ in range(2):
            rt.fill("x", 0, Pattern.whole((self.size,)))

    def composed(self: Any, x: Any) -> Any:
        """What it computes is exact in float32, however it is cut."""
        return self.reference(x)
