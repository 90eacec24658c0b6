"""The kernels of the attention array, with what each promises.

The products take and give tiles micro tile by micro tile (see `iron_core.array.micro_tiles`); the softmax scores and weights row by row.
A block of b queries has a state of 4 b numbers: the largest scaled score seen, the same a second time, the sum of weights,
and the factor by which the last block of keys shrank what came before it. Scores are scaled to powers of two.

Two choices have a tile reference each. exp2: "accurate", the object's polynomial, or "fast", AIE2P's own instruction, which
is up to 6 % too high. state: the dtype that the state and the sums of weighted values are kept in between blocks of keys.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16, round_to
from iron_core.array.micro_tiles import MM_STACK, Dims, block_dims, blocked, product, row_dims, unblocked
from iron_core.declare.formats import as_dtype
from iron_ops_aie.products.kernels_mm import zero

#: (r, s, t) of the products, by architecture. AIE2P runs them on its bfp16 units.
MICRO_TILES = {"AIE2": (4, 8, 4), "AIE2P": (8, 8, 8)}
#: The smallest scale of the exponents; times this a hidden score is still far below the others.
LEAST_SCALE = 2.0**-60
#: The place that the object's own mask is given: keys one block before the queries, so that it hides none.
PLACE = (0, 1)
#: How 2^x may be computed.
EXP2 = ("accurate", "fast")
#: The dtypes that the state may be kept in, with the lowest number of each.
STATES = {"float32": -(2 - 2.0**-23) * 2.0**127, "bfloat16": -(2 - 2.0**-7) * 2.0**127}

#: Multiplications a core does per cycle in the products of this object, whose sums stay where they are.
RATES = {"AIE2": 95.4, "AIE2P": 80.0}
SOURCE = "IRON: 2048 rows take 0.12 s longer for each 2048 keys before them, 16 layers of 32 heads; AIE2: as its matrix product"

_CLEAR = """
#include <stdint.h>

// Rows `first` to before `last` of a tile held in R x C blocks become 0; numbers outside of 0 to ROWS are cut.
extern "C" void KERNEL(uint16_t *tile, int32_t first, int32_t last) {
  if (first < 0)
    first = 0;
  if (last > ROWS)
    last = ROWS;
  for (int32_t i = first; i < last; i++)
    for (int32_t j = 0; j < COLUMNS; j++)
      tile[(i / R * (COLUMNS / C) + j / C) * R * C + i % R * C + j % C] = 0;
}
"""

_FIRST_ROWS = """
#include <stdint.h>

