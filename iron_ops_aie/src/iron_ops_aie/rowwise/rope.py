"""`RoPE`: rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, Value, Width, bfloat16, nearest, widen
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie.rowwise.rope_array import RoPEArray
from iron_ops_aie.rules import floats_only


class RoPE(RoPEArray, Operator):
    """Each pair of a row's numbers rotated by an angle: y1 = x1 c - x2 s, y2 = x1 s + x2 c.

    x, y: (rows, cols). angles: (angle_rows, cols), cosine and sine interleaved (c0, s0, c1, s1, ...); an angle row serves
    rows / angle_rows consecutive rows of x (the heads of one position). `method_type` 0 pairs number i with i + cols/2
    (the halves), 1 pairs neighbours 2i and 2i + 1. The table may have a dtype of its own (`A`). `valid` bounds rows and
    `angles_valid` angle_rows.

    The array (bfloat16 throughout): a core per column, which turns rows / angle_rows rows by each angle row it takes.

    Errors: ParamError for odd cols, rows that are not whole angle rows, an unknown method_type, integers. Unresolvable where
    no array takes it.
    """

    rows: int = Param()
    cols: int = Param()
    angle_rows: int = Param(default=lambda op: op.rows)
    rows_per_angle: int = Param(default=lambda op: op.rows // max(1, op.angle_rows))
    method_type: int = Param(default=0, array=True)
    T: Any = DType(default=bfloat16)
    A: Any = DType(default=lambda op: op.T)
    num_aie_columns: int = Auto(domain=Width())
    x = In(rows, cols, dtype=T, tile=cols, per=num_aie_columns)
    angles = In(angle_rows, cols, dtype=A, tile=cols, per=num_aie_columns)
    y = Out(rows, cols, dtype=T, tile=cols, per=num_aie_columns)
    valid = Extent(rows)
    angles_valid = Extent(angle_rows)
    #: Angle rows that a core takes, and rows that it turns by each.
    turns = Value(derive=lambda op: -(-op.valid // (op.num_aie_columns * op.rows_per_angle)))
    each = Value(derive=lambda op: op.rows_per_angle)

    test = Testing(
        Case(rows=32, cols=64, lower=True),
        Case(rows=24, cols=64, angle_rows=8, bounds=dict(valid=9, angles_valid=3), lower=True),
        Case(rows=27, cols=64, angle_rows=3, lower=True),
        Case(rows=24, cols=128, angle_rows=8, method_type=1, lower=True),
        Case(rows=9, cols=32, angle_rows=1, lower=True),
        Case(rows=27, cols=64, angle_rows=3, T=np.float32),
        Case(rows=27, cols=64, angle_rows=3, T=np.float32, method_type=1),
        Case(rows=9, cols=32, angle_rows=1, method_type=1),
        Case(rows=9, cols=32, angle_rows=9, T=bfloat16, A=np.float32),
        Case(rows=4608, cols=64, angle_rows=512, T=np.float32, bench=True),
        Case(rows=4608, cols=64, angle_rows=512, lower=True, bench=True),
        draw=lambda op: dict(centered=("x",), angles=_angles),
    )

    def validate(self) -> None:
        if self.cols % 2:
            raise ParamError(f"RoPE: cols={self.cols} is odd; numbers turn in pairs. Nearest legal cols: {nearest(self.cols, 2)}.")
        if self.rows_per_angle * self.angle_rows != self.rows:
            raise ParamError(f"RoPE: angle_rows={self.angle_rows} does not divide rows={self.rows}. Legal: a divisor of it.")
        if self.method_type not in (0, 1):
            raise ParamError(f"RoPE: method_type={self.method_type}; legal: 0 (halves), 1 (neighbours).")
        floats_only(self, "T", "A")

    def bounded(self, **extents: int) -> Any:
        """At the extents of a call an angle row serves as many rows as ever."""
        return super(RoPE, self.evolve(rows_per_angle=self.rows_per_angle)).bounded(**extents)

    def _pairs(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half = self.cols // 2
        return (x[:, :half], x[:, half:]) if self.method_type == 0 else (x[:, 0::2], x[:, 1::2])

    def _angles(self, angles: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
        table = np.repeat(widen(angles), self.rows_per_angle, 0)[:rows]
        if len(table) < rows:
            raise ShapeError(f"RoPE: {rows} rows at a call that has angles for {len(table)}; bound both alike.")
        return table[:, 0::2], table[:, 1::2]

    def reference(self, x: Any, angles: Any) -> Any:
        x1, x2 = self._pairs(widen(x))
        c, s = self._angles(angles, len(x))
        return self._join(x1 * c - x2 * s, x1 * s + x2 * c)

    def magnitude(self, x: Any, angles: Any) -> Any:
        x1, x2 = (np.abs(part) for part in self._pairs(widen(x)))
        c, s = (np.abs(part) for part in self._angles(angles, len(x)))
        return self._join(x1 * c + x2 * s, x1 * s + x2 * c)

    def _join(self, y1: np.ndarray, y2: np.ndarray) -> np.ndarray:
        if self.method_type == 0:
            return np.concatenate([y1, y2], 1)
        return np.stack([y1, y2], -1).reshape(len(y1), self.cols)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=2)

    def ops(self) -> int:
        return 3 * self.rows * self.cols


def _angles(op: Any, rng: np.random.Generator) -> np.ndarray:
    turn = rng.uniform(0, 2 * np.pi, (op.angle_rows, op.cols // 2))
    return np.stack([np.cos(turn), np.sin(turn)], -1).reshape(op.angle_rows, op.cols)
