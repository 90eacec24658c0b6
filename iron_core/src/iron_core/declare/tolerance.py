"""How far from the exact result an output may be, and the judge that says so."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import bfloat16
from iron_core.declare.keywords import declaration, in_class
from iron_core.declare.rounding import round_to
from iron_core.errors import DeclarationError, DeviationError

EPS32 = 2.0**-24  # unit roundoff of float32

_MANTISSA = {np.dtype(np.float32): 23, np.dtype(np.float16): 10, bfloat16: 7}
_TINY = {np.dtype(np.float32): -126, np.dtype(np.float16): -14, bfloat16: -126}


@attrs.frozen
class Deviation:
    """The worst element seen: its absolute error, the bound it had, and their ratio."""

    error: float = 0.0
    bound: float = 0.0
    ratio: float = 0.0
    compared: int = 0

    def worse(self, other: Deviation) -> Deviation:
        """The worse of two, counting what both compared."""
        worst = self if self.ratio >= other.ratio else other
        return attrs.evolve(worst, compared=self.compared + other.compared)


def ulp(values: Any, dtype: np.dtype) -> np.ndarray:
    """Spacing of `dtype` at |values|, float64."""
    values = np.asarray(values, np.float64)
    exponent = np.where(values == 0, _TINY[dtype], np.frexp(values)[1] - 1)  # frexp gives zero the exponent of 0.5
    return np.ldexp(1.0, np.maximum(exponent, _TINY[dtype]) - _MANTISSA[dtype])


def _number(instance: Any, attribute: Any, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, np.ndarray)):
        raise DeclarationError(f"{in_class()}Tolerance({attribute.name}={value!r}): legal: a number.")


def _flag(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise DeclarationError(
            f"{in_class()}Tolerance({attribute.name}={value!r}): legal: True or False; a number is given as terms=, ulps= or absolute=."
        )


@declaration
@attrs.frozen
class Tolerance:
    """exact: bit equality. Otherwise |error| <= `ulps` units of the output dtype's last place at the exact result
    (float32: of the final rounding; bfloat16 and float16: 2 unless given) plus `(terms + 8) * 2^-24 * magnitude`,
    the rounding of a float32 accumulation of `terms` terms whose absolute values add up to `magnitude`.

    absolute: a floor added to every bound.
    """

    exact: bool = attrs.field(default=False, validator=_flag)
    terms: float = attrs.field(default=0.0, validator=_number)
    ulps: float = attrs.field(default=2.0, validator=_number)
    absolute: float = attrs.field(default=0.0, validator=_number)

    @classmethod
    def within(cls, limit: Any) -> Tolerance:
        """At most `limit` from the exact result, a number or float64 per element, and nothing besides."""
        return cls(terms=-8, ulps=0, absolute=limit)

    def bound(self, exact: np.ndarray, dtype: np.dtype, magnitude: Any = None) -> np.ndarray:
        """Per element, the largest error the contract allows (float64)."""
        exact = np.asarray(exact, np.float64)
        scale = np.abs(exact) if magnitude is None else np.abs(np.asarray(magnitude, np.float64))
        return self.ulps * ulp(exact, dtype) + (self.terms + 8) * EPS32 * scale + self.absolute

    def check(self, got: Any, exact: Any, dtype: np.dtype, magnitude: Any = None, what: str = "output") -> Deviation:
        """Judge `got`; DeviationError names the worst element."""
        got, exact = np.asarray(got), np.asarray(exact)
        if got.shape != exact.shape:
            raise DeviationError(f"{what}: shape {got.shape}, exact {exact.shape}.")
        if self.exact or dtype not in _MANTISSA:
            want = round_to(exact, dtype)
            same = (got == want) | ((got != got) & (want != want))
            if not same.all():
                at = np.unravel_index(int(np.argmin(same)), same.shape) if same.ndim else ()
                raise DeviationError(
                    f"{what}{[int(i) for i in at]}: got {got[at]}, exact {want[at]}; "
                    f"{int((~same).sum())} of {same.size} differ where the contract is exact."
                )
            return Deviation(compared=got.size)
        if not got.size:
            return Deviation()
        limit = self.bound(exact, dtype, magnitude)
        wide, exact = got.astype(np.float64), exact.astype(np.float64)
        rounded = round_to(exact, dtype).astype(np.float64)  # infinite where out of the dtype's range
        same = (wide == exact) | (np.isinf(rounded) & (wide == rounded)) | (np.isnan(wide) & np.isnan(exact))
        with np.errstate(all="ignore"):
            error = np.where(same, 0.0, np.abs(wide - exact))
            error = np.where(np.isnan(error), np.inf, error)
            ratio = np.where(error == 0, 0.0, error / limit)
            ratio = np.where(np.isnan(ratio), np.inf, ratio)  # an infinite error is out of any bound
        worst = int(np.argmax(ratio))
        at = np.unravel_index(worst, ratio.shape) if ratio.ndim else ()
        if ratio[at] > 1:
            raise DeviationError(
                f"{what}{[int(i) for i in at]}: got {wide[at]:.9g}, exact {exact[at]:.9g}; error {error[at]:.3g} where "
                f"the contract allows {limit[at]:.3g} ({dtype}); {int((ratio > 1).sum())} of {ratio.size} are out."
            )
        return Deviation(float(error[at]), float(limit[at]), float(ratio[at]), got.size)


def allclose(got: Any, want: Any, rtol: float = 1e-2, atol: float = 1e-3) -> bool:
    """Are two arrays (of any float dtype, bfloat16 included) equal within `atol + rtol * |want|`?"""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return got.shape == want.shape and bool(np.allclose(got, want, rtol=rtol, atol=atol))
