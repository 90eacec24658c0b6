"""What operators whose ids pick matrices share on the host: the kernels of experts.h, by how weights are stored and multiplied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.domain import Choices
from iron_core.declare.field import Auto
from iron_core.declare.formats import as_format
from iron_core.lowering.answer import No, Yes
from iron_host.build import Unit
from iron_host.kernel_call import Blocks, KernelCall, Member
from iron_host.kernels import PICKED, QUANTIZE_ROWS
from iron_host.lowerings.products import SCALE, in_blocks
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit
from iron_host.slots import Filled
from iron_host.tiles import ROWS as TILE_ROWS
from iron_host.view import GROUP, no_view, view_of

#: Of experts.h: rows of W that meet a row of X at once.
BESIDE_ROWS = 4


def aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


class PickedLowering(Sharing):
    """Work is counted in multiplications. ahead: of weights in tiles, how many bytes from those that one row of activations is
    multiplied with the next ones are asked for; 0: the processor guesses by itself."""

    grain = Auto(32768)
    ahead = Auto(4096, domain=Choices(lambda op: (0, 512, 1024, 2048, 4096, 6144, 8192) if in_blocks(op) else (4096,)))
    #: Operands that are stacks of matrices.
    stacks: ClassVar[tuple[str, ...]] = ()

    def supports(self, op: Any, dev: str) -> Yes | No:
        if not as_format(op.W).packed:
            return takes(op, "picked_rows", T=FLOATS, W=FLOATS, O=FLOATS)
        view = view_of(op.W)
        if view is None:
            return no_view("W", op.W)
        if op.activations == "int8_block" and not view.blocks:
            return No(
                f"W={op.W.name}: int8_block kernels read nibbles and signed bytes of which 32 of a row share a scale, and perhaps a "
                "minimum, of 16 bits",
                "activations='exact'",
            )
        return takes(op, f"{view.name} {op.activations}", T=FLOATS, O=FLOATS)

    def integers(self, op: Any) -> bool:
        return bool(op.activations == "int8_block")

    def moved(self, op: Any, sizes: Mapping[str, int]) -> int:
        """Of the matrices those that ids can pick."""
        share = min(1.0, sizes["ids"] / 4 / self.matrices(op))
        return int(sum(size * (share if name in self.stacks else 1) for name, size in sizes.items()))

    def matrices(self, op: Any) -> int:
        """How many there are to pick from."""
        return int(op.experts)

    def product(
        self, op: Any, x: str, w: str, count: int | Member, N: int | Member, size: tuple[int, int, int], strides: tuple[int, int],
        tunables: Mapping[str, Any],
    ) -> list[KernelCall]:  # fmt: skip
        """GEMV's or GEMM's with ids: `count` rows of x, at most those of ids, by matrices of w, `size` (rows, depth, how many) of which N
        rows are multiplied. strides: numbers between rows of C, and outputs of one."""
        (M, K, many), rows = size, op.shape("ids")[0]
        before, shared = self.rounding(op, x, rows, count, K)
        slots = PICKED(
            x=x, w=self.weights(op, w, size), ids="ids", y="C", rows=count, k=1, experts=many, M=M, N=N, K=K, w_in_tiles=0, up_in_tiles=0,
            y_row=strides[0], y_column=strides[1], ahead=tunables["ahead"],
        )  # fmt: skip
        kernel = self.kernel(op, "picked", cpp(op.O), "false")
        return [*before, self.call(kernel, slots, 2 * self.widened(op, K), rows, many, rows * M * K, tunables, **shared)]

    def rounding(self, op: Any, x: str, rows: int, count: int | Member, K: int) -> tuple[list[KernelCall], dict[str, Any]]:
        """The step that rounds `count` rows of x, at most `rows`, and what the call behind it is told; nothing where none is rounded."""
        if not in_blocks(op):
            return [], {}
        shared = aligned(rows * K) + SCALE * rows * (K // GROUP)
        slots = QUANTIZE_ROWS(x=x, M=count, K=K, x_row=K)
        kernel = unit("rounded.h", "quantize_rows", cpp(op.T))
        call = KernelCall(kernel, slots, shared_bytes=shared, threads=threads(rows * K, GRAIN), shares="writes")
        return [call], {"shared_bytes": shared, "shares": "reads"}

    def weights(self, op: Any, name: str, size: tuple[int, int, int]) -> str | Blocks:
        """The pointer slot of a stack of matrices: (rows, depth, how many). Its slot of tiles is "w_in_tiles", or "up_in_tiles"."""
        return Blocks(name, f"{'up' if name == 'up' else 'w'}_in_tiles", size) if in_blocks(op) else name

    def kernel(self, op: Any, what: str, *arguments: str) -> Unit:
        """`what`_blocks where rows are rounded, else `what`_rows, for op's weights and further template arguments."""
        format = as_format(op.W)
        if not format.packed:
            return unit("experts.h", f"{what}_rows", f"DenseRow<{cpp(op.W)}>", cpp(op.T), *arguments)
        view = view_of(op.W)
        assert view is not None  # supports() has seen it
        if in_blocks(op):
            types = [view.name, *([cpp(op.T)] if what == "combined" else []), *arguments]
            text = f"{what}_blocks<{', '.join(types)}>"
        else:
            row = "BlockRow" if view.blocks else "PackedRow"
            text = f"{what}_rows<{', '.join((f'{row}<{view.name}>', cpp(op.T), *arguments))}>"
        symbol = "iron_" + re.sub(r"\W+", "_", text).strip("_")
        return Unit(view.header, text, symbol, f'#include "experts.h"\n{view.source}')

    def call(
        self, kernel: Unit, slots: Filled, scratch: int, pairs: int, matrices: int, work: int, tunables: Mapping[str, Any], **shared: Any
    ) -> KernelCall:
        """scratch: bytes besides those in which pairs are sorted by matrix."""
        scratch += aligned(4 * (2 * matrices + 2 + pairs))
        return KernelCall(kernel, slots, scratch_bytes=scratch, **self.shared_by(tunables, work), **shared, work=work)

    def widened(self, op: Any, K: int) -> int:
        """Bytes in which rows of a matrix are widened, or made a tile."""
        if in_blocks(op):
            view = view_of(op.W)
            assert view is not None
            return TILE_ROWS * view.row_bytes(K)
        return 4 * BESIDE_ROWS * K if as_format(op.W).packed else 0
