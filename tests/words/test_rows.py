"""Rows of per-call numbers: one definition, and everybody who evaluates rows gives its numbers bit for bit.

They are the reference run's Python, the host's native loop, `Emit` as its numpy reference, as its C++ and as an array on the
simulator, the simulator's words, and the table that the npu's printer gives beside the text.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.array.sequence import Word
from iron_core.array.words import number
from iron_core.declare.affine import Affine
from iron_core.declare.row import Row
from iron_core.errors import UnsupportedError
from iron_core.image import parameters
from iron_host import build, compiler
from iron_host.runtime import DONE
from iron_npu.mlir.fused import print_version
from iron_ops_aie import GEMV, Emit, SiLU
from iron_sim.run import simulate
from tests.host_kernels import conftest as native

#: Per-call values that the rows of one table follow, and the rows it has.
VALUES, ROWS = 3, 16
INT32 = (-(2**31), 2**31 - 1)
ANY = (-(2**63), 2**63 - 1)


def exact(row, planes):
    """What a row is, written out for itself."""
    v = planes[row.plane][row.index]
    x = v * row.scale + row.bias
    quotient = x if row.divisor <= 1 else (x - x % row.divisor) // row.divisor
    return ((quotient - quotient % 2**row.down) // 2**row.down * row.mul + row.add) * 2**row.shift


def low(numbers):
    """The low 32 bits as an int32 has them."""
    return [(n + 2**31) % 2**32 - 2**31 for n in numbers]


def around(limit):
    """Integers up to a limit of either sign, small ones as often as large ones."""
    return st.one_of(st.integers(-9, 9), st.integers(-limit, limit))


rows = st.builds(
    Row,
    plane=st.integers(0, 1),
    index=st.integers(0, VALUES - 1),
    scale=around(2**20),
    bias=around(2**30),
    divisor=st.one_of(st.integers(0, 12), st.integers(1, 2**20)),
    down=st.one_of(st.just(0), st.integers(0, 31)),
    mul=around(2**8),
    add=around(2**30),
    shift=st.integers(0, 2),
)
tables = st.tuples(
    st.lists(st.lists(around(2**31 - 1), min_size=VALUES, max_size=VALUES), min_size=2, max_size=2),
    st.lists(rows, min_size=ROWS, max_size=ROWS),
)
EMIT = Emit(carried=VALUES, slots=ROWS - VALUES)


@pytest.fixture(scope="module")
def cpp():
    """`Emit`'s C++, compiled for this machine."""
    kernel = EMIT.kernel().data
    macros = "".join(f"#define {name} {value}\n" for name, value in (("KERNEL", "emit"), *kernel.defines))
    function = ctypes.CDLL(str(build.compiled(macros + kernel.source, "emit", compiler.find()))).emit
    function.argtypes, function.restype = [ctypes.c_void_p] * 4, None
    return function


@pytest.fixture(scope="module")
def pool():
    """The host's native loop, on one thread."""
    library = build.runtime()
    handle = ctypes.c_void_p(library.iron_pool_create(1))
    yield library, handle
    library.iron_pool_free(handle)


def by_the_host(pool: Any, planes, table) -> list[int]:
    """The numbers of a native pass that carries them; its values are those of both planes."""
    library, handle = pool
    values = np.array([*planes[0], *planes[1], *[0] * len(table)], np.int64)
    carries = [
        native.Carry(2 * VALUES + i, 0, native.Row(0, row.plane * VALUES + row.index, *row[2:]), None, *ANY)
        for i, row in enumerate(table)
    ]
    run = native.Run(None, 0, None, values.ctypes.data, len(values), (native.Carry * len(carries))(*carries), len(carries))
    assert library.iron_begin(handle, ctypes.byref(run), 1, 0, 0) == DONE
    return values[2 * VALUES :].tolist()


@settings(max_examples=50, deadline=None)
@given(tables)
def test_everybody_gives_the_numbers_of_the_definition(cpp, pool, drawn):
    """Python and the host all 64 bits, a device the low 32."""
    planes, table = drawn
    want = [exact(row, planes) for row in table]
    assert [row.at(planes) for row in table] == want
    assert by_the_host(pool, planes, table) == want
    given, packed = np.array(planes, np.int32), np.array(table, np.int32)
    words, state = EMIT.reference(given, packed)
    assert [*words.tolist(), *state.tolist()] == low(want)
    into = [np.zeros(n, np.int32) for n in (EMIT.slots, EMIT.carried)]
    cpp(*(array.ctypes.data for array in (given, packed, *into)))
    assert [*into[0].tolist(), *into[1].tolist()] == low(want)


