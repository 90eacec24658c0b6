"""What GEMV and GEMM share on the host: one product kernel, and the step that rounds activations.

C[b][m][n] = sum over k of X[b][m][k] * W[b / repeat][n][k], as matmul.h has it. With `int8_block` arithmetic a
step before it rounds the rows of X into the area both share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.declare.field import Auto
from iron_core.declare.formats import as_format
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import Blocks, KernelCall, Member
from iron_host.kernels import BLOCK_PRODUCT, INTEGER_PRODUCT, PACKED_PRODUCT, PANEL_PRODUCT, PRODUCT, QUANTIZE_ROWS
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit
from iron_host.slots import Filled
from iron_host.tiles import COLUMNS, TILES
from iron_host.tiles import ROWS as TILE_ROWS
from iron_host.view import GROUP, View, no_view, view_of

#: What multiplies to int32.
INTEGERS = ("int8", "uint8")
#: Of matmul.h: how many rows of X are widened, beside four of W, where there are so many.
BESIDE, SEVERAL = 64, 8
#: Of panels.h: rows of a task.
TASK = 96
#: Of opened.h: rows of X from which tiles may be opened, and bytes of 32 columns of a row in an opened one, at most.
MANY, OPENED = 32, 48
#: Of rounded.h: the bytes of a group's scales.
SCALE = 16


@attrs.frozen
class Product:
    """One product. X, W, C are operand names; `by_rows`: W is rows of K (else rows of N). Strides count numbers.

    matrix_rows: rows of a matrix of W, of which a call may bound N.
    """

    X: str
    W: str
    C: str
    M: int | Member
    N: int | Member
    K: int | Member
    x_stride: int
    w_stride: int
    by_rows: bool
    c_strides: tuple[int, int]
    batches: int = 1
    batch_strides: tuple[int, int, int] = (0, 0, 0)
    repeat: int = 1
    matrix_rows: int = 0

    @property
    def dense(self) -> Filled:
        """The slots of a product with W as it is."""
        return PRODUCT(**self._dense)

    def in_panels(self, storage: str) -> Filled:
        """The slots of a product with a dense W, rows of K, in panels. storage: W's type."""
        assert isinstance(self.K, int) and self.by_rows and self.batches == 1 and self.c_strides[1] == 1
        size = dict(M=self.M, N=self.N, K=self.K, x_row=self.x_stride, c_row=self.c_strides[0])
        w = Blocks(self.W, "in_tiles", (self.matrix_rows, self.K, 1), unit("panels.h", "pack_panels", storage))
        return PANEL_PRODUCT(x=self.X, w=w, c=self.C, in_tiles=0, **size)

    def integers(self, scale: float, row_scale: str | None) -> Filled:
        """The slots of a product of integers; row_scale: the operand with a scale for each row, if there is one."""
        return INTEGER_PRODUCT(**self._dense, scale=scale, row_scale=row_scale)

    @property
    def _dense(self) -> dict[str, Any]:
        where = dict(x_row=self.x_stride, w_row=self.w_stride, by_rows=int(self.by_rows))
        return dict(x=self.X, w=self.W, **where, x_batch=self.batch_strides[0], w_batch=self.batch_strides[1], **self._result)

    @property
    def _result(self) -> dict[str, Any]:
        """What every product is given: its size, and where C lies."""
        row, column = self.c_strides
        size = dict(M=self.M, N=self.N, K=self.K, batches=self.batches, repeat=self.repeat)
        return dict(c=self.C, c_row=row, c_column=column, c_batch=self.batch_strides[2], **size)

    @property
    def packed(self) -> Filled:
        """The slots of a product with W read row by row."""
        x = dict(x=self.X, x_row=self.x_stride, x_batch=self.batch_strides[0])
        return PACKED_PRODUCT(**x, w=self.W, w_rows=self.matrix_rows, **self._result)

    def from_blocks(self, ahead: int, x_rows: int) -> Filled:
        """The slots of a product with blocks and X as the step before rounded it; `ahead` and `x_rows`: as in blocks.h."""
        assert isinstance(self.K, int)
        size = (self.matrix_rows, self.K, self.batches // self.repeat)
        return BLOCK_PRODUCT(w=Blocks(self.W, "in_tiles", size), in_tiles=0, ahead=ahead, x_rows=x_rows, **self._result)


def block_scratch(view: View, K: int, rows: int) -> int:
    """Bytes of scratch that block_matmul takes: tiles, for blocks that are not in any, and for many `rows` of X as many opened ones."""
    return TILES * TILE_ROWS * (view.row_bytes(K) + (OPENED * (K // GROUP) if rows >= MANY else 0)) + 64


def in_blocks(op: Any) -> bool:
    """Are its weights multiplied in the tiles of blocks.h?"""
    return bool(as_format(op.W).packed and op.activations == "int8_block")


class ProductLowering(Sharing):
    """Work is counted in multiplications. ahead: of weights in tiles, how many bytes from those that one row of activations is
    multiplied with the next ones are asked for; 0: the processor guesses by itself. rows: how many rows of activations meet a tile
    at once, 0 for the usual number. x_rows: how many meet all tiles of a part before the next ones do, 0 for all."""

    grain = Auto(32768)
    ahead = Auto(0)
    rows = Auto(0)
    x_rows = Auto(0)

    def supports(self, op: Any, dev: str) -> Yes | No:
        if as_format(op.W).packed:
            view = view_of(op.W)
            if view is None:
                return no_view("W", op.W)
            if op.activations == "int8_block" and not view.blocks:
                return No(
                    f"W={op.W.name}: int8_block kernels read nibbles and signed bytes of which 32 of a row, or several times as many, "
                    "share a scale, and perhaps a minimum, in blocks",
                    "activations='exact'",
                )
            return takes(op, f"{view.name} {op.activations}", T=FLOATS, O=FLOATS)
        if as_format(op.T).dtype.kind in "iu":
            return takes(op, "matmul_integers", T=INTEGERS, W=INTEGERS, O=("int32", *FLOATS))
        return takes(op, "matmul", T=FLOATS, W=FLOATS, O=FLOATS)

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        return 2 * math.prod(shapes["C"]) * op.K

    def integers(self, op: Any) -> bool:
        return op.activations == "int8_block" or as_format(op.T).dtype.kind in "iu"

    def calls(self, op: Any, product: Product, rows: int, work: int, tunables: Mapping[str, Any]) -> list[KernelCall] | No:
        """The kernel calls of one product; `rows` and `work` are its largest row count and multiplications."""
        shared_by = self.shared_by(tunables, work)
        if not as_format(op.W).packed:
            types = cpp(op.T), cpp(op.W), cpp(op.O)
            if as_format(op.T).dtype.kind in "iu":
                slots = product.integers(op.scale, "row_scale" if op.rows_scaled else None)
                kernel = unit("integers.h", "matmul_integers", *types)
                return [KernelCall(kernel, slots, scratch_bytes=4 * max(1, rows // product.batches), **shared_by, work=work)]
            if getattr(op, "own_order", False) and op.b_col_maj and not op.c_col_maj and isinstance(product.K, int):
                scratch = 4 * (COLUMNS * (op.K + 1) + min(rows, TASK) * op.K)
                kernel = unit("panels.h", "panel_product", *types)
                return [KernelCall(kernel, product.in_panels(types[1]), scratch_bytes=scratch, **shared_by, work=work)]
            kernel = unit("matmul.h", "matmul", *types)
            widens = product.by_rows and rows >= SEVERAL * product.batches and {types[0], types[1]} != {"float"}
            scratch = 4 * (BESIDE + 4) * op.K if widens else 0
            return [KernelCall(kernel, product.dense, scratch_bytes=scratch, **shared_by, work=work)]
        if isinstance(product.K, Member):
            return No("a bound on K of block weights has no kernel")
        if isinstance(product.N, Member) and product.batches > 1:
            return No("a bound on M of several block matrices has no kernel")
        view = view_of(op.W)
        assert view is not None  # supports() has seen it
        if op.activations == "exact":
            name, slots = ("block_exact", product.dense) if view.blocks else ("packed_product", product.packed)
            kernel = view.unit(name, cpp(op.T), cpp(op.O))
            return [KernelCall(kernel, slots, scratch_bytes=4 * product.K, **shared_by, work=work)]
        groups = product.K // GROUP
        shared = _aligned(rows * product.K) + SCALE * rows * groups
        quantize = KernelCall(
            unit("rounded.h", "quantize_rows", cpp(op.T)),
            QUANTIZE_ROWS(
                x=product.X, M=product.M if product.batches == 1 else product.batches, K=product.K, x_row=product.x_stride
            ),
            shared_bytes=shared,
            threads=threads(rows * product.K, GRAIN),
            shares="writes",
        )
        multiply = KernelCall(
            view.unit("block_matmul", cpp(op.O), *([str(tunables["rows"])] if tunables["rows"] else [])),
            product.from_blocks(tunables["ahead"], tunables["x_rows"]),
            scratch_bytes=block_scratch(view, product.K, rows // product.batches),
            shared_bytes=shared,
            **shared_by,
            shares="reads",
            work=work,
        )
        return [quantize, multiply]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
