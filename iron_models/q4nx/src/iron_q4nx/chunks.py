"""The chunks of a quantised matrix: their kind by their bytes, their number by the matrix's shape, and what nothing in them says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iron_core import Q4NX, Format
from iron_core.declare.formats import Q4NX_K, Q4NX_MXFP4, Q4NX_Q8, Q4NX_SIGNED, Q4NX_ZERO
from iron_core.errors import CheckpointError, FormatError

#: What 4-bit chunks were made from; "minima": Q4_0 where all minima of a matrix are 0, Q4_1 where not.
SAID = ("Q4_0", "Q4_1", "minima")
#: The dtypes under which chunks stand as they are, and that of files whose second table are zero points.
BYTES, ZERO_POINTS = ("I8", "U8"), "Q4NX"
FOUR_BITS = Q4NX.block_bytes
_KINDS: dict[int, Format] = {format.block_bytes: format for format in (Q4NX, Q4NX_Q8, Q4NX_K, Q4NX_MXFP4)}
_OTHERS = {
    9216: "an 8-bit variant with minima, which FastFlowLM does not load either",
    4608: "an 8-bit variant of 128 columns, which FastFlowLM does not load either",
    1280: "a smaller chunk, whose rows and columns nobody has written down",
}
#: Chunks that are looked at before a matrix is believed to be what it seems, and that are read at a time.
_LOOKED_AT, _PIECE = 8, 256


def format_of(dtype: str, shape: tuple[int, ...]) -> Format:
    """The format of a tensor of this dtype and shape in the header, a 4-bit one taken for Q4_1's. CheckpointError for chunks of
    bytes that no kind has."""
    if dtype == ZERO_POINTS:
        return Q4NX_ZERO
    if dtype not in BYTES or len(shape) not in (2, 3):
        legal = f"F32, F16, BF16, {ZERO_POINTS}, or {BYTES[0]} of [chunks, bytes] or [rows / 32, columns / 256, bytes]"
        raise CheckpointError(f"is {dtype[:40]!r} {list(shape)[:4]}. Legal: {legal}.")
    if shape[-1] not in _KINDS:
        what = f": {_OTHERS[shape[-1]]}" if shape[-1] in _OTHERS else ""
        raise CheckpointError(f"has chunks of {shape[-1]} bytes{what}. Legal: {', '.join(map(str, sorted(_KINDS)))}.")
    return _KINDS[shape[-1]]


def check_shape(format: Format, dtype: str, header: tuple[int, ...], shape: tuple[int, int]) -> None:
    """CheckpointError unless a tensor that the header gives these dtype and shape is a matrix of `shape`, in whole rows of chunks."""
    try:
        format.stored(shape)
    except FormatError as error:
        raise CheckpointError(f"is {list(shape)} by config.json; {error}") from None
    found = header if dtype == ZERO_POINTS else header[:-1]
    wanted, turned = (_in_header(format, dtype, len(found), matrix) for matrix in (shape, shape[::-1]))
    if found != wanted:
        what = ", which its transpose would have" if found == turned else ""
        legal = [*wanted, *header[len(found) :]]
        raise CheckpointError(f"is {list(header)} in the header{what}; it is {list(shape)} by config.json. Legal: {legal}.")


def _in_header(format: Format, dtype: str, axes: int, shape: tuple[int, int]) -> tuple[int, ...]:
    """What a header says of a matrix: its shape, or its chunks, in rows or all in one."""
    rows, columns = shape[0] // format.block[0], -(-shape[1] // format.block[1])
    return shape if dtype == ZERO_POINTS else (rows, columns) if axes == 2 else (rows * columns,)


def check_bytes(chunks: np.ndarray) -> None:
    """CheckpointError for 4-bit chunks, uint8 (n, 5120), that are 8-bit ones of 128 columns, filled up: their scales stand twice."""
    some = chunks[_evenly(len(chunks), _LOOKED_AT)]
    some = some[some[:, :512].any(-1)]
    if len(some) and np.array_equal(some[:, :256], some[:, 256:512]) and not some[:, -512:].any():
        raise CheckpointError("looks like the 8-bit variant that is filled up to 5120 bytes, which FastFlowLM does not load either.")


def has_minima(chunks: np.ndarray, most: int | None = None) -> bool:
    """Is any minimum of 4-bit chunks, uint8 (n, 5120), not 0? Of Q4_0's none is. most: chunks that are looked at; all by default."""
    places = np.arange(len(chunks)) if most is None else _evenly(len(chunks), most)
    return any(chunks[some, 512:1024].any() for some in _pieces(places))


def signed_or_not(chunks: np.ndarray, said: str) -> Format:
    """The format of 4-bit chunks, uint8 (n, 5120), of which one of `SAID` is said. CheckpointError where they contradict it."""
    if said == "minima":
        return Q4NX if has_minima(chunks) else Q4NX_SIGNED
    if said == "Q4_0" and has_minima(chunks, _LOOKED_AT):
        raise CheckpointError("has minima that are not 0, and is said to be made from Q4_0, which has none. Legal: Q4_1, minima.")
    return Q4NX_SIGNED if said == "Q4_0" else Q4NX


def evidence(matrices: list[np.ndarray]) -> str:
    """What speaks for Q4_0 or Q4_1, of matrices of 4-bit chunks, uint8 (n, 5120), a few of which are looked at."""
    with_minima = sum(has_minima(chunks, _LOOKED_AT) for chunks in matrices)
    if not with_minima:
        return f"all minima looked at in its {len(matrices)} matrices are 0, as Q4_0's are"
    return f"{with_minima} of {len(matrices)} matrices have minima that are not 0; Q4_0's all are"


def _evenly(count: int, most: int) -> np.ndarray:
    """Up to `most` places from the first of `count` to the last."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def _pieces(places: np.ndarray) -> Iterator[np.ndarray]:
    return (places[at : at + _PIECE] for at in range(0, len(places), _PIECE))
