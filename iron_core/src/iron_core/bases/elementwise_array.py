"""The array of elementwise operators: one core per (column, channel).

Each takes one line of every stream at a time, calls the kernel, applies the steps of its finish and passes the line on; how many
lines is a word the sequence writes. What a step reads besides the line has a stream of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from iron_core.declare.formats import bfloat16
from iron_core.declare.link import streamed
from iron_core.declare.rules import nearest, require, require_channels, require_dtype, require_whole
from iron_core.declare.tilewise import tilewise
from iron_core.declare.undeclared import undeclared
from iron_core.errors import DeclarationError

#: Lines are at most this long.
TILE_CAP = 4096
TILE = 256


class ElementwiseArray:
    """What an `Elementwise` operator is on an array. Its subclass gives `kernel()`."""

    #: Lines are whole vectors of this many numbers.
    line_unit: ClassVar[int] = 16

    @undeclared
    def kernel(self: Any) -> Any:
        """The `Kernel` of one line: the inputs' tiles, then the output's. A subclass with one has an array."""
        raise DeclarationError(f"{type(self).__name__} declares no kernel(); it runs on the CPU.")

    def chain_line(self: Any, chain: str) -> int:
        return int(self.tile_size)

    @property
    def _unit(self: Any) -> int:
        """Lines are whole ones of these: vectors that its own kernel takes, and every one of its finish."""
        return max([self.line_unit, *(link.op.line_unit for link in self.finish)])

    @property
    def _read(self: Any) -> list[str]:
        """Names of what a core reads."""
        return [*(operand.name for operand in type(self).inputs), *streamed(self, "finish")]

    def words(self: Any) -> tuple[Any, ...]:
        """The operator's Values that its kernel is given behind the tiles."""
        return ()

    def resolve(self: Any, dev: Any) -> Any:
        channels = self.num_channels or 1
        unit, given = self._unit, (self.num_aie_columns or 1) * channels
        tile = self.tile_size or next((t for t in range(TILE, 0, -unit) if self.size % (given * t) == 0), unit)
        widest = min(dev.columns, self._widest(dev, channels)) if dev is not None and dev.is_npu else 1
        fits = (c for c in range(widest, 0, -1) if self.size % (c * channels * tile) == 0)
        return self.evolve(
            tile_size=tile, num_channels=channels, num_aie_columns=self.num_aie_columns or next(fits, 1)
        )

    def _widest(self: Any, dev: Any, channels: int) -> int:
        """For how many columns of cores the shims have channels, if each takes so many."""
        return dev.columns * dev.shim.channels // (len(self._read) * channels)

    def compatible(self: Any, dev: Any) -> None:
        name, tile, columns, channels = type(self).__name__, self.tile_size, self.num_aie_columns, self.num_channels
        require_dtype(self, bfloat16, "T")
        channels_in = 2 if dev is None or not dev.is_npu else dev.core.channels
        require(
            not self.finish or len(self._read) <= channels_in,
            f"{name}.finish: a core would read {', '.join(self._read)}, and has {channels_in} input streams. Legal: steps that read "
            "nothing besides the line, or the step by itself.",
        )
        for link in self.finish:
            link.calls(self.chain_line("finish"), dev)
        lines = range(self._unit, TILE_CAP + 1, self._unit)
        require(
            tile in lines,
            f"{name}: tile_size={tile}; lines are whole vectors of {self._unit}. Nearest legal tile_size: {nearest(tile, lines)}.",
        )
        require_channels(self)
        if dev is not None and dev.is_npu:
            widest = self._widest(dev, channels)
            require(widest, f"{name}: num_channels={channels} needs more streams than the shims of {dev} have. Legal: 1.")
            require(
                columns <= min(widest, dev.columns),
                f"{name}: num_aie_columns={columns} with num_channels={channels}; the shims of {dev} have channels for "
                f"{min(widest, dev.columns)}. Nearest legal num_aie_columns: {min(widest, dev.columns)}.",
            )
        require_whole(
            self,
            "size",
            columns * channels * tile,
            f"lines of tile_size={tile} over num_aie_columns={columns} x num_channels={channels}",
            "" if self.size % self._unit else "give tile_size= or num_aie_columns=",
        )

    def array(self: Any, target: Any) -> None:
        # Here: what runs on the CPU alone needs no vocabulary of arrays.
        from iron_core.array import Buffer, Kernel, ObjectFifo, Worker, range_

        steps = [call for link in self.finish for call in link.calls(self.tile_size)]

        def core(inputs: Any, others: Any, output: Any, line: Any, kernel: Any, lines: Any, *words: Any) -> None:
            for _ in range_(lines):
                tiles = [end.acquire() for end in inputs]
                # Steps go to and fro between the line and the tile that leaves, and the last one fills that.
                there, here = (line, output.acquire()) if len(steps) % 2 else (output.acquire(), line)
                kernel(*tiles, there, *words)
                for end in inputs:
                    end.release()
                given = iter(others)
                for call in steps:
                    there, here = here, there
                    ends = [next(given) for _ in call.reads]
                    call.kernel(*call.arguments(here, [end.acquire() for end in ends]), there)
                    for end in ends:
                        end.release()
                output.release()

        kernel = self.kernel()
        if not isinstance(kernel, Kernel):
            raise DeclarationError(f"{type(self).__name__}.kernel() gives {kernel!r}; legal: a Kernel, as Kernel.inline(...) makes one.")
        (result,) = (o for o in type(self).outputs if o.present(self))
        for lane in range(self.num_aie_columns * self.num_channels):
            ends = []
            for name in self._read:
                stream = getattr(self, name)
                fifo = ObjectFifo(stream.tile, depth=stream.depth, name=f"{name}{lane}")
                fifo.prod(tile=stream.lane(lane))
                ends.append(fifo.cons())
            stream = getattr(self, result.name)
            fifo = ObjectFifo(stream.tile, depth=stream.depth, name=f"{result.name}{lane}")
            fifo.cons(tile=stream.lane(lane))
            own = len(type(self).inputs)
            line = Buffer(stream.tile.elements, stream.tile.dtype, name=f"line{lane}") if steps else None
            Worker(core, [ends[:own], ends[own:], fifo.prod(), line, kernel], values=[self.count, *self.words()], name=f"core{lane}")

    def composed(self: Any, *inputs: Any) -> Any:
        """Line by line; a line does not depend on where it is cut. In the shape of the first input, as `reference()`."""
        return tilewise(self, inputs, *self.words()).reshape(inputs[0].shape)
