"""Kernels: named after what they compile to, called on memory of their types, described by a contract."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core import In, InOut, Out, Param
from iron_core.array import Buffer, Kernel, KernelContract, Lane, ObjectFifo, Worker, range_
from iron_core.array.builder import building
from iron_core.array.expression import Const, Var
from iron_core.array.program import Call, Element, Local, walk
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

LINE = ObjectType.of(64, "int32")
SCALED = KernelContract(roles=(In, Out, Param), reference=lambda a, n: a * n)


def scale(**options):
    return Kernel.factory("linear.scale", [LINE, LINE, "int32"], SCALED, **options)


def called(call, kernel, *extra):
    """The program of a core that acquires one object each of `a` and `y` and hands them to `call` with the kernel."""
    with building():
        a, y = ObjectFifo(LINE, name="a"), ObjectFifo(LINE, name="y")
        a.prod(tile=Lane("a", 0))
        y.cons(tile=Lane("y", 0))

        def core(a, y, kernel, *more):
            call(kernel, a.acquire(), y.acquire(), *more)
            a.release()
            y.release()

        return Worker(core, [a.cons(), y.prod(), kernel, *[make() for make in extra]])


def calls(worker):
    return [s for s in walk(worker.program) if isinstance(s, Call)]


def test_a_call_is_recorded_with_memory_and_scalars():
    def call(kernel, a, y):
        for i in range_(4):
            kernel(a, y, i)

    kernel = scale()
    worker = called(call, kernel)
    assert calls(worker) == [Call(kernel.data.symbol, (Element("a0", 0, LINE), Element("a1", 0, LINE), Var("i2")))]
    assert worker.kernels == {kernel.data.symbol: kernel}


def test_scalars_that_are_always_the_same_are_left_out_of_calls():
    """A binding fills its position, in calls and in the tile reference."""
    contract = KernelContract(roles=(In, Param, Out, Param), reference=lambda a, k, n: a * k + n, bindings=((1, 3),))
    kernel = Kernel.factory("scale_add", [LINE, "int32", LINE, "int32"], contract)
    (call,) = calls(called(lambda kernel, a, y: kernel(a, y, 5), kernel))
    assert call.args[1] == Const(3) and call.args[3] == Const(5)
    assert (kernel.reference(np.ones(64, np.int32), 5) == 8).all()


def test_a_contract_takes_the_vocabulary_of_operators_or_their_names():
    roles = KernelContract(roles=(In, Out, InOut, Param), reference=abs).roles
    assert roles == ("in", "out", "inout", "param") == KernelContract(roles=roles, reference=abs).roles


def test_a_factory_says_how_it_is_made():
    """Keywords are plain and sorted, so that equal kernels are equal data in every process."""
    data = Kernel.factory("linalg.mm", [LINE, LINE, "int32"], SCALED, n=2, dtype=np.int8, dims=(1, 2), fast=True).data
    assert data.factory == "linalg.mm"
    assert data.keywords == (("dims", (1, 2)), ("dtype", "int8"), ("fast", True), ("n", 2))
    assert data.symbol.startswith("mm_")


def test_symbols_tell_kernels_apart():
    """By what is compiled: source, macros, types, keywords. The function's own name can be given."""
    one = scale()
    assert one.data == scale().data and hash(one.data) == hash(scale().data)
    assert scale(width=16).data.symbol != one.data.symbol != scale(symbol="scale_fast").data.symbol
    assert scale(symbol="scale_fast").data.symbol.startswith("scale_fast_")
    made = [
        Kernel.inline("f", source, [kind, kind, "int32"], SCALED, defines)
        for source, kind, defines in (
            ("void KERNEL() {}", LINE, None),
            ("void KERNEL() { }", LINE, None),
            ("void KERNEL() {}", LINE, {"N": 4}),
            ("void KERNEL() {}", ObjectType.of(32, "int32"), None),
        )
    ]
    assert len({kernel.data.symbol for kernel in made}) == 4
    assert made[2].data.defines == (("N", "4"),)


@pytest.mark.parametrize("roles", [("in", "input"), (In, 3)])
def test_a_role_that_does_not_exist(roles):
    with pytest.raises(DeclarationError, match=r"KernelContract\(roles=\.\.\.\): .*legal: In, Out, InOut, Param"):
        KernelContract(roles=roles, reference=abs)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (dict(reference=3), r"KernelContract\(reference=3\); legal: a function"),
        (dict(poison=True), r"KernelContract\(poison=True\); legal: a function of marks"),
        (dict(rounding="cores"), r"KernelContract\(rounding='cores'\); legal: core, conv_even"),
        (dict(stack="1 KB"), r"KernelContract\(stack='1 KB'\); legal: bytes, at least 1"),
    ],
)
def test_a_contract_says_what_can_be_so(options, says):
    with pytest.raises(DeclarationError, match=says):
        KernelContract(**{"roles": (In, Out), "reference": lambda x: x, **options})


