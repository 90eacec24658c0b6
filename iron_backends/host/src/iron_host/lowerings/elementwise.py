"""Elementwise operators on the host: the loops of elementwise.h over one C++ operation each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.field import Auto
from iron_core.declare.rounding import held
from iron_host.build import Header
from iron_host.kernels import BINARY, CLAMP, LOG_SUM, QUANTIZE, QUANTIZE_FITTED, ROWWISE, UNARY
from iron_host.lowerings.template import TemplateLowering


class Elementwise(TemplateLowering):
    """`template<operation, T>`. An operation is a struct with a function `of`, of vectors of eight floats."""

    header: ClassVar[str | Header] = "elementwise.h"
    operation: ClassVar[str] = ""

    @property
    def label(self) -> str:
        return self.operation.rpartition("::")[2]

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (self.operation, *super().arguments(op))


class Numbered(Elementwise):
    """An operation that may take a number besides its vectors."""

    def number(self, op: Any) -> float:
        """What the operation is given besides x, or a and b, if it takes a number."""
        return 0.0

    def numbers(self, op: Any) -> Mapping[str, Any]:
        return {"number": self.number(op)}


class Unary(Numbered):
    """y = operation(x), or of x and a number."""

    template, slots = "unary", UNARY
    grain = Auto(32768)


class Binary(Numbered):
    """y = operation(a, b), or of a, b and a number."""

    template, slots = "binary", BINARY


class Rowwise(Elementwise):
    """Each row y = operation(x, vector); rows are shared among threads."""

    template, slots = "rowwise", ROWWISE

    @property
    def label(self) -> str:
        return f"rowwise {super().label}"


class AXPY(Binary):
    operator, operation = "iron_ops_aie.AXPY", "op::AXPY"

    def number(self, op: Any) -> float:
        return held(op.scalar_factor, op.T)


class Clamp(TemplateLowering):
    operator = "iron_ops_aie.Clamp"
    header, template, slots = "elementwise.h", "clamp", CLAMP
    grain = Auto(32768)

    def numbers(self, op: Any) -> Mapping[str, Any]:
        return {"low": held(op.low, op.T), "high": held(op.high, op.T)}


class ElementwiseAdd(Binary):
    operator, operation = "iron_ops_aie.ElementwiseAdd", "op::Add"


class ElementwiseMax(Binary):
    operator, operation = "iron_ops_aie.ElementwiseMax", "op::Max"


class ElementwiseMul(Binary):
    operator, operation = "iron_ops_aie.ElementwiseMul", "op::Mul"


class RowwiseAdd(Rowwise):
    operator, operation = "iron_ops_aie.RowwiseAdd", "op::Add"


class RowwiseMul(Rowwise):
    operator, operation = "iron_ops_aie.RowwiseMul", "op::Mul"


class LeakyReLU(Unary):
    operator, operation = "iron_ops_aie.LeakyReLU", "op::LeakyReLU"

    def number(self, op: Any) -> float:
        return held(op.alpha, op.T)


class Log(TemplateLowering):
    operator = "iron_ops_aie.Log"
    header, template, slots = "elementwise.h", "log_sum", LOG_SUM
    grain = Auto(4096)


class Quantize(TemplateLowering):
    operator = "iron_ops_aie.Quantize"
    header, template, slots = "elementwise.h", "quantize", QUANTIZE
    grain = Auto(32768)

    def step(self, op: Any, *rest: Any) -> Any:
        return _Fitted().step(op, *rest) if op.measured else super().step(op, *rest)


class _Fitted(TemplateLowering):
    """A `Quantize` that finds its scale."""

    header, template, slots = "elementwise.h", "quantize_fitted", QUANTIZE_FITTED

    def work(self, op: Any) -> int:
        return 0  # one thread's


class ReLU(Unary):
    operator, operation = "iron_ops_aie.ReLU", "op::ReLU"


class Scale(Unary):
    operator, operation = "iron_ops_aie.Scale", "op::Scale"

    def number(self, op: Any) -> float:
        return float(op.factor)


class Exponential(Unary):
    """An exponential costs several additions, so `grain` is small."""

    grain = Auto(4096)


class GELU(Exponential):
    operator, operation = "iron_ops_aie.GELU", "op::GELU"

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (self.operation if op.approximate == "tanh" else "op::GELUExact", *super().arguments(op)[1:])


class SiLU(Exponential):
    operator, operation = "iron_ops_aie.SiLU", "op::SiLU"


class Sigmoid(Exponential):
    operator, operation = "iron_ops_aie.Sigmoid", "op::Sigmoid"


class Softplus(Exponential):
    operator, operation = "iron_ops_aie.Softplus", "op::Softplus"


class SoftCap(Exponential):
    operator, operation = "iron_ops_aie.SoftCap", "op::SoftCap"

    def number(self, op: Any) -> float:
        return float(op.cap)


class Tanh(Exponential):
    operator, operation = "iron_ops_aie.Tanh", "op::Tanh"
