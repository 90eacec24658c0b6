"""`GEMV`: a matrix times a vector, or a batch of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Q4_0, Q4_1, Q8_0, Auto, DType, Extent, In, Operator, OptionalDim, Out, Param, Tolerance, bfloat16
from iron_core.declare.domain import Choices, Divisors, Width
from iron_core.declare.formats import as_format
from iron_core.declare.link import riding
from iron_core.declare.pattern import Pattern
from iron_core.declare.rounding import round_to, widen
from iron_core.declare.testing import Case, Testing
from iron_core.declare.value import Value
from iron_core.devices import ITERATIONS
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import activations as arithmetic
from iron_ops_aie import kernels_linalg

#: A core's memory and one of its four banks, in bytes; both families have the same.
MEMORY = 64 * 1024
BANK = MEMORY // 4
#: Rows that `resolve()` gives a tile of A and of C at most.
ROWS = 16
ROWS_OUT = 64
#: Numbers that an elementwise kernel takes at most.
ROWS_LINE = 4096
#: Elements that a descriptor can step over.
STEP = 1 << 21


def _vectors(k: int) -> tuple[int, ...]:
    """Vector widths that rows of k numbers are whole multiples of, twice or more."""
    return tuple(v for v in kernels_linalg.VECTORS if k % v == 0 and k >= 2 * v)


class GEMV(Operator):
    """C[b] = A[b // repeat] @ B[b].

    A: ([num_matrices,] M, K), dense or block-quantised; B: ([num_batches,] K); C: ([num_batches,] M). A single batch or
    matrix has no such dimension. `repeat` batches share a matrix (a group's keys serve several query heads). A, B and C
    have dtypes of their own (`W`, `T`, `O`; by default all as B). `activations` names the arithmetic of a block product
    (see `iron_ops_aie.activations`). `valid` bounds M per call. Reserved: `ids`, matrices picked per batch by indices the
    graph computed (experts).

    The array (bfloat16 throughout): the rows of A are split over num_aie_columns x num_channels lanes, one core and one
    stream each. B has no stream of its own: per batch a tile that holds it goes ahead of the rows. `tile_size_input` rows
    of A and `tile_size_output` numbers of C are a tile; `kernel_vector_size` numbers are multiplied at once. Cores apply
    the steps of `prepare` to B and those of `finish` to every tile of C; what they read besides rides A's lanes too.

    Errors: ParamError where num_matrices * repeat is not num_batches, floats meet integers, or the arithmetic does not
    exist for A's format; FormatError where K is not whole blocks. Unresolvable where no array takes it.
    """

    linear_in = ("B",)
    folds = ("finish", "prepare")

    M: int = Param()
    K: int = Param()
    num_batches: int = Param(default=1)
    repeat: int = Param(default=1)
    num_matrices: int = Param(default=lambda op: op.num_batches // max(1, op.repeat))
    activations: str = Param(default="exact")
    experts: bool = Param(default=False)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    tile_size_input: int = Auto(domain=Divisors(of=lambda op: op.tile_size_output, cap=lambda op: MEMORY // (4 * op.K)))
    tile_size_output: int = Auto(domain=Divisors(of=lambda op: op.M // op.lanes, step=lambda op: op.tile_size_input, span=3))
    kernel_vector_size: int = Auto(array=True, domain=Choices(lambda op: _vectors(op.K)))
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1, domain=Choices((1, 2)))
    A = In(
        OptionalDim(num_matrices),
        M,
        K,
        dtype=W,
        tile=(tile_size_input, K),
        per=(num_aie_columns, num_channels),
        feed=True,
    )
    B = In(OptionalDim(num_batches), K, dtype=T, prepare=True)
    ids = In(num_batches, dtype=np.int32, when=experts)
    C = Out(OptionalDim(num_batches), M, dtype=O, tile=tile_size_output, per=(num_aie_columns, num_channels), finish=True)
    valid = Extent(M)
    batches = Value(derive=lambda op: op.num_batches)
    #: Tiles of C that a lane makes per batch.
    tiles = Value(derive=lambda op: -(-op.valid // (op.lanes * op.tile_size_output)))

    test = Testing(
        Case(M=64, K=64, lower=True),
        Case(M=64, K=96, num_batches=4, repeat=2, lower=True),
        Case(M=64, K=48, num_batches=2, num_channels=2, num_aie_columns=2, lower=True),
        Case(M=576, K=576, lower=True),
        Case(M=100, K=576, T=np.float32),
        Case(M=33, K=96, W=np.float32, T=np.float32, num_batches=4, repeat=2),
        Case(M=96, K=128, num_batches=3, lower=True),
        Case(M=48, K=160, W=bfloat16, T=np.float32),
        Case(M=48, K=160, W=np.float16, T=np.float32),
        *(
            Case(M=72, K=192, W=w, T=t, activations=a)
            for w in (Q4_0, Q4_1, Q8_0)
            for t in (np.dtype(np.float32), bfloat16)
            for a in arithmetic.ARITHMETIC
        ),
        Case(M=1536, K=576, W=Q4_1, T=np.float32, activations="int8_block", bench=True),
        Case(M=2048, K=2048, bench=True, lower=True),
        draw=dict(normal=("A", "B")),
    )

    def validate(self) -> None:
        if self.experts:
            raise ParamError("GEMV: matrices picked by ids= (experts=True) are reserved for a later version. Legal: no ids.")
        if self.repeat < 1:
            raise ParamError(f"GEMV: repeat={self.repeat}; legal: 1 or more.")
        if self.num_matrices * self.repeat != self.num_batches:
            whole, rest = divmod(self.num_batches, self.num_matrices)
            legal = f" Legal: repeat={whole}." if not rest else ""
            raise ParamError(
                f"GEMV: num_matrices={self.num_matrices} times repeat={self.repeat} is not num_batches={self.num_batches}.{legal}"
            )
        arithmetic.check("GEMV", self.activations, self.T, self.W, self.O)
        as_format(self.W).stored((self.M, self.K))  # FormatError where these are no whole blocks

    def _pairs(self, A: Any, B: Any) -> Any:
        matrices = A.reshape(self.num_matrices, self.M, self.K)
        rows = B.reshape(self.num_batches, self.K)
        return ((matrices[b // self.repeat], rows[b : b + 1]) for b in range(self.num_batches))

    def reference(self, A: Any, B: Any, ids: Any = None) -> Any:
        if self.activations == "int8_block":
            product = [arithmetic.block_product(m, x)[0] for m, x in self._pairs(A, B)]
        else:
            product = [arithmetic.numbers(m) @ widen(x)[0] for m, x in self._pairs(A, B)]
        return np.stack(product).reshape(self.shape("C"))

    def magnitude(self, A: Any, B: Any, ids: Any = None) -> Any:
        if self.activations == "int8_block":
            sums = [arithmetic.block_magnitude(m, x)[0] for m, x in self._pairs(A, B)]
        else:
            sums = [arithmetic.absolute(m) @ np.abs(widen(x)[0]) for m, x in self._pairs(A, B)]
        return np.stack(sums).reshape(self.shape("C"))

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.num_batches * self.M * self.K

    # -- the array ---------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Lanes of A and of C."""
        return self.num_aie_columns * self.num_channels

    def resolve(self, dev: Any) -> Any:
        self._bfloat16()
        channels = self.num_channels or 1
        vector = self.kernel_vector_size or next(iter(_vectors(self.K)), 0)
        if self.num_aie_columns and self.num_aie_columns > dev.columns:
            raise Unresolvable(f"GEMV: num_aie_columns={self.num_aie_columns}; {dev} has {dev.columns}.")
        widths = (self.num_aie_columns,) if self.num_aie_columns else range(dev.columns, 0, -1)
        for columns in widths:
            tiles = self._tiles(columns * channels)
            if tiles is not None:
                break
        else:
            # Nothing divides: compatible() says what would.
            columns, tiles = widths[-1], (self.tile_size_input or 1, self.tile_size_output or self.tile_size_input or 2)
        return self.evolve(
            num_aie_columns=columns,
            num_channels=channels,
            kernel_vector_size=vector,
            tile_size_input=tiles[0],
            tile_size_output=tiles[1],
        )

    def _tiles(self, lanes: int) -> tuple[int, int] | None:
        """Rows of a tile of A and of C that divide a lane's rows; None where there are none. As many as a bank holds."""
        rows, rest = divmod(self.M, lanes)
        if rest:
            return None
        most = min(ROWS, max(1, BANK // (2 * self.K)), self.tile_size_output or rows)
        # Under a bound a descriptor steps over the tiles of all lanes; what rides behind a tile costs a transfer for each.
        far = min(rows, ROWS_LINE) if any(self._riding("finish")) else min(ROWS_OUT, STEP // (lanes * self.K))
        for n in (self.tile_size_input,) if self.tile_size_input else range(most, 0, -1):
            outs = (self.tile_size_output,) if self.tile_size_output else range(n, max(far, n) + 1, n)
            # A call can bound C by whole tiles only if they are whole 16-byte units, 8 numbers.
            fits = [(out % 8 == 0, out) for out in outs if out % n == 0 and rows % out == 0 and self._carries(n, out)]
            if fits:
                return n, max(fits)[1]
        return None

    def _riding(self, chain: str) -> list[tuple[str, ...]]:
        """Per step of a chain, the operands it reads besides the tile: at most one."""
        return [riding(self, chain, step) for step in range(len(getattr(self, chain)))]

    def _carries(self, n: int, out: int) -> bool:
        """Is C's tile whole words, a line that its finish's kernels take, and what a tile of A holds a few times?"""
        if out % (16 if self.finish else 2) or (self.finish and out > ROWS_LINE):
            return False
        times, rest = divmod(n * self.K, out)
        return not any(self._riding("finish")) or (1 <= times <= ITERATIONS and not rest)

    def _bfloat16(self) -> None:
        for name in ("W", "T", "O"):
            dtype = getattr(self, name)
            if dtype != bfloat16:
                raise Unresolvable(
                    f"GEMV: {name}={dtype.name}; its array multiplies bfloat16 by bfloat16 into bfloat16. "
                    "Legal: T=W=O=bfloat16."
                )

    def local_bytes(self) -> int:
        """Bytes of a core's memory that the array takes: two tiles of A and of C, a line, scratch lines, words, stack."""
        tile, out = self.tile_size_input * self.K, self.tile_size_output
        scratch = (self.K if self.prepare else 0) + (out if self.finish else 0)
        stack = max(kernel.contract.stack for kernel in (self.kernel(), *self._steps("prepare"), *self._steps("finish")))
        return 2 * (2 * tile + self.K + 2 * out + scratch) + 8 + stack

    def chain_line(self, chain: str) -> int:
        return self.tile_size_output if chain == "finish" else self.K

    def _steps(self, chain: str) -> list[Any]:
        """The kernels of a chain."""
        return [link.at_line(self.chain_line(chain)).kernel() for link in getattr(self, chain)]

    def compatible(self) -> None:
        self._bfloat16()
        tile, out, vector = self.tile_size_input, self.tile_size_output, self.kernel_vector_size
        if vector not in _vectors(self.K):
            legal = " or ".join(map(str, _vectors(self.K)))
            if not legal:
                raise Unresolvable(f"GEMV: rows of K={self.K} are not whole vectors. Legal: K a multiple of 16, at least 32.")
            raise Unresolvable(f"GEMV: kernel_vector_size={vector}; rows of K={self.K} split into vectors of {legal}.")
        if self.num_channels not in (1, 2):
            raise Unresolvable(f"GEMV: num_channels={self.num_channels}; a column has 2 channels. Legal: 1, 2.")
        if not 1 <= tile <= ITERATIONS or out % tile or out % 2:
            raise Unresolvable(
                f"GEMV: tile_size_input={tile}, tile_size_output={out}. Legal: tile_size_input from 1 to {ITERATIONS}, "
                "tile_size_output a multiple of it, and even."
            )
        self._chains_fit()
        whole = self.lanes * out
        if self.M % whole:
            raise Unresolvable(
                f"GEMV: M={self.M} is not whole tiles of tile_size_output={out} rows over num_aie_columns="
                f"{self.num_aie_columns} x num_channels={self.num_channels} lanes. Nearest legal M: {_nearest(self.M, whole)}; "
                "or give tile_size_output= or num_aie_columns=."
            )
        if self.local_bytes() > MEMORY:
            raise Unresolvable(
                f"GEMV: tile_size_input={tile} rows of K={self.K} and tile_size_output={out} take {self.local_bytes()} bytes "
                f"of a core's {MEMORY} (two tiles of A are {4 * tile * self.K}). Legal: a smaller "
                f"{'K' if tile == 1 else 'tile_size_input'}."
            )

    def _chains_fit(self) -> None:
        """Unresolvable where a tile is no line for a chain's kernels, or no lane could carry what they read."""
        tile, out = self.tile_size_input * self.K, self.tile_size_output
        if not self._carries(self.tile_size_input, out):
            raise Unresolvable(
                f"GEMV.finish: tile_size_output={out} in a tile of A of {tile} (tile_size_input={self.tile_size_input}). "
                f"Legal: a multiple of 16, at most {ROWS_LINE}; where the finish reads another tensor, {tile} divided by 1 to "
                f"{ITERATIONS}."
            )
        for chain in ("prepare", "finish"):
            if any(len(names) > 1 for names in self._riding(chain)):
                raise Unresolvable(f"GEMV.{chain}: a step reads two tensors besides its tile. Legal: one.")
            self._steps(chain)

    def kernel(self) -> Any:
        """The `Kernel` of one tile of A."""
        return kernels_linalg.mv(self.tile_size_input, self.K, self.tile_size_output, self.kernel_vector_size)

    def array(self, target: Any) -> None:
        from iron_core.array import Buffer, ObjectFifo, Tile, Worker, range_

        chains = {chain: [*zip(getattr(self, chain), self._steps(chain), strict=True)] for chain in ("prepare", "finish")}

        def chained(chain: str, feed: Any, here: Any, there: Any) -> None:
            """Every step from one line to the other and back: kernels take no line twice."""
            size = self.chain_line(chain)
            for link, kernel in chains[chain]:
                others = [feed.acquire().sub(0, size) for _ in link.others]
                kernel(*link.arguments(here, others), there)
                for _ in others:
                    feed.release()
                here, there = there, here

        def ends(chain: str, last: Any, other: Any) -> tuple[Any, Any]:
            """Where a chain starts and where its first step writes, for the last to write `last`."""
            return (other, last) if len(chains[chain]) % 2 else (last, other)

        def core(feed: Any, result: Any, head: Any, product: Any, lines: Any, batches: Any, tiles: Any) -> None:
            line = lines[0]
            for _ in range_(batches):
                # The feed may not wait for the batch to end, so the line it brings is copied.
                first, second = ends("prepare", line, lines[1])
                head(feed.acquire(), first)
                feed.release()
                chained("prepare", feed, first, second)
                for _ in range_(tiles):
                    first, second = ends("finish", result.acquire(), lines[2])
                    for at in range_(0, self.tile_size_output, self.tile_size_input):
                        product(at, feed.acquire(), line, first)
                        feed.release()
                    chained("finish", feed, first, second)
                    result.release()

        product = self.kernel()
        head = kernels_linalg.head(self.tile_size_input, self.K)
        shims = [Tile("shim") for _ in range(self.num_aie_columns)]
        for lane in range(self.lanes):
            shim = shims[lane // self.num_channels]
            feed = ObjectFifo(self.A.tile, depth=self.A.depth, name=f"A{lane}")
            feed.prod(tile=self.A.lane(lane, shim))
            result = ObjectFifo(self.C.tile, depth=self.C.depth, name=f"C{lane}")
            result.cons(tile=self.C.lane(lane, shim))
            sizes = [("line", self.K), ("prepare", self.prepare and self.K), ("finish", self.finish and self.tile_size_output)]
            lines = [Buffer(n, self.W, name=f"{name}{lane}") if n else None for name, n in sizes]
            args = [feed.cons(), result.prod(), head, product, lines]
            Worker(core, args, values=[self.batches, self.tiles], name=f"core{lane}")

    def sequence(self, rt: Any) -> None:
        rt.preamble()
        lanes, rows, out = self.lanes, self.M // self.lanes, self.tile_size_output
        count = rt.length("tiles")
        if count is not None and out * 2 % 16:
            raise Unresolvable(
                f"GEMV: tile_size_output={out} of {rows} rows per lane; where calls bound M, legal: a multiple of 8. Give "
                "tile_size_output=, or num_aie_columns= that leaves a lane such tiles."
            )
        # A lane's rows: one run of them; where calls bound M, every lanes-th tile, so that all lanes share what is left.
        tile, tiles, step = (rows, 1, 0) if count is None else (out, rows // out, lanes * out)
        for lane in range(lanes):
            # One drain for all batches: the second could not start before the first is done.
            where = Pattern(lane * tile, (self.num_batches, tiles, tile), (self.M, step, 1))
            rt.drain("C", lane, where, managed=False, size_by=count and (1, count))
        behind = [name for names in self._riding("finish") for name in names]
        if behind and count is not None:
            raise Unresolvable(f"GEMV: M is bounded per call, and its finish reads {', '.join(behind)}. Legal: one of the two.")
        # What rides behind a tile of C comes between its rows and the next tile's.
        parts = rows // out if behind else 1
        for batch in range(self.num_batches):
            start = batch // self.repeat * self.M
            head = Pattern(batch * self.K, (self.tile_size_input, self.K), (0, 1))
            for name in ("B", *(name for names in self._riding("prepare") for name in names)):
                for lane in range(lanes):
                    rt.fill(name, lane, head, via="A", managed=False)
            for part in range(parts):
                for lane in range(lanes):
                    at, n = lane * tile + part * (tile // parts), tile // parts
                    which = Pattern((start + at) * self.K, (tiles, n * self.K), (step * self.K, 1))
                    rt.fill("A", lane, which, managed=False, size_by=count and (0, count))
                    again = Pattern(batch * self.M + at, (self.tile_size_input * self.K // out, out), (0, 1))
                    for name in behind:
                        rt.fill(name, lane, again, via="A", managed=False)

    def composed(self, A: Any, B: Any, ids: Any = None) -> Any:
        """Tile by tile of A, in float32, rounded once; which rows share a tile does not depend on lanes or bounds."""
        n = self.tile_size_input
        result = np.empty((self.num_batches, self.M), self.O)
        for b, (matrix, row) in enumerate(self._pairs(A, B)):
            for at in range(0, self.M, n):
                result[b, at : at + n] = round_to(kernels_linalg.products(matrix[at : at + n], row[0]), self.O)
        return result.reshape(self.shape("C"))


def _nearest(n: int, whole: int) -> int:
    """The multiple of `whole` closest to n, at least one."""
    return max(1, (2 * n + whole) // (2 * whole)) * whole
