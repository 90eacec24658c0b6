"""Headers of csrc: each stands alone and beside all others, in any order; what names the slots is one table."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from iron_core.declare.affine import Affine
from iron_core.errors import DeclarationError
from iron_host import build, compiler
from iron_host.build import Header
from iron_host.kernel_call import Member
from iron_host.kernels import COPY, TABLES, UNARY
from iron_host.slots import Slots

from .conftest import EXTRA, KERNELS

HEADERS = sorted(path.name for path in build.SOURCES.glob("*.h"))
#: This one, and by their names those whose kernels differ: AVX-512 with VNNI, AVX2 alone, AVX alone, none of them.
PROCESSORS = ["native", *(["cascadelake", "x86-64-v3", "ivybridge", "x86-64"] if platform.machine() in ("x86_64", "AMD64") else [])]


def warnings(folder: Path, headers: Sequence[str], *flags: str, kernels: str = "") -> str:
    """What the machine's compiler says with -Wall to a source that includes these headers, and has `kernels` after them."""
    found = compiler.find()
    (folder / "slots.h").write_text(build.slots_header(None))
    (folder / "all.cpp").write_text("".join(f'#include "{name}"\n' for name in headers) + kernels)
    places = [word for place in (folder, *build.folders(None)) for word in ("-I", str(place))]
    kept = [flag for flag in found.flags if flag not in ("-w", "-shared", "-O3")]
    line = [*found.command, *kept, "-Wall", "-Wno-psabi", *flags, *places, "-fsyntax-only", str(folder / "all.cpp")]
    return subprocess.run(line, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("first", HEADERS)
def test_a_header_stands_first_and_beside_all_others(tmp_path, first):
    """It includes what it needs, and no name of another is its own; twice is as good as once."""
    at = HEADERS.index(first)
    assert warnings(tmp_path, [*HEADERS[at:], *HEADERS[:at], first]) == ""


def test_headers_stand_in_the_reverse_order(tmp_path):
    """After those they come before elsewhere."""
    assert warnings(tmp_path, HEADERS[::-1]) == ""


@pytest.mark.parametrize("processor", PROCESSORS)
def test_kernels_of_all_headers_are_one_source(tmp_path, processor):
    """Every instantiation the tests call, in one source: nothing is said of them either, whatever the processor."""
    templates = [template for some in KERNELS.values() for template in some if template != "exponentials"]
    views = EXTRA["blocks.h"] + EXTRA["packed.h"]
    made = views + "".join(build.Unit("", template, f"k{i}").function for i, template in enumerate(templates))
    assert warnings(tmp_path, HEADERS, f"-march={processor}", kernels=made) == ""


def test_a_table_is_the_struct_of_its_kernels():
    """A member for each slot in the order of the table, its place in iron_args said once, and both areas."""
    assert UNARY.cpp == (
        "namespace iron::slots {\n"
        "template <class T> struct Unary {\n"
        "  const T* x; T* y; int64_t valid; double number; void* scratch; void* shared;\n"
        "  Unary(const iron_args* a) : x((const T*)a->p[0]), y((T*)a->p[1]), valid(a->n[0]), number(a->f[0]), "
        "scratch(a->scratch), shared(a->shared) {}\n"
        "};\n"
        "}\n"
    )
    assert "const int64_t* x_steps" in COPY.cpp and "x_steps(a->n + 6)" in COPY.cpp
    text = build.slots_header(None)
    assert all(text.count(table.cpp) == 1 for table in TABLES)


def test_a_table_is_filled_by_name():
    """In the order of the slots; a row is filled up with zeros, a pointer left out is none."""
    filled = COPY(y="y", loops=2, trips=[3, 4], x_steps=[4, 1], y_steps=[8, 2])
    assert filled.pointers == (None, "y")
    assert filled.ints == (2, 3, 4, 0, 0, 0, 4, 1, 0, 0, 0, 8, 2, 0, 0, 0)
    assert UNARY(number=2, valid=7, x="x", y="y").floats == (2.0,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(valid=1), "is not given number; its slots: x, y, valid, number"),
        (dict(valid=1, number=0, size=2), "has no slot size; its slots: x, y, valid, number"),
    ],
)
def test_a_slot_that_is_not_there_is_refused(given, said):
    """And one that is left out; the error names those there are."""
    with pytest.raises(DeclarationError, match=f"Slots iron::slots::Unary {said}"):
        UNARY(**given)


@pytest.mark.parametrize("number", [1.5, "7", None, 1 << 63])
def test_an_integer_slot_takes_a_whole_number(number):
    """It is not cut to one; what follows a per-call number is one too."""
    with pytest.raises(DeclarationError, match=r"Slots iron::slots::Unary: valid=.*; legal: a whole number of 64 bits, or a Member"):
        UNARY(x="x", y="y", valid=number, number=0)
    follows = Member(Affine("n"), 4)
    assert UNARY(x="x", y="y", valid=follows, number=0).ints == (follows,)


def test_a_header_is_given_its_slots_in_a_tuple(tmp_path):
    """One table alone is told."""
    (tmp_path / "mine.h").write_text("")
    with pytest.raises(DeclarationError, match=r"legal: a tuple of Slots, as \(SLOTS,\)"):
        Header(tmp_path / "mine.h", UNARY)


def test_a_struct_has_a_name():
    with pytest.raises(DeclarationError, match=r"Slots\(3\); legal: the name of the C\+\+ struct, as 'lines::Norms'"):
        Slots(3)


def test_a_number_slot_takes_a_number():
    with pytest.raises(DeclarationError, match="Slots iron::slots::Unary: number='a'; legal: a number"):
        UNARY(valid=1, number="a")


def test_a_row_that_is_too_long_is_refused():
    """Not cut."""
    with pytest.raises(DeclarationError, match="6 numbers for trips; legal: at most 5"):
        COPY(loops=6, trips=[1] * 6, x_steps=[], y_steps=[])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (dict(ints=("a", "b[24]")), "25 ints; legal: at most 24"),
        (dict(pointers={f"p{i}": "float" for i in range(9)}), "9 pointers; legal: at most 8"),
        (dict(ints=("a",), floats=("a",)), "a name stands twice"),
        (dict(types=("T",), ints=("T",)), "a name stands twice"),
        (dict(ints=("shared",)), "or is `scratch` or `shared`"),
        (dict(ints="valid"), "ints='valid'; legal: a tuple of names"),
        (dict(ints=(3,)), r"ints=\(3,\); legal: a tuple of names"),
        (dict(pointers=["x", "y"]), r"pointers=\['x', 'y'\]; legal: a dict, name -> type of what it points to"),
        (dict(pointers={"x": 3}), "legal: a dict, name -> type of what it points to"),
        (dict(pointers="xy"), "pointers='xy'; legal: a dict"),
        (dict(ints=("two words",)), "'two words' is no name in C\\+\\+"),
    ],
)
def test_a_table_that_no_kernel_can_have_is_refused(table, said):
    """When it is written, not when it is compiled."""
    with pytest.raises(DeclarationError, match=f"Slots acme::Wrong: .*{said}"):
        Slots("acme::Wrong", **table)
