"""The operator that a suite is about: its cases as parameters of tests, and what tests ask of a case."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from iron_core.declare.cases import cases
from iron_core.declare.operator import Operator
from iron_core.declare.rounding import round_to
from iron_core.declare.testing import Case
from iron_core.trials.trial import blank, several, stored


class OperatorSubject:
    """Set `operator`. Its test cases are the parameters of the tests that take a `case`.

    extensive: the cases beyond the default suite too. seed: of inputs' draw.
    """

    operator: ClassVar[type[Operator]]
    extensive: ClassVar[bool] = False
    seed: ClassVar[int] = 0

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Parameters by name: `case` is every case of the operator but those that are only timed."""
        if "case" in metafunc.fixturenames:
            found = self.cases()
            metafunc.parametrize("case", found, ids=[one.id for one in found])

    @classmethod
    def subject(cls) -> Any:
        """The operator class."""
        given = getattr(cls, "operator", None)
        if not (isinstance(given, type) and issubclass(given, Operator)):
            pytest.fail(f"{cls.__name__}: operator={given!r}; legal: an Operator class, as operator = SquaredReLU.", pytrace=False)
        return given

    @classmethod
    def cases(cls) -> Sequence[Case]:
        """None where its cases cannot be had: a test says why."""
        try:
            return _cases(cls.subject(), cls.extensive)
        except Exception:
            return ()

    def whole(self, case: Case) -> Any:
        """The operator of a case's fields."""
        return self.subject()(**case.fields)

    def bounded(self, case: Case) -> Any:
        """The operator of a case at its bounds."""
        return case.bounded(self.whole(case))

    def drawn(self, op: Any) -> tuple[Any, ...]:
        """Inputs in the order of `reference()`, None for those it does not have."""
        found = type(op).test.draw(op, np.random.default_rng(self.seed))
        return tuple(found.get(operand.name) for operand in op.inputs)

    @staticmethod
    def exact(op: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What its reference makes of them, as a tuple."""
        return several(op.reference(*inputs, **blank(op)))

    @staticmethod
    def written(op: Any) -> list[Any]:
        """The outputs it has."""
        return [operand for operand in op.outputs if operand.present(op)]

    @staticmethod
    def rounded(op: Any, operand: Any, numbers: Any) -> Any:
        """An output of these numbers (of a packed one, of these bytes), rounded once."""
        format = op.format(operand.name)
        made = round_to(numbers, format.dtype)
        return format.tensor(made, op.shape(operand.name)) if format.packed else made

    @staticmethod
    def bits(tensor: Any) -> bytes:
        """Of a tensor, or of none."""
        return b"" if tensor is None else stored(tensor).tobytes()


@cache
def _cases(operator: Any, extensive: bool) -> Sequence[Case]:
    return [case for _, case, _ in cases([operator], extensive=extensive, bench=False)]