// The first ROWS rows of a tile held in R x C blocks, row by row.
extern "C" void KERNEL(const uint16_t *tile, uint16_t *rows) {
  for (int32_t i = 0; i < ROWS; i++)
    for (int32_t j = 0; j < COLUMNS; j++)
      rows[i * COLUMNS + j] = tile[(i / R * (COLUMNS / C) + j / C) * R * C + i % R * C + j % C];
}
"""


def exponent_scale(scale: float) -> float:
    """What scores are multiplied by before the power of two: scale times log2 e, in bfloat16."""
    return float(round_to(np.float64(scale) * math.log2(math.e), bfloat16))


def fast_exp2(x: Any) -> np.ndarray:
    """float32: 2^x as AIE2P's instruction has it: x in bfloat16, a straight line from each power of two to the next, bfloat16.

    Up to 6.2 % too high, exact for whole numbers: mlir-aie (common/exp2_bf16.h) gives 6 % on [-1, 0], and 49 % on [-100, 0]
    where x is cut to bfloat16 rather than rounded. Below 2^-126 it is 0.
    """
    near = np.maximum(round_to(np.asarray(x, np.float32), bfloat16).astype(np.float32), np.float32(-200))
    whole = np.floor(near)
    power = np.ldexp(np.float32(1) + (near - whole), whole.astype(np.int32))
    return np.where(near < -126, np.float32(0), round_to(power, bfloat16).astype(np.float32))


@attrs.frozen
class AttentionKernels:
    """The kernels of b queries by b keys of d numbers, of whose values a core adds up `width`.

    scale: what `exponent_scale` made.
    """

    b: int
    d: int
    width: int = attrs.field(default=attrs.Factory(lambda self: self.d, takes_self=True), kw_only=True)
    scale: float = attrs.field(default=1.0, kw_only=True)
    exp2: str = attrs.field(default="accurate", kw_only=True)
    state: str = attrs.field(default="float32", kw_only=True)
    arch: str = attrs.field(default="AIE2P", kw_only=True)

    # -- how tiles are held ------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, int]:
        columns = {"q": self.d, "k": self.d, "scores": self.b, "weights": self.b, "v": self.width, "out": self.width}
        return (self.b, columns[name])

    def _micro(self, name: str) -> tuple[int, int]:
        r, s, t = MICRO_TILES[self.arch]
        # K is held as the transpose of what is multiplied by.
        return {"q": (r, s), "k": (t, s), "scores": (r, t), "weights": (r, s), "v": (s, t), "out": (r, t)}[name]

    def held(self, name: str) -> Dims:
        """The order in which a row-major tile is sent to a core: of "q", "k", "v" or "weights"."""
        return block_dims(self._shape(name), *self._micro(name))

    def given(self, name: str) -> Dims:
        """The order in which a core's tile is sent on, to lie row by row: of "scores" or "out"."""
        return row_dims(self._shape(name), *self._micro(name))

    def hold(self, name: str, tile: Any) -> np.ndarray:
        """A row-major tile as a core holds it."""
        return blocked(np.asarray(tile), *self._micro(name))

    def rows(self, name: str, flat: Any) -> np.ndarray:
        """A tile that a core holds, row-major."""
        return unblocked(flat, self._shape(name), *self._micro(name))

    def _cut(self, name: str) -> dict[str, int]:
        rows, columns = self._micro(name)
        return dict(R=rows, C=columns, COLUMNS=self.width)

    # -- types -------------------------------------------------------------------------------------

    @property
    def tile(self) -> ObjectType:
        """Queries or keys."""
        return ObjectType.of((self.b, self.d), bfloat16)

    @property
    def values(self) -> ObjectType:
        """Values or outputs."""
        return ObjectType.of((self.b, self.width), bfloat16)

    @property
    def square(self) -> ObjectType:
        """Scores or weights."""
        return ObjectType.of((self.b, self.b), bfloat16)

    @property
    def state_dtype(self) -> Any:
        return as_dtype(self.state)

    @property
    def rows_state(self) -> ObjectType:
        return ObjectType.of(4 * self.b, self.state_dtype)

    @property
    def sums(self) -> ObjectType:
        """The weighted sums of values, before they are divided."""
        return ObjectType.of((self.b, self.width), self.state_dtype)

    def kept(self, x: Any) -> np.ndarray:
        """float32: numbers as the state keeps them."""
        return round_to(x, self.state_dtype).astype(np.float32)

    def _exp2(self, x: Any) -> np.ndarray:
        return np.exp2(x) if self.exp2 == "accurate" else fast_exp2(x)

    @property
    def place(self) -> ObjectType:
        return ObjectType.of(2, np.int32)

    # -- one object of mlir-aie's -------------------------------------------------------------------

    def _part(self, symbol: str, types: Any, contract: KernelContract, width: int = 0) -> Kernel:
        """A function of the object (none named: its own, Q K^T). Keys are B's columns, so P V runs on the same sizes.

        width: of the object that adds up values, where that is not d.
        """
        return Kernel.factory(
            "linalg.mha", types, contract, symbol=symbol, dim_m=self.b, dim_k=width or self.d, dim_n=self.b, b_col_maj=True,
            emulate_bf16_mmul_with_bfp16=self.arch == "AIE2P", accurate_exp2=self.exp2 == "accurate",
            state_dtype=self.state_dtype,
        )  # fmt: skip

    def matmul_QK(self) -> Kernel:
        """scores += Q K^T."""

        def reference(q: Any, k: Any, scores: Any, place: Any) -> np.ndarray:
            made = product(self.rows("q", q), self.rows("k", k).T)
            return np.asarray(scores, np.float32).reshape(-1) + self.hold("scores", made)

        contract = KernelContract(
            roles=(In, In, InOut, In),
            reference=reference,
            tolerance=Tolerance(terms=self.d),
            ops=2 * self.b * self.b * self.d,
            cycles=self.b * self.b * self.d / RATES[self.arch],
            cycles_source=SOURCE,
            stack=MM_STACK,
            rounding="conv_even",
        )
        return self._part("", (self.tile, self.tile, self.square, self.place), contract)

    def init_state(self) -> Kernel:
        """The state before any key."""
        b, lowest = self.b, np.float32(STATES[self.state])

        def reference(size: int) -> np.ndarray:
            return np.concatenate([np.full(b, lowest, np.float32), np.zeros(3 * b, np.float32)])

        contract = KernelContract(roles=(Out, Param), bindings=((1, b),), reference=reference, tolerance=Tolerance(exact=True))
        return self._part("init_scale_buffer", (self.rows_state, np.int32), contract)

    def softmax(self) -> Kernel:
        """Weights 2^(scale * score - largest) of a block of keys, and the state after it. The object's own mask sees all."""
        b, scale = self.b, np.float32(self.scale)

        def reference(scores: Any, state: Any, *rest: Any) -> tuple[np.ndarray, np.ndarray]:
            before, _, total, _ = np.asarray(state, np.float32).reshape(4, b)
            with np.errstate(all="ignore"):
                scaled = np.asarray(scores, np.float32).reshape(b, b) * scale
                top = np.maximum(before, self.kept(scaled.max(1)))
                weights = round_to(self._exp2(scaled - top[:, None]), bfloat16).astype(np.float32)
                shrink = self.kept(self._exp2(before - top))
                after = shrink * total + self.kept(weights.sum(1))
            return weights.reshape(-1), np.concatenate([top, top, after, shrink])

        # What a device adds to float32's own error is its exp2, to bfloat16.
        contract = KernelContract(
            roles=(In, Out, InOut, In, Param, Param, Param, Param, Param),
            bindings=((4, self.scale), (5, b), (6, b), (7, 2 * b), (8, b)),
            reference=reference,
            tolerance=Tolerance(ulps=4),
            ops=5 * b * b,
            loops=self._exponents(),
            rounding="conv_even",
        )
        types = (self.square, self.square, self.rows_state, self.place, bfloat16, np.int32, np.int32, np.int32, np.int32)
        return self._part("partial_softmax", types, contract)

    def _exponents(self) -> tuple[Loop, ...]:
        """Of a block's weights: scaled, the largest found, powers of two, their sum.

        A fast power is one instruction. An accurate one, of 32 scores at once, is mlir-aie's common/exp2_bf16.h: x less a whole number
        (two sums and a product), the rest in two bfloat16 limbs, and three steps of Horner's scheme in which the limbs are made of the
        sum so far (a product and two conversions) before the product that the next step waits for. The whole number is added to the
        exponent at last, and what no power has is put in its place.
        """
        scores = self.b * self.b
        turns = Loop(times=scores // 16, reads=32, writes=32, chain=3, special=int(self.exp2 == "fast"), issued=12, overlapped=True)
        powers = Loop(times=scores // 32, reads=64, writes=64, chain=3 + 1 + 3 * 2, conversions=2 + 3 * 2, scalar=2 + 3)
        return (turns,) if self.exp2 == "fast" else (turns, powers)

    def matmul_PV(self) -> Kernel:
        """sums = sums * shrink + P V, without the product by shrink where the block is number 0."""
        b, width = self.b, self.width

        def reference(p: Any, v: Any, sums: Any, state: Any, size: int, block: int, place: Any) -> np.ndarray:
            kept = self.rows("out", np.asarray(sums, np.float32))
            if block:
                kept = self.kept(kept * np.asarray(state, np.float32)[3 * b :, None])
            return self.hold("out", kept + product(self.rows("weights", p), self.rows("v", v)))

        contract = KernelContract(
            roles=(In, In, InOut, In, Param, Param, In),
            bindings=((4, b),),
            reference=reference,
            tolerance=Tolerance(terms=b),
            ops=2 * b * b * width,
            # The sums are shrunk first, 32 bytes of them a cycle.
            cycles=b * b * width / RATES[self.arch] + self.sums.nbytes / 32,
            cycles_source=SOURCE,
            stack=MM_STACK,
            rounding="conv_even",
        )
        types = (self.square, self.values, self.sums, self.rows_state, np.int32, np.int32, self.place)
        return self._part("matmul_PV", types, contract, width)

    def rescale(self) -> Kernel:
        """out = sums / total; the state's total becomes its inverse. A row without a key is not a number."""
        b, width = self.b, self.width

        def reference(sums: Any, state: Any, size: int, place: Any) -> tuple[np.ndarray, np.ndarray]:
            after = np.array(state, np.float32).reshape(-1)
            with np.errstate(all="ignore"):
                after[2 * b : 3 * b] = self.kept(np.float32(1) / after[2 * b : 3 * b])
                out = self.rows("out", np.asarray(sums, np.float32)) * after[2 * b : 3 * b, None]
            return self.hold("out", out), after

        contract = KernelContract(
            roles=(In, Out, InOut, Param, In),
            bindings=((3, b),),
            reference=reference,
            tolerance=Tolerance(terms=2),
            ops=b * width,
            rounding="conv_even",
        )
        return self._part("rescale_O", (self.sums, self.values, self.rows_state, np.int32, self.place), contract, width)

    # -- others ------------------------------------------------------------------------------------

    def zero_scores(self) -> Kernel:
        return zero(self.b * self.b, bfloat16)

    def zero_sums(self) -> Kernel:
        return zero(self.b * self.width, self.state_dtype)

    def copy_state(self) -> Kernel:
        """The state as it is, for the core that adds up values. Moved as 32-bit words."""
        words = self.rows_state.nbytes // 4
        contract = KernelContract(
            roles=(In, Out, Param),
            bindings=((2, words),),
            reference=lambda state, size: np.asarray(state, np.float32),
            tolerance=Tolerance(exact=True),
        )
        return Kernel.factory(
            "eltwise.passthrough", (self.rows_state, self.rows_state, np.int32), contract, symbol="passThroughLine",
            tile_size=words, dtype=np.int32,
        )  # fmt: skip

    def clear(self, name: str) -> Kernel:
        """Rows `first` to before `last` of a tile become 0, whatever they held: of "v" or "out". Both may lie outside."""

        def reference(tile: Any, first: int, last: int) -> np.ndarray:
            kept = self.rows(name, np.asarray(tile, np.float32))
            kept[max(first, 0) : max(last, 0)] = 0
            return self.hold(name, kept)

        contract = KernelContract(roles=(InOut, Param, Param), reference=reference, tolerance=Tolerance(exact=True))
        defines = dict(ROWS=self.b, **self._cut(name))
        return Kernel.inline("clear_rows", _CLEAR, (self.values, np.int32, np.int32), contract, defines)

    def first_rows(self, rows: int) -> Kernel:
        """The first rows of an output tile, row by row."""
        contract = KernelContract(
            roles=(In, Out),
            reference=lambda tile: self.rows("out", np.asarray(tile, np.float32))[:rows],
            tolerance=Tolerance(exact=True),
        )
        types = (self.values, ObjectType.of((rows, self.width), bfloat16))
        return Kernel.inline("first_rows", _FIRST_ROWS, types, contract, dict(ROWS=rows, **self._cut("out")))
