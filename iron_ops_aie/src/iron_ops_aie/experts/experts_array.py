"""The arrays of `GatedExperts` and `CombineExperts`: all experts' matrices go by, and a core multiplies by those that its rows chose.

Cores share out the rows of every matrix, `width` to each. A core keeps a block of rows and their ids; then the lines of one expert
after another come by, E / k times what is needed, once for every block. No address depends on an id, so one array serves npu1 and npu2.
What is shared and its gate come ahead of a block, a core's part of a row in one line or several, and are kept beside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    ObjectFifo,
    Pattern,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_columns,
    require_npu,
    round_to,
)
from iron_core.array.fit import require_memory
from iron_core.devices import WORD
from iron_ops_aie.experts import kernels_experts as kernels
from iron_ops_aie.rules import divisors

#: Bytes that a core keeps of a block and what is made of it, at most, and rows of a block.
HELD, BLOCK = 24 * 1024, 16
#: Bytes of a core for its stack, ids and words, more than enough.
BESIDE = 6 * 1024


class ExpertsArray:
    """What both arrays share: `made` names the rows of a matrix, `long` a row's numbers, `matrices` are streamed through."""

    made: str
    long: str
    matrices: tuple[str, ...]
    shares = gates = False

    def _held(self: Any, width: int) -> int:
        """Bytes per row of a block that a core keeps of what is made of it, and of what is shared."""
        return int((4 * len(self.matrices) + 4) * self.k * width + 2 * width * self.shares + 4 * self.gates)

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        made, long = getattr(self, self.made), getattr(self, self.long)
        fits = [c for c in divisors(made) if c <= dev.columns and made // c % 2 == 0]
        columns = self.num_aie_columns or max(fits, default=1)
        width = max(1, made // columns)
        each = 2 * long * self.k // self.share + self._held(width)
        block = max((b for b in divisors(self.rows) if b <= BLOCK and b * each <= HELD), default=1)
        return self.evolve(num_aie_columns=columns, width=width, block=block)

    def compatible(self: Any, dev: Any) -> None:
        name, made, long = type(self).__name__, getattr(self, self.made), getattr(self, self.long)
        for field in ("T", "W", "O"):
            have = getattr(self, field)
            require(have == bfloat16, f"{name}: {field}={have}; an array takes bfloat16, the CPU others. Legal: {field}=bfloat16.")
        require(
            long % 2 == 0,
            f"{name}: {self.long}={long} of bfloat16 are no whole {WORD}-byte words. Nearest legal: {self.long}={nearest(long, 2)}.",
        )
        require_columns(self, dev)
        legal = [c for c in divisors(made) if made // c % 2 == 0 and (dev is None or c <= dev.columns)]
        require(
            legal, f"{name}: {self.made}={made} of bfloat16 are no whole {WORD}-byte words. Nearest legal: {self.made}={nearest(made, 2)}."
        )
        require(
            self.num_aie_columns in legal,
            f"{name}: num_aie_columns={self.num_aie_columns} do not share out {self.made}={made} in pairs. Nearest legal: "
            f"num_aie_columns={nearest(self.num_aie_columns, legal)}.",
        )
        if dev is not None:
            # Two lines on their way, and the rows of the least block, beside what is made of them.
            free, lines = dev.core.memory - BESIDE, 2 * (2 + self.k // self.share)
            most = (free - self._held(self.width)) // lines // 2 * 2
            wide = self.num_aie_columns * ((free - lines * long) // self._held(1) // 2 * 2)
            require_memory(self, dev, f"Legal: {self.long}={most}." if most > 1 else f"Legal: {self.made}={wide}.")

    def array_remark(self: Any) -> str:
        rows = "row" if self.block == 1 else f"{self.block} rows"
        return f"dense: all {self.experts} experts go by for every {rows}, {min(self.experts, self.block * self.k)} at most multiply"

    def _pick(self: Any, block: int, width: int) -> Any:
        return kernels.pick(getattr(self, self.long), block, self.k, width, self.experts, self.share)

    def array(self: Any, target: Any) -> None:
        long, block, k, width = getattr(self, self.long), self.block, self.k, self.width
        experts, rows, many = self.experts, block * k // self.share, block * k * width
        keep, pick, finish = kernels.keep(long, long, rows * long), self._pick(block, width), self._finish(block, width)
        take, gate = kernels.keep(long, min(long, width), block * width), kernels.opening(block, k)
        weighs = len(self.matrices) == 1

        def core(lines: Any, words: Any, result: Any, kept: Any, products: Any, shared: Any, opened: Any, blocks: Any, count: Any) -> None:
            for b in range_(blocks):
                live = count - b * block
                for cut in self._cuts() if self.shares else ():
                    for r in range_(block):
                        take(lines.acquire(), shared[0], r * width + cut)
                        lines.release()
                for numbers in opened:
                    gate(words.acquire(), numbers)
                    words.release()
                ids, *weights = words.acquire(2) if weighs else [words.acquire()]
                for r in range_(rows):
                    keep(lines.acquire(), kept, r * long)
                    lines.release()
                for e in range_(experts):
                    for product in products:
                        for i in range_(width):
                            pick(kept, ids, lines.acquire(), product, e, i, live)
                            lines.release()
                finish(*products, *weights, *shared, *opened, result.acquire(), live)
                result.release()
                words.release(2 if weighs else 1)

        for lane in range(self.num_aie_columns):
            lines, words = ObjectFifo(self.x.tile, name=f"x{lane}"), ObjectFifo(self.ids.tile, name=f"ids{lane}")
            result = ObjectFifo(self.y.tile, name=f"y{lane}")
            lines.prod(tile=self.x.lane(lane))
            words.prod(tile=self.ids.lane(lane))
            result.cons(tile=self.y.lane(lane))
            kept = Buffer(rows * long, bfloat16, name=f"kept{lane}")
            products = [Buffer(many, np.float32, name=f"{name}{lane}") for name in self.matrices]
            shared = [Buffer(block * width, bfloat16, name=f"shared{lane}")] if self.shares else []
            opened = [Buffer(block, np.float32, name=f"opened{lane}")] if self.gates else []
            ends = [lines.cons(), words.cons(), result.prod(), kept, products, shared, opened]
            Worker(core, ends, values=[self.blocks, self.count], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """Block by block. All rows go to and fro, whatever bounds them: cores pass over those behind."""
        rt.preamble()
        made, long, k, width, block = getattr(self, self.made), getattr(self, self.long), self.k, self.width, self.block
        rows, lanes = block * k // self.share, range(self.num_aie_columns)
        for b in range(self.rows // block):
            for lane in lanes:
                rt.drain("y", lane, self._drained(b, lane), managed=False)
            self._share(rt, b)
            for lane in lanes:
                for name in ("ids", "weights") if len(self.matrices) == 1 else ("ids",):
                    rt.fill(name, lane, Pattern(b * block * k, (block * k,), (1,)), via="ids", managed=False)
                rt.fill("x", lane, Pattern(b * rows * long, (rows * long,), (1,)), managed=False)
            for e in range(self.experts):
                for name in self.matrices:
                    for lane in lanes:
                        where = Pattern((e * made + lane * width) * long, (width * long,), (1,))
                        rt.fill(name, lane, where, via="x", managed=False)

    def _share(self: Any, rt: Any, b: int) -> None:
        """What comes ahead of block b."""

    def _products(self: Any, rows: Any, matrices: Any, ids: Any) -> np.ndarray:
        """A row's products with its expert's matrix, each by itself."""
        made = matrices.shape[1]
        out = np.empty((len(ids) * made,), np.float32)
        pick = kernels.pick(matrices.shape[2], 1, 1, made, self.experts, 1)
        for n, id in enumerate(ids):
            e, held = int(np.clip(id, -self.experts, self.experts - 1)) % self.experts, np.zeros(made, np.float32)
            for i in range(made):
                held = pick.reference(rows[n], np.array([id]), matrices[e, i], held, e, i, 1)
            out[n * made : (n + 1) * made] = held
        return out


class GatedExpertsArray(ExpertsArray):
    """How a `GatedExperts` is computed on an array."""

    made, long, matrices = "inner", "hidden", ("gate", "up")

    @property
    def share(self: Any) -> int:
        """Places that multiply one row."""
        return int(self.k)

    def _finish(self: Any, block: int, width: int) -> Any:
        return kernels.opened(block, self.k, width)

    def _drained(self: Any, b: int, lane: int) -> Pattern:
        places = self.block * self.k
        return Pattern(b * places * self.inner + lane * self.width, (places, self.width), (self.inner, 1))

    def composed(self: Any, x: Any, gate: Any, up: Any, ids: Any) -> Any:
        """Place by place."""
        flat = np.asarray(ids).reshape(-1)
        rows = np.repeat(np.asarray(x), self.k, 0)
        g, u = (self._products(rows, np.asarray(matrices), flat) for matrices in (gate, up))
        made = kernels.opened(len(x), self.k, self.inner).reference(g, u, len(x)) if len(x) else np.empty(0, np.float32)
        return round_to(made.reshape(len(x), self.k, self.inner), self.O)


class CombineExpertsArray(ExpertsArray):
    """How a `CombineExperts` is computed on an array."""

    made, long, matrices, share = "hidden", "inner", ("down",), 1

    def _finish(self: Any, block: int, width: int) -> Any:
        return kernels.added(block, self.k, width, self.shares, self.gates)

    def _cuts(self: Any) -> list[int]:
        """Where the lines begin that a core's part of a row of `shared` takes; the last overlaps the one before where it is not full."""
        return [*range(0, self.width - self.inner, self.inner), max(0, self.width - self.inner)]

    def _share(self: Any, rt: Any, b: int) -> None:
        hidden, width, block, lanes = self.hidden, self.width, self.block, range(self.num_aie_columns)
        if self.gates:
            for lane in lanes:
                rt.fill("shared_gate", lane, Pattern(b * block, (self.k, block), (0, 1)), via="ids", managed=False)
        if not self.shares:
            return
        # A part that is shorter than a line fills it by going again and again, row by row: a descriptor repeats as a whole.
        count = min(width, self.inner)
        copies, rest = divmod(self.inner, count)
        rows = block if count == self.inner else 1
        for cut in self._cuts():
            for r in range(0, block, rows):
                for lane in lanes:
                    at = (b * block + r) * hidden + lane * width + cut
                    where = Pattern(at, (rows, count), (hidden, 1)) if count == self.inner else Pattern(at, (copies, count), (0, 1))
                    rt.fill("shared", lane, where, via="x", managed=False)
                    if rest:
                        rt.fill("shared", lane, Pattern(at, (rest,), (1,)), via="x", managed=False)

    def _drained(self: Any, b: int, lane: int) -> Pattern:
        return Pattern(b * self.block * self.hidden + lane * self.width, (self.block, self.width), (self.hidden, 1))

    def composed(self: Any, x: Any, down: Any, ids: Any, weights: Any, shared: Any = None, shared_gate: Any = None) -> Any:
        """Place by place, then row by row."""
        n = len(ids)
        if not n:
            return round_to(np.empty((0, self.hidden), np.float32), self.O)
        made = self._products(np.asarray(x).reshape(-1, self.inner), np.asarray(down), np.asarray(ids).reshape(-1))
        besides = [] if shared is None else [shared]
        if shared_gate is not None:
            gates = np.ascontiguousarray(shared_gate, np.float32).view(np.int32)
            besides.append(kernels.opening(n, 1).reference(gates))
        add = kernels.added(n, self.k, self.hidden, self.shares, self.gates)
        bits = np.ascontiguousarray(weights, np.float32).view(np.int32)
        return round_to(add.reference(made, bits, *besides, n), self.O)