@settings(max_examples=5, deadline=None)
@given(tables)
def test_the_array_of_emit_gives_them_too(drawn):
    """One core that holds the table."""
    planes, table = drawn
    made, _, _ = simulate(EMIT, "npu2", dict(planes=np.array(planes, np.int32), program=np.array(table, np.int32)))
    assert [*made["words"].tolist(), *made["state"].tolist()] == low([exact(row, planes) for row in table])


@given(rows, around(2**31 - 1))
@settings(max_examples=200, deadline=None)
def test_a_simulated_word_is_the_number_of_its_form(row, value):
    """Unshifted, as cores see it."""
    form = Affine("n", row.scale, row.bias, max(1, row.divisor), *row[5:8])
    word = Word("at", "offset", form)
    assert number(EMIT, word, {"n": value}) == exact(form.row(), [[value]])


class Bounded(iron.Graph):
    """`a * n // b` numbers of `x`, and `m`, through one array."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def body(self, x, *, n: iron.Scratchpad[np.int32], m: iron.Scratchpad[np.int32]):
        return SiLU(x[: self.a * n // self.b]), SiLU(x[:m])


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 4000))
@settings(max_examples=25, deadline=None)
def test_the_printer_gives_the_rows_of_the_words_it_declares(a, b, n):
    """In the order of their declaration; what a core reads, or a length, is kept shifted by two."""
    plan = Bounded(a, b).compile(x=(8192,), dev="npu2", backend="null").plan
    made = print_version(plan, plan.versions[0].signature)
    symbols = re.findall(r"aiex\.scratchpad_parameter @(\w+) : i32", made.text)
    assert symbols == [word.symbol for word in made.words] and len(made.program) == len(symbols)
    op = plan.versions[0].steps[0].op.resolved("npu2")
    line = op.num_aie_columns * op.tile_size
    want = {"n": -(-(a * n // b) // line), "m": -(-(n + 1) // line)}
    for word, row in zip(made.words, made.program.tolist(), strict=True):
        assert Row(*row).at([[n, n + 1]]) == want[word.form.value] << 2 == word.form.at({"n": n, "m": n + 1}) << 2


class Product(iron.Graph):
    """The first `n` rows of a product."""

    def body(self, a, x, *, n: iron.Carried[np.int32]):
        return GEMV(a[:n], x), iron.carry(n=n + 1)


def test_the_trips_of_a_product_are_a_row():
    """`ceil(valid / 192)`: `Emit` makes the word of the next call on the device, without the host."""
    plan = Product().compile(a=(1536, 64), x=(64,), dev="npu2", backend="null").plan
    (step,) = plan.versions[0].steps
    op = step.op.resolved("npu2")
    block = op.lanes * op.tile_size_output
    made = print_version(plan, plan.versions[0].signature)
    trips = [word for word in made.words if word.kind == "core"]
    assert [word.form.key for word in trips] == [Affine("n").ceildiv(block).key]
    emit = Emit(carried=1, slots=len(made.program))
    table = np.concatenate([made.program, [(Affine("n") + 1).row()]]).astype(np.int32)
    at = made.words.index(trips[0])
    for n in (1, block - 1, block, block + 1, 1536):
        words, state = emit.reference(np.array([[n], [0]], np.int32), table)
        assert words[at] == -(-n // block) << 2 and state.tolist() == [n + 1]
        assert words[at] >> 2 == op.bounded(M=n).tiles


def test_what_no_row_holds_is_refused_when_it_is_planned():
    """A quotient times 3 has no quotient by a number that 3 does not divide; rows are of 32 bits."""

    class Thirds(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(x[: n // 4 * 3])

    with pytest.raises(UnsupportedError, match=r"step silu0: its word count is made by no row of a table: .* multiplied by 3 divides"):
        Thirds().compile(x=(8192,), dev="npu2", backend="sim")
    with pytest.raises(UnsupportedError, match=r"word start is made with numbers of more than 32 bits: n \+ 1099511627776"):
        parameters.rows([parameters.Parameter("start", "offset", Affine("n", 1, 1 << 40), ())], ["n"])
