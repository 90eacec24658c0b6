"""What an operator declares, on no backend: fields, operands, cases, identity, reference and tolerance."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest

from iron_core.declare.formats import PackedArray
from iron_core.declare.identity import contract_key, label
from iron_core.declare.infer import infer
from iron_core.declare.rounding import widen
from iron_core.declare.testing import Case
from iron_core.declare.tolerance import Tolerance
from iron_core.errors import DeviationError, IronError
from iron_core.plugins.registry import registry
from iron_core.testing.operator_subject import OperatorSubject
from iron_core.trials.trial import stored


class OperatorContract(OperatorSubject):
    """name: what it is registered as (`acme.SquaredReLU`), which is then looked up. infers: do shapes say every field that is a dimension
    of an operand, in a graph's body? Not of an operator whose operands are views of larger tensors."""

    name: ClassVar[str] = ""
    infers: ClassVar[bool] = True

    # -- declaration ----------------------------------------------------------------------------------

    def test_it_writes_something(self) -> None:
        """An operator has an output at least."""
        assert self.subject().outputs, "no Out or InOut among its operands"

    def test_it_is_documented(self) -> None:
        """Its docstring, or that of the class it derives from, speaks of every operand."""
        cls = self.subject()
        text = "".join(base.__doc__ or "" for base in cls.__mro__[:2])
        assert inspect.getdoc(cls), "no docstring"
        silent = [operand for operand in cls.operands if not re.search(rf"\b{operand}\b", text)]
        assert not silent, f"the docstring does not say what {', '.join(silent)} is"

    def test_it_has_cases(self) -> None:
        """`test = Testing(Case(...))` gives one case at least, and no two are called alike."""
        found = [case.id for case in self.subject().test.cases(self.subject())]
        assert found, "without a Case nothing is tested"
        assert len(set(found)) == len(found), "two cases have one id; give one of them id="

    def test_every_extent_is_bounded_in_a_case(self) -> None:
        """What a call may bound is bounded in some case: `Case(..., bounds=dict(valid=3))`."""
        bounded = {member for case in self.subject().test.cases(self.subject()) for member in case.bounds}
        assert bounded == set(self.subject().extents)

    def test_a_case_makes_an_operator(self, case: Case) -> None:
        """Its fields are legal, and every operand has a shape and a format; the operator shows itself on one line."""
        op = self.whole(case)
        assert op.present and all(n > 0 for name in op.present for n in op.shape(name))
        assert all(op.format(name).nbytes(op.shape(name)) > 0 for name in op.present)
        assert type(op).__name__ in repr(op) and "\n" not in repr(op)

    def test_a_field_that_is_none_is_refused(self, case: Case) -> None:
        """A misspelt keyword is an error that names it."""
        with pytest.raises(IronError, match="no_such_field"):
            self.subject()(**case.fields, no_such_field=1)

    def test_a_field_that_is_missing_is_named(self) -> None:
        """An operator without a field that it needs is an error that names the field."""
        case = next(iter(self.cases()), Case())
        for name, field in self.subject().fields.items():
            if field.required and name in case.fields:
                with pytest.raises(IronError, match=name):
                    self.subject()(**{other: value for other, value in case.fields.items() if other != name})

    def test_a_dimension_below_one_is_refused(self) -> None:
        """No extent is 0 or negative; the error names the field."""
        case = next(iter(self.cases()), Case())
        for extent in {extent.field for extent in self.subject().extents.values()} & case.fields.keys():
            for n in (0, -1):
                with pytest.raises(IronError, match=extent):
                    self.subject()(**case.fields | {extent: n})

    def test_it_is_found_by_its_name(self) -> None:
        """The name it is registered as leads to this class, and to no other distribution's."""
        if not self.name:
            pytest.skip("name = 'acme.SquaredReLU' says what it is registered as")
        assert registry().load("operators", self.name) is self.subject()

    # -- identity -------------------------------------------------------------------------------------

    def test_two_spellings_of_one_operator_have_one_key(self, case: Case) -> None:
        """Fields left to their rules, and the same fields given, are one contract."""
        op = self.whole(case)
        same = self.subject()(**{name: getattr(op, name) for name in type(op).fields})
        assert contract_key(op) == contract_key(same) and label(op) == label(same)

    def test_other_shapes_are_another_contract(self) -> None:
        """Two cases have one contract only where their operands agree."""
        known: dict[Any, Any] = {}
        for case in self.cases():
            op = self.whole(case)
            shapes = [(name, op.shape(name), op.format(name)) for name in op.present]
            assert known.setdefault(contract_key(op), shapes) == shapes, case

    def test_shapes_and_dtypes_say_what_the_operands_can(self, case: Case) -> None:
        """A call on a case's own operands needs only those fields that no shape shows."""
        if not self.infers or {"src", "dst"} & case.fields.keys():
            pytest.skip("its operands are views of larger tensors")
        op = self.whole(case)
        shapes = {name: (op.shape(name), op.format(name)) for name in op.present}
        shown = {op.operands[name].dtype.name for name in op.present if hasattr(op.operands[name].dtype, "name")}
        shown |= {axis for name in op.present for axis in op.operands[name].axes(op) if isinstance(axis, str)}
        hidden = {name: value for name, value in case.fields.items() if name not in shown}
        assert contract_key(type(op)(**infer(type(op), shapes, hidden))) == contract_key(op)

    # -- inputs ---------------------------------------------------------------------------------------

    def test_inputs_are_drawn_as_they_are_declared(self, case: Case) -> None:
        """An input for every operand that is read, in its shape and format; the same ones of the same seed."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        for operand, tensor in zip(op.inputs, inputs, strict=True):
            assert (tensor is not None) == operand.present(op), operand.name
            if tensor is not None:
                format = op.format(operand.name)
                assert tuple(tensor.shape) == op.shape(operand.name), operand.name
                assert tensor.format == format if isinstance(tensor, PackedArray) else tensor.dtype == format.dtype, operand.name
        assert list(map(self.bits, inputs)) == list(map(self.bits, self.drawn(op)))

    def test_inputs_are_finite(self, case: Case) -> None:
        """A NaN equals whatever a NaN makes: nothing is compared by it."""
        for tensor in self.drawn(self.bounded(case)):
            if tensor is not None and not isinstance(tensor, PackedArray):
                assert np.isfinite(np.asarray(tensor).astype(np.float64)).all()

    # -- reference ------------------------------------------------------------------------------------

    def test_the_reference_gives_every_output(self, case: Case) -> None:
        """As many arrays as there are outputs, each with as many numbers as its operand has."""
        op = self.bounded(case)
        exact, written = self.exact(op, self.drawn(op)), self.written(op)
        assert len(exact) == len(written)
        for operand, array in zip(written, exact, strict=True):
            assert stored(array).size == math.prod(op.format(operand.name).stored(op.shape(operand.name))), operand.name

    def test_the_reference_is_finite(self, case: Case) -> None:
        """On the case's own inputs it makes numbers, not NaN or infinity, of which nothing could be said."""
        op = self.bounded(case)
        for array in self.exact(op, self.drawn(op)):
            assert np.isfinite(np.asarray(stored(array)).astype(np.float64)).all()

    def test_the_reference_leaves_its_inputs_as_they_were(self, case: Case) -> None:
        """It is given the caller's arrays, not copies."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        before = list(map(self.bits, inputs))
        self.exact(op, inputs)
        assert list(map(self.bits, inputs)) == before

    def test_the_reference_is_a_function(self, case: Case) -> None:
        """The same inputs twice give the same bits: no random numbers, nothing kept between calls."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        first = list(map(self.bits, self.exact(op, inputs)))
        assert list(map(self.bits, self.exact(op, inputs))) == first

    def test_the_reference_widens_before_it_computes(self, case: Case) -> None:
        """It upcasts, computes and leaves rounding to Iron: inputs of 16 bits give what the same numbers in float32 give."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        narrow = [i for i, one in enumerate(inputs) if isinstance(one, np.ndarray) and one.dtype.kind not in "iub" and one.itemsize == 2]
        if not narrow or any(op.format(operand.name).packed for operand in self.written(op)):
            pytest.skip("it reads no numbers of 16 bits")
        wide = tuple(widen(one) if i in narrow else one for i, one in enumerate(inputs))
        exact = self.exact(op, inputs)
        made = tuple(self.rounded(op, o, e) for o, e in zip(self.written(op), self.exact(op, wide), strict=True))
        self.judge(op, made, exact, inputs)

    # -- tolerance ------------------------------------------------------------------------------------

    def judge(self, op: Any, made: tuple[Any, ...], exact: tuple[Any, ...], inputs: tuple[Any, ...]) -> Any:
        """By the operator's own gate."""
        pairs = zip(made, exact, strict=True)
        shaped = tuple(m if isinstance(m, PackedArray) else np.asarray(m).reshape(np.shape(e)) for m, e in pairs)
        return op.check(shaped if len(made) > 1 else shaped[0], exact if len(exact) > 1 else exact[0], *inputs)

    def test_the_reference_rounded_is_within_its_tolerance(self, case: Case) -> None:
        """The exact answer in the output's dtype passes, and every number of it was compared."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        exact = self.exact(op, inputs)
        made = tuple(self.rounded(op, o, stored(e)) for o, e in zip(self.written(op), exact, strict=True))
        assert self.judge(op, made, exact, inputs).compared == sum(stored(e).size for e in exact)

    def test_a_wrong_answer_is_out_of_its_tolerance(self, case: Case) -> None:
        """No contract is so wide that an answer whose largest number is off by a twentieth passes."""
        self._out_of_tolerance(case, lambda number, whole: number + (1 if number <= 0 else -1) if whole else 0.95 * number)

    def test_no_number_is_no_answer(self, case: Case) -> None:
        """A NaN where a number is to be does not pass."""
        op = self.bounded(case)
        if any(op.format(operand.name).dtype.kind in "iub" for operand in self.written(op)[:1]):
            pytest.skip("its output has no NaN")
        self._out_of_tolerance(case, lambda number, whole: math.nan)

    def _out_of_tolerance(self, case: Case, spoilt: Any) -> None:
        op = self.bounded(case)
        inputs = self.drawn(op)
        exact = self.exact(op, inputs)
        wrong = [np.array(stored(e), np.float64) for e in exact]
        at = np.unravel_index(np.argmax(np.abs(wrong[0])), wrong[0].shape)
        if not wrong[0].size or (wrong[0][at] == 0 and op.outputs[0].format(op).dtype.kind not in "iub"):
            pytest.fail(f"{case}: all of its answer is zero, by which nothing is told")
        wrong[0][at] = spoilt(wrong[0][at], op.outputs[0].format(op).dtype.kind in "iub")
        made = tuple(self.rounded(op, o, e) for o, e in zip(self.written(op), wrong, strict=True))
        with pytest.raises(DeviationError):
            self.judge(op, made, exact, inputs)

    def test_its_tolerance_is_one(self, case: Case) -> None:
        """`tolerance()` gives a Tolerance whose bounds are finite and not negative."""
        op = self.bounded(case)
        tolerance = op.test.tolerance or op.tolerance()
        assert isinstance(tolerance, Tolerance)
        limits = (tolerance.terms + 8, tolerance.ulps, tolerance.absolute)
        assert all(np.isfinite(one).all() and (np.asarray(one) >= 0).all() for one in limits)

    def test_its_magnitude_is_no_smaller_than_its_answer(self, case: Case) -> None:
        """Absolute values of terms add up to no less than the terms do: per output, in its shape, where it is given."""
        op = self.bounded(case)
        inputs = self.drawn(op)
        found = op.magnitude(*inputs)
        if found is None:
            pytest.skip("the answer's own absolute value is meant")
        for magnitude, exact in zip(found if isinstance(found, tuple) else (found,), self.exact(op, inputs), strict=True):
            if magnitude is not None:
                sizes = np.abs(np.asarray(exact, np.float64))
                assert np.broadcast_shapes(np.shape(magnitude), sizes.shape) == sizes.shape
                assert (np.asarray(magnitude, np.float64) * (1 + 1e-3) + 1e-30 >= sizes).all()

    def test_its_operations_are_counted(self, case: Case) -> None:
        """`ops()` is a number that is not negative."""
        found = self.whole(case).ops()
        assert found >= 0 and math.isfinite(found)
