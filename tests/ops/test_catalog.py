"""What holds for every operator of the catalog: lazy names, the stub, documentation, its own test cases."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import numpy as np
import pytest

import iron_ops_aie
from iron_core.declare.cases import cases
from iron_core.declare.formats import Q4_1, PackedArray
from iron_core.declare.identity import contract_key, label
from iron_core.declare.infer import infer
from iron_core.declare.rounding import round_to
from iron_core.declare.stub import stub
from iron_core.errors import DeviationError
from tests.catalog import OPERATORS, named
from tests.fresh import modules_after

NAMES = iron_ops_aie.__all__
CASES = [(cls, case) for cls, case, _ in cases(OPERATORS, extensive=True, bench=False)]


def test_the_package_loads_no_operator_until_one_is_named():
    """`dir()` shows every name; nothing is imported for it."""
    code = "import iron_ops_aie, sys\nassert dir(iron_ops_aie) == iron_ops_aie.__all__\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {m for m in loaded if m.startswith("iron_ops_aie")} == {"iron_ops_aie"}
    assert "numpy" not in loaded


@pytest.fixture(scope="module")
def imported():
    """By operator: what an import of it alone loads."""
    return dict(zip(NAMES, modules_after(*(f"from iron_ops_aie import {name}" for name in NAMES)).values(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_importing_one_operator_imports_no_other(imported, name):
    """Only this operator's module, no graph and no backend."""
    loaded = imported[name]
    operators = {f"iron_ops_aie.{module}" for module in iron_ops_aie._HOME.values()}
    assert loaded & operators == {f"iron_ops_aie.{iron_ops_aie._HOME[name]}"}
    assert not {m for m in loaded if m.startswith(("iron_host", "iron_lm", "iron_core.backends", "iron_core.image"))}


def test_an_unknown_name_lists_the_operators():
    """As for any module, and it says what there is."""
    with pytest.raises(AttributeError, match=r"no operator 'Gemv'; it has AXPY, CausalConv1d, Clamp, CombineExperts, Copy, DeltaG"):
        iron_ops_aie.Gemv  # noqa: B018


def test_every_name_is_an_entry_point():
    """What the package offers is what its distribution announces, from the same modules."""
    announced = {e.name: e.value for e in metadata.distribution("iron-ops-aie").entry_points if e.group == "iron.operators.v1"}
    assert announced == {name: f"iron_ops_aie.{module}:{name}" for name, module in iron_ops_aie._HOME.items()}


@pytest.mark.parametrize("package", ["iron_ops_aie", "iron_ops_flm"])
def test_the_stub_is_current(package):
    """Type checkers see the operators as they are; `python -m iron_core.declare.stub PACKAGE` makes it anew."""
    assert Path(import_module(package).__file__).with_suffix(".pyi").read_text() == stub(package)


def test_the_stub_has_both_ways_to_use_an_operator():
    """By keyword it constructs; on tensors, where it reads any, it gives a handle, or a tuple of them."""
    text = stub("iron_ops_aie")
    assert text.count("@overload") == 2 * sum(bool(getattr(iron_ops_aie, name).inputs) for name in NAMES)
    assert "def __new__(cls, *, carried: int, slots: int, rows: int = ...) -> Emit: ..." in text
    assert ") -> tuple[Handle, Handle]: ..." in text.split("class Sample")[1]


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_documented(name):
    """A docstring that speaks of every operand; test cases of which one can be timed, for those with arithmetic to time."""
    cls = getattr(iron_ops_aie, name)
    text = "".join(base.__doc__ or "" for base in cls.__mro__[:2])
    for operand in cls.operands:
        assert operand in text, f"{name} does not say what {operand} is"
    assert list(cls.test.cases(cls))


@pytest.mark.parametrize("cls", OPERATORS, ids=named)
def test_an_operator_has_cases_of_every_kind(cls):
    """Three at least; one of a size that is no whole vectors; and one under a bound for each extent it has."""
    found = [case for _, case, _ in cases([cls])]
    sizes = {n for op in (cls(**case.fields) for case in found) for name in op.present for n in op.shape(name)}
    blocks = all(op.format(name).packed for op in (cls(**case.fields) for case in found) for name in op.present)  # which come whole
    assert len(found) >= 3 and (blocks or any(n % 16 for n in sizes if n > 4))
    assert {member for case in found for member in case.bounds} == set(cls.extents)


