"""`Projection`: the matrices of a part that multiply the same rows; `project`: rows times one matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core import PackedArray
from iron_core.declare.formats import format_of
from iron_core.errors import DeclarationError
from iron_lm.int8 import FIXED, INT8, numbers_of
from iron_lm.parts.fused_product import fused_product
from iron_lm.run import Run
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, Quantize, QuantizeRows, RowwiseAdd


def project(x: Any, weight: Any, activations: str = "exact", out: Any = None, bias: Any = None, own_order: bool = False) -> Any:
    """x (rows, K) times weight (N, K) transposed, plus bias (N,) -> (rows, N): GEMV for one row, or for a weight of one row (whose
    vector it is, stored as x is); for more (or for rows a call bounds) GEMM, or on arrays `flm.GEMM` where it takes them
    (`fused_product`).

    activations: the arithmetic where the weight is block-quantised. out: the dtype of the result (x's by default). own_order: as
    `Run` has it.
    """
    extra: dict[str, Any] = {} if out is None else {"O": out}
    if format_of(weight).packed:
        extra["activations"] = activations
    elif weight.shape[0] == 1 and weight.dtype == x.dtype and not _single(x):
        y = GEMV(x, weight.reshape(weight.shape[1]), **extra).reshape(-1, 1)
        return y if bias is None else biased(y, bias)
    elif own_order and not _single(x):
        extra["own_order"] = True
    y = _product(x, weight, **extra)
    return y if bias is None else biased(y, bias)


def biased(y: Any, bias: Any) -> Any:
    """y (rows, N) plus bias (N,), which may be stored in another dtype than the one that y is computed in."""
    return RowwiseAdd(y, bias if bias.dtype == y.dtype else Copy(bias, Y=y.dtype))


def _single(x: Any) -> bool:
    """One row, whatever a call is given?"""
    return bool(x.shape[0] == 1 and not x.bounds)


def _product(x: Any, weight: Any, **extra: Any) -> Any:
    if _single(x):
        return GEMV(weight, x.reshape(x.shape[1]), **extra).reshape(1, -1)
    fused, _ = fused_product(*x.shape, weight.shape[0], x.dtype, format_of(weight).spec, extra.get("O", x.dtype))
    return GEMM(x, weight, b_col_maj=True, **extra) if fused is None else fused(x, weight, b_col_maj=True)


def low_rank(name: str) -> tuple[str, str]:
    """What a part calls the two matrices of the step that is added to one of its own."""
    return f"{name}_lora_a", f"{name}_lora_b"


@attrs.frozen(eq=False)
class Integers:
    """A matrix of int8 as a graph holds it; `scale` is what one unit stands for."""

    values: Any
    scale: float


class Projection:
    """Matrices of a part that multiply the same rows, (N, K) each, which the part needs under these names.

        self.qkv = Projection(self, run, q=(64, 48), k=(16, 48), v=(16, 48))
        q, k, v = self.qkv(x)

    In a model that `run` quantises they are one matrix instead, one below another, of integers with one scale: x is rounded
    once and multiplied once. The part is then filled with that matrix, which is called by all their names (`q+k+v`).
    """

    def __init__(self, part: Any, run: Run, **shapes: tuple[int, int]) -> None:
        self._part, self._run, self._shapes = part, run, shapes
        self.joined: Integers | None = None
        self._adapted: set[str] = set()
        part.needs(**shapes)
        vars(part).setdefault("_projections", []).append(self)

    @property
    def quantized(self) -> bool:
        """Is it one matrix of integers?"""
        return self._run.quantize is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The part's names of the matrices."""
        return tuple(self._shapes)

    @property
    def name(self) -> str:
        """What the matrix made of all of them is called."""
        return "+".join(self._shapes)

    @property
    def shape(self) -> tuple[int, int]:
        """Of all matrices, one below another."""
        heights, widths = zip(*self._shapes.values(), strict=True)
        return sum(heights), widths[0]

    def arranged(self, weights: Mapping[str, Any]) -> list[Any]:
        """The part's own of these matrices, by name, with their rows in the order in which its body takes them."""
        return [self._part.arranged(name, weights[name]) for name in self._shapes]

    def held(self, name: str, array: PackedArray) -> Integers:
        """The matrix that the part is filled with, in the format `int8.INT8`, as a graph holds it."""
        if format_of(array) != INT8:
            where = f"{type(self._part).__name__}: {self.name}"
            raise DeclarationError(f"{where} is given as {format_of(array)}; legal: {INT8}, which iron_lm.quantizing.quantized() makes.")
        values, scale = numbers_of(array)
        return Integers(iron.weight(values), scale)

    def adapt(self, **ranks: int) -> None:
        """Add to what matrices of these names give a step of low rank, x times a transposed times b transposed, whatever they are stored
        in. The part then needs a (rank, K) and b (N, rank) too, under the names that `low_rank` gives, b's rows in the body's order."""
        for name, rank in ranks.items():
            (height, width), (a, b) = self._shapes[name], low_rank(name)
            self._part.needs(**{a: (rank, width), b: (height, rank)})
        self._adapted |= ranks.keys()

    def __call__(self, x: Any, bias: Any = None) -> Any:
        """x (rows, K) times each matrix transposed -> (rows, N), a tuple of them where there are several. bias (N,): is added to
        what a single matrix gives."""
        found = self._each(x) if self.joined is None else self._cut(self._multiplied(x, self.joined))
        if self._adapted:
            found = tuple(self._stepped(x, name, y) for name, y in zip(self._shapes, found, strict=True))
        if len(found) > 1:
            return found
        return found[0] if bias is None else biased(found[0], bias)

    def _each(self, x: Any) -> tuple[Any, ...]:
        return tuple(project(x, getattr(self._part, name), self._run.activations, own_order=self._run.own_order) for name in self._shapes)

    def _stepped(self, x: Any, name: str, y: Any) -> Any:
        """y, what a matrix gave, and the step of low rank beside it where it has one."""
        if name not in self._adapted:
            return y
        for matrix in low_rank(name):
            x = project(x, getattr(self._part, matrix), own_order=self._run.own_order)
        return ElementwiseAdd(y, x)

    def _multiplied(self, x: Any, matrix: Integers) -> Any:
        """All of them at once: x as integers, times integers, times what a unit of either stands for."""
        if self._run.activation_scale == "dynamic":
            integers, found = QuantizeRows(x)
            return _product(integers, matrix.values, scale=matrix.scale, row_scale=found, O=x.dtype)
        scale = float(np.float32(FIXED) * np.float32(matrix.scale))
        return _product(Quantize(x, scale=FIXED), matrix.values, scale=scale, O=x.dtype)

    def _cut(self, y: Any) -> tuple[Any, ...]:
        """What each matrix gave, of the rows of all. Those of one row lie together; of several they are copied apart."""
        if len(self._shapes) == 1:
            return (y,)
        found, at = [], 0
        for height, _ in self._shapes.values():
            part = slice(at, at + height)
            found.append(y.reshape(y.shape[1])[part].reshape(1, height) if y.shape[0] == 1 else Copy(y[:, part]))
            at += height
        return tuple(found)