@pytest.mark.parametrize("position", [0, 3])
def test_a_contract_binds_scalars_alone(position):
    contract = KernelContract(roles=(In, Out, Param), reference=lambda a, n: a * n, bindings=((position, 3),))
    with pytest.raises(DeclarationError, match=rf"scale_\w+: its contract binds argument {position}; legal: its Params, 2"):
        Kernel.factory("linear.scale", [LINE, LINE, "int32"], contract)


def test_one_role_per_argument():
    with pytest.raises(DeclarationError, match="2 arguments and 3 roles in its contract"):
        Kernel.factory("scale", [LINE, LINE], SCALED)


@pytest.mark.parametrize("arguments", [(LINE, LINE, LINE), (LINE, "int32", "int32")])
def test_scalars_are_params_and_params_are_scalars(arguments):
    with pytest.raises(DeclarationError, match="a Param is a scalar dtype"):
        Kernel.factory("scale", arguments, SCALED)


@pytest.mark.parametrize("given", [(), (1,)])
def test_a_call_has_all_arguments(given):
    with pytest.raises(DeclarationError, match=rf"scale_\w+ takes 3 arguments; {2 + len(given) - 1} were given"):
        called(lambda kernel, a, y: kernel(a, *given), scale())


@pytest.mark.parametrize(("value", "kind"), [(3, "int"), (None, "NoneType"), (np.zeros(64, np.int32), "ndarray"), (LINE, "ObjectType")])
def test_a_tile_is_memory(value, kind):
    with pytest.raises(DeclarationError, match=rf"scale_\w+, argument 0 is 64 int32; {kind} was given. Legal: an object or a buffer"):
        called(lambda kernel, a, y: kernel(value, y, 1), scale())


def test_an_object_of_another_size():
    with pytest.raises(DeclarationError, match=r"argument 1 is 64 int32; 32 int32 was given"):
        called(lambda kernel, a, y: kernel(a, y.sub(0, 32), 1), scale())


def test_an_object_of_another_dtype():
    with pytest.raises(DeclarationError, match=r"argument 0 is 64 int32; 64 float32 was given"):
        called(lambda kernel, a, y, table: kernel(table, y, 1), scale(), lambda: Buffer(64, "float32"))


def test_shapes_may_differ_where_sizes_do_not():
    """Memory is flat; the tile reference sees the kernel's own shape."""

    def call(kernel, a, y, square):
        kernel(square, y.sub(0, (4, 16)), 1)

    (one,) = calls(called(call, scale(), lambda: Buffer((8, 8), "int32", name="square")))
    assert one.args[0] == Local("square", ObjectType((8, 8), "int32"))


def test_a_scalar_is_a_whole_number():
    """Integers only: a float's bits travel as an int32."""
    with pytest.raises(DeclarationError, match="legal: whole numbers, loop variables, loaded words"):
        called(lambda kernel, a, y: kernel(a, y, 0.5), scale())


def test_a_scalar_of_a_float_dtype_is_a_number():
    """Known while recording: cores compute integers only."""
    kernel = Kernel.factory("scale", [LINE, LINE, "bfloat16"], SCALED)
    (call,) = calls(called(lambda kernel, a, y: kernel(a, y, 0.5), kernel))
    assert call.args[2] == Const(0.5)
    with pytest.raises(DeclarationError, match=r"kernel scale_\w+: v2 for a bfloat16; cores compute integers. Legal: a number"):
        called(lambda kernel, a, y: kernel(a, y, a[0]), kernel)


def test_one_symbol_is_one_kernel():
    """Two kernels that would be linked under one name."""
    one = scale()
    other = Kernel(one.data.symbol, one.data.arguments, SCALED, factory=one.data.factory, keywords=(("fast", True),))

    def call(kernel, a, y):
        kernel(a, y, 1)
        other(a, y, 1)

    with pytest.raises(DeclarationError, match=r"two kernels named scale_\w+ in one core"):
        called(call, one)


def test_a_call_belongs_in_a_core():
    with building():
        memory = Buffer(64, "int32")
        with pytest.raises(DeclarationError, match="belong in a Worker's core function"):
            scale()(memory, memory, 1)


def test_a_core_needs_the_stack_of_its_hungriest_kernel():
    """1024 bytes where no kernel says more, or what the worker is given."""
    deep = KernelContract(roles=SCALED.roles, reference=SCALED.reference, stack=3072)
    kernel = Kernel.factory("deep", [LINE, LINE, "int32"], deep)
    assert called(lambda kernel, a, y: kernel(a, y, 1), kernel).stack == 3072
    assert called(lambda kernel, a, y: None, kernel).stack == 1024