@pytest.mark.parametrize(("cls", "case"), CASES, ids=named)
def test_a_reference_keeps_the_contract(cls, case, draw):
    """It gives every output in its declared shape, changes no input, and rounded once is within its own tolerance."""
    op = case.bounded(cls(**case.fields))
    inputs = draw(op)
    before = [_bytes(a) for a in inputs]
    kept = {name: np.zeros(op.shape(name), op.format(name).dtype) for name in op.partial}
    result = op.reference(*inputs, **kept)
    exact = result if isinstance(result, tuple) else (result,)
    written = [o for o in op.outputs if o.present(op)]
    assert len(exact) == len(written)
    for operand, array in zip(written, exact, strict=True):
        assert _as_stored(array).size == math.prod(op.format(operand.name).stored(op.shape(operand.name))), operand.name
    assert [_bytes(a) for a in inputs] == before
    rounded = tuple(_tensor(op, o, _as_stored(e)) for o, e in zip(written, exact, strict=True))
    assert op.check(rounded, exact, *inputs).compared == sum(_as_stored(e).size for e in exact)
    assert op.ops() >= 0


@pytest.mark.parametrize(("cls", "case"), CASES, ids=named)
def test_a_wrong_answer_is_out_of_tolerance(cls, case, draw):
    """No contract is so wide that an answer whose largest number is off by a twentieth passes."""
    op = case.bounded(cls(**case.fields))
    inputs = draw(op)
    kept = {name: np.zeros(op.shape(name), op.format(name).dtype) for name in op.partial}
    result = op.reference(*inputs, **kept)
    exact = result if isinstance(result, tuple) else (result,)
    wrong = tuple(np.array(_as_stored(e), np.float64) for e in exact)
    at = np.unravel_index(np.argmax(np.abs(wrong[0])), wrong[0].shape)
    whole = op.outputs[0].format(op).dtype.kind in "iu"
    wrong[0][at] += (1 if wrong[0][at] <= 0 else -1) if whole else -0.05 * wrong[0][at]
    written = [o for o in op.outputs if o.present(op)]
    rounded = tuple(_tensor(op, o, e) for o, e in zip(written, wrong, strict=True))
    with pytest.raises(DeviationError):
        op.check(rounded, exact, *inputs)


@pytest.mark.parametrize(("cls", "case"), CASES, ids=named)
def test_two_spellings_of_one_operator_have_one_key(cls, case):
    """Fields left to their rules and the same fields given are one contract."""
    op = cls(**case.fields)
    same = cls(**{name: getattr(op, name) for name in cls.fields})
    assert contract_key(op) == contract_key(same) and label(op) == label(same)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_dtypes_say_everything_the_operands_can(name, draw):
    """A call on a case's own operands needs only those fields that no shape shows."""
    cls = getattr(iron_ops_aie, name)
    for _, case, _ in cases([cls], extensive=True, bench=False):
        if "src" in case.fields or "dst" in case.fields:
            continue
        op = cls(**case.fields)
        shapes = {n: (op.shape(n), op.format(n)) for n in op.present}
        hidden = {k: v for k, v in case.fields.items() if k not in _shown(op)}
        assert contract_key(cls(**infer(cls, shapes, hidden))) == contract_key(op)


def _shown(op):
    """Fields that are a dimension or a dtype of some operand."""
    names = {op.operands[n].dtype.name for n in op.present if hasattr(op.operands[n].dtype, "name")}
    return names | {axis for n in op.present for axis in op.operands[n].axes(op) if isinstance(axis, str)}


def _bytes(array):
    return b"" if array is None else _as_stored(array).tobytes()


def _as_stored(array):
    """An array; of a packed tensor its bytes."""
    return array.data if isinstance(array, PackedArray) else np.asarray(array)


def _tensor(op, operand, stored):
    """An operand's tensor of what stores it, rounded."""
    format = op.format(operand.name)
    rounded = round_to(stored, format.dtype)
    return format.tensor(rounded, op.shape(operand.name)) if format.packed else rounded


def test_a_block_format_is_refused_where_numbers_are_meant():
    """Only movers of packed rows and products with them take block formats."""
    takes = {
        (name, field)
        for name in NAMES
        for field, declared in getattr(iron_ops_aie, name).fields.items()
        if getattr(declared, "blocks", False)
    }
    products = {(name, "W") for name in ("CombineExperts", "GEMM", "GEMV", "GatedExperts")}
    assert takes == {("Copy", "X"), ("Copy", "Y"), ("Dequant", "F"), *products}
    assert iron_ops_aie.GEMV(M=1, K=32, W="q4_1").W is Q4_1


@pytest.mark.parametrize("name", ["SiLU", "RMSNorm", "LayerNorm", "Softmax", "RoPE", "MHA", "Sample"])
def test_integers_are_refused_where_they_mean_nothing(name):
    """An operator of real numbers names the dtype and those that are legal."""
    cls = getattr(iron_ops_aie, name)
    fields = dict(next(iter(cls.test.cases(cls))).fields) | {"T": np.int32}
    with pytest.raises(ValueError, match=rf"{name}: T=int32; legal: float32, bfloat16, float16"):
        cls(**fields)


def test_the_stub_names_every_base():
    """An operator with an array of its own is still an Operator to a type checker."""
    assert "class GEMM(GEMMArray, Operator):" in stub("iron_ops_aie") and "class SiLU(UnaryElementwise):" in stub("iron_ops_aie")
