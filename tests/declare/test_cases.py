"""Testing: where an operator is checked and the numbers it is given, so that one test serves every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare import testing
from iron_core.declare.cases import cases, operators
from iron_core.declare.infer import infer
from iron_core.errors import DeclarationError, PluginError
from iron_core.plugins.registry import registry

RNG = np.random.default_rng


class Mixed(iron.Operator):
    n: int = iron.Param()
    gated: bool = iron.Param(default=False)
    T: Any = iron.DType()
    W: Any = iron.DType(default=iron.Q8_0, blocks=True)
    x = iron.In(n, 64, dtype=T)
    both = iron.In(n, dtype=T)
    plain = iron.In(n, dtype=T)
    w = iron.In(n, 64, dtype=W)
    gate = iron.In(n, dtype=T, when=gated)
    ids = iron.In(n, dtype=np.int32)
    table = iron.In(n, dtype=np.int32)
    state = iron.InOut(n, dtype=np.float32)
    y = iron.Out(n, dtype=T)

    def reference(self, x, both, plain, w, gate, ids, table, state):
        return state, plain

    test = iron.Testing(
        iron.Case(n=64),
        dict(n=3, T=np.float32, W=iron.Q4_1),
        lambda cls: [iron.Case(n=2, gated=True, extensive=True), dict(n=7)],
        draw=dict(normal=("x",), centered=("both",), table=lambda op, rng: np.arange(op.n)),
    )


def test_cases_are_cases_dicts_or_what_a_callable_gives():
    """All become Case objects whose fields construct the operator."""
    cases = list(Mixed.test.cases(Mixed))
    assert [c.fields["n"] for c in cases] == [64, 3, 2, 7]
    assert [c.id for c in cases] == ["n64", "n3-Tfloat32-Wq4_1", "n2-gated1", "n7"]
    assert [c.extensive for c in cases] == [False, False, True, False]
    assert Mixed(**cases[1].fields).W is iron.Q4_1


def test_a_case_may_bound_its_extents():
    """Its operator at the bounds is as a call makes it; what is no extent is refused."""

    class Rows(iron.Operator):
        rows: int = iron.Param()
        x = iron.In(rows, 4, dtype=np.float32)
        y = iron.Out(rows, 4, dtype=np.float32)
        valid = iron.Extent(rows)
        test = iron.Testing(iron.Case(rows=8, bounds=dict(valid=3)))

        def reference(self, x):
            return x

    (case,) = Rows.test.cases(Rows)
    assert case.id == "rows8-valid3" and case.fields == dict(rows=8)
    assert case.bounded(Rows(rows=8)).shape("y") == (3, 4)
    assert iron.Case(rows=8).bounded(whole := Rows(rows=8)) is whole
    with pytest.raises(DeclarationError, match=r"bounds other, which is no extent of it. Extents: valid"):

        class Wrong(Rows):
            test = iron.Testing(iron.Case(rows=8, bounds=dict(other=3)))


def test_a_sweep_has_a_bounded_case():
    """Of an operator with an extent `valid`, on the dtype of arrays."""
    assert [c.bounds for c in iron.Sweep(rows=True).cases(Centre) if c.bounds] == [dict(valid=19)]
    assert not [c for c in iron.Sweep(T=np.float32).cases(Centre) if c.bounds]


def test_cases_are_walked_by_operator_case_and_device():
    """The default suite; or those beyond it too, or without those that are timed."""
    timed = type("Timed", (Mixed,), {"test": iron.Testing(iron.Case(n=1), iron.Case(n=2, bench=True))})
    walked = [(cls, case.id, dev) for cls, case, dev in cases([Mixed, timed], ["npu1", "npu2"])]
    assert walked[:3] == [(Mixed, "n64", "npu1"), (Mixed, "n64", "npu2"), (Mixed, "n3-Tfloat32-Wq4_1", "npu1")]
    assert [at for at in walked if at[0] is timed] == [(timed, n, dev) for n in ("n1", "n2") for dev in ("npu1", "npu2")]
    assert len(walked) == 10 and len(list(cases([Mixed], extensive=True))) == 4
    assert [(case.id, dev) for _, case, dev in cases([timed], bench=False)] == [("n1", "host")]


def test_operators_are_found_by_the_registry(site):
    """Of a distribution, or all that load; one that does not load is an error only where its distribution is asked for."""
    twice = "class Twice(iron.UnaryElementwise):\n    def reference(self, x):\n        return x + x\n"
    module = {"acme_ops.py": f"import iron_core as iron\n\n\n{twice}"}
    broken = {"acme.Twice": "acme_ops:Twice", "acme.Gone": "acme_gone:Gone"}
    site.add("iron-acme", entries={"iron.operators.v1": broken}, modules=module)
    registry.cache_clear()
    found = operators()
    assert [cls.__name__ for cls in found if cls.__module__ == "acme_ops"] == ["Twice"]
    ours = operators("iron-ops-aie")
    assert [cls.__name__ for cls in ours][:2] == ["AXPY", "CausalConv1d"] and len(ours) < len(found)
    with pytest.raises(PluginError, match=r"acme\.Gone"):
        operators("Iron_Acme")


@pytest.mark.parametrize("case", list(Mixed.test.cases(Mixed)), ids=lambda c: c.id)
def test_every_present_input_is_drawn_in_its_shape_and_format(case):
    """Dense operands as arrays of their dtype, block formats as PackedArrays, absent operands not at all."""
    op = Mixed(**case.fields)
    drawn = op.test.draw(op, RNG(0))
    assert list(drawn) == [o.name for o in op.inputs if o.present(op)]
    for name, array in drawn.items():
        assert tuple(array.shape) == op.shape(name)
        if name == "w":
            assert array.format == op.W
        else:
            assert array.dtype == op.format(name).dtype


def test_rules_of_drawing():
    """Normal, both signs, uniform in [0, 1), small integers, or as given."""
    op = Mixed(n=64, T=np.float32)
    drawn = op.test.draw(op, RNG(1))
    assert abs(drawn["x"].std() - 1) < 0.05
    assert drawn["both"].min() < -1 and drawn["both"].max() > 1
    assert 0 <= drawn["plain"].min() and drawn["plain"].max() < 1
    assert drawn["table"].tolist() == list(range(64))
    assert set(drawn["ids"]) <= set(range(8))


def test_of_a_large_operand_a_part_is_drawn(monkeypatch):
    """The rest repeats it, at a distance that no row has: hundreds of millions of numbers take a second and not a minute."""
    assert all(testing.DRAWN % n for n in range(2, 2049))
    monkeypatch.setattr(testing, "DRAWN", 7)
    op = Mixed(n=64)
    x = op.test.draw(op, RNG(1))["x"].reshape(-1)
    assert len(set(x[:7].tolist())) > 4 and np.array_equal(x[7:], x[:-7])


def test_drawing_is_reproducible():
    """The same seed draws the same numbers."""
    op = Mixed(n=16)
    one, other = (op.test.draw(op, RNG(5)) for _ in range(2))
    assert np.array_equal(one.pop("w").data, other.pop("w").data)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_rule_for_no_operand_is_refused():
    """A misspelt name would silently draw something else; what a callable gives is known when it is asked."""

    class Typo(SquaredReLU):
        test = iron.Testing(iron.Case(size=4), draw=lambda op: dict(centered=("z",)))

    op = Typo(size=4)
    with pytest.raises(DeclarationError, match=r"draws z, which is none of its inputs\. Legal: x"):
        op.test.draw(op, RNG(0))


def test_a_sweep_covers_lengths_and_marks_one_to_time():
    """The elementwise sweep, flat or in rows; its keywords go to every case."""
    flat, rows = list(iron.Sweep(T=np.float32).cases(SquaredReLU)), list(iron.Sweep(rows=True).lengths())
    assert [c.bench for c in flat] == [False] * (len(flat) - 1) + [True]
    assert all(c.fields["T"] is np.float32 for c in flat)
    assert all(set(c.fields) == {"rows", "cols"} for c in rows)


@pytest.mark.parametrize(("cls", "rows", "widest"), [("SquaredReLU", False, (8, 2)), ("Larger", False, (4, 2)), ("Centre", True, (8, 2))])
def test_a_sweep_covers_columns_and_channels(cls, rows, widest):
    """Each count that the shims of npu2 feed, with one channel and with two; beyond the default suite."""
    found = [c for c in iron.Sweep(rows=rows).cases(globals()[cls]) if c.extensive]
    lanes = {(c.fields["num_aie_columns"], c.fields["num_channels"]) for c in found}
    assert {columns for columns, channels in lanes if channels == 1} == {1, 2, 3, 4, 6, 8}
    assert max(lane for lane in lanes if lane[1] == 2) == widest
    assert not any(c.bench for c in found) and len({c.id for c in found}) == len(found)
    assert not [c for c in iron.Sweep(T=np.float32).cases(SquaredReLU) if c.extensive]


def test_what_has_no_columns_is_swept_by_lengths_alone():
    """An operator of another base."""

    class Plain(iron.Operator):
        size: int = iron.Param()
        y = iron.Out(size)

        def reference(self):
            return np.zeros(self.size)

    assert [c.id for c in iron.Sweep().cases(Plain)] == [c.id for c in iron.Sweep().lengths()]


# -- what most operators derive from -----------------------------------------------------------------


class SquaredReLU(iron.UnaryElementwise):
    """max(x, 0)^2."""

    def reference(self, x):
        y = np.maximum(x.astype(np.float32), 0)
        return y * y


class Larger(iron.BinaryElementwise):
    def reference(self, a, b):
        return np.maximum(a, b)


class Centre(iron.Rowwise):
    def reference(self, x):
        x = x.astype(np.float64)
        return x - x.mean(-1, keepdims=True)


@pytest.mark.parametrize("cls", [SquaredReLU, Larger, Centre])
def test_a_base_class_brings_operands_extent_and_cases(cls):
    """A subclass adds its reference; everything else, cases and draw included, is the base's."""
    assert list(cls.extents) == ["valid"]
    for case in cls.test.cases(cls):
        if case.bench:
            continue
        op = cls(**case.fields)
        inputs = list(op.test.draw(op, RNG(0)).values())
        exact = op.reference(*inputs)
        assert exact.shape == op.y.shape
        assert op.check(exact.astype(op.y.dtype), exact, *inputs).compared == op.y.size


def test_elementwise_is_flat_and_rowwise_is_not():
    """Any tensor is a run of elements; rows keep their length."""
    f32 = iron.Dense(np.float32)
    assert infer(SquaredReLU, {"x": ((2, 3, 4), f32)}, {})["size"] == 24
    assert infer(Centre, {"x": ((6, 4), f32)}, {})["cols"] == 4
    assert SquaredReLU.elementwise and Larger.elementwise and Centre.rowwise
