"""What a C++ function takes, as itself says: C++ that tells it, and whether it is what a kernel's arguments are declared as."""

from __future__ import annotations

from typing import Any

from iron_core.array.kernel import KernelData
from iron_core.declare.formats import as_dtype
from iron_core.declare.objects import ObjectType

#: Arguments of a function that can be told.
MOST = 64

#: C++ behind a kernel's source: `int NAME(int *)` gives the number of arguments, and of each whether it is a pointer, its bytes (of a
#: pointer, of what it points to), and its kind: 1 a float, 2 a signed integer, 3 an unsigned one, 0 anything else.
_TELLING = """
#line 1 "iron_takes"
namespace iron_takes {
template <class iron_T> struct iron_kind { static const int iron_is = 0; };
#define IRON_KIND(iron_T, iron_K) template <> struct iron_kind<iron_T> { static const int iron_is = iron_K; };
IRON_KIND(float, 1) IRON_KIND(double, 1)
IRON_KIND(char, 2) IRON_KIND(signed char, 2) IRON_KIND(short, 2) IRON_KIND(int, 2) IRON_KIND(long, 2) IRON_KIND(long long, 2)
IRON_KIND(unsigned char, 3) IRON_KIND(unsigned short, 3) IRON_KIND(unsigned, 3) IRON_KIND(unsigned long, 3)
IRON_KIND(unsigned long long, 3) IRON_KIND(bool, 3)
template <class iron_T> struct iron_element { typedef iron_T iron_of; };
template <class iron_T> struct iron_element<const iron_T> { typedef typename iron_element<iron_T>::iron_of iron_of; };
template <class iron_T, decltype(sizeof 0) iron_N> struct iron_element<iron_T[iron_N]> : iron_element<iron_T> {};
template <class iron_T, decltype(sizeof 0) iron_N> struct iron_element<const iron_T[iron_N]> : iron_element<iron_T> {};
template <class iron_T> struct iron_bytes { static const int iron_are = sizeof(iron_T); };
template <> struct iron_bytes<void> { static const int iron_are = 0; };
template <class iron_T> struct iron_argument { static const int iron_pointer = 0; typedef iron_T iron_of; };
template <class iron_T> struct iron_argument<iron_T *> { static const int iron_pointer = 1; typedef iron_T iron_of; };
template <class iron_A> int iron_one(int *iron_out) {
  typedef typename iron_element<typename iron_argument<iron_A>::iron_of>::iron_of iron_of;
  iron_out[0] = iron_argument<iron_A>::iron_pointer;
  iron_out[1] = iron_bytes<iron_of>::iron_are;
  iron_out[2] = iron_kind<iron_of>::iron_is;
  return 3;
}
template <class iron_R, class... iron_A> int iron_tell(iron_R (*)(iron_A...), int *iron_out) {
  int iron_n = 0;
  (void)iron_out;
  ((iron_n += iron_one<iron_A>(iron_out + iron_n)), ...);
  return iron_n / 3;
}
}  // namespace iron_takes
extern "C" int TELLING(int *iron_out) { return iron_takes::iron_tell(&KERNEL, iron_out); }
"""

#: An argument as it is told: is it a pointer, bytes, kind.
Told = tuple[int, int, int]

_KINDS = {1: "float", 2: "signed integer", 3: "unsigned integer", 0: "something else"}


def telling(symbol: str) -> str:
    """The C++ that tells what KERNEL takes, as the function `<symbol>_takes`."""
    return _TELLING.replace("TELLING", f"{symbol}_takes")


def disagreement(data: KernelData, told: list[Told]) -> str:
    """How what a source takes is not what its arguments are declared as; "" where it is.

    A tile may be taken as unsigned words wider than its elements, as what moves bits does.
    """
    declared = data.arguments
    if len(told) != len(declared):
        return f"it takes {len(told)} arguments, and {len(declared)} are declared"
    for position, (argument, one) in enumerate(zip(declared, told, strict=True)):
        pointer, size, kind = one
        tile = isinstance(argument, ObjectType)
        dtype = argument.dtype if isinstance(argument, ObjectType) else as_dtype(argument)
        words = isinstance(argument, ObjectType) and kind == 3 and size > dtype.itemsize and argument.nbytes % size == 0
        if pointer != tile or not (words or (size == dtype.itemsize and kind in _kinds(dtype))):
            shown = _shown(one)
            return f"argument {position} is declared {argument}, and the source takes {shown}; legal: {_legal(dtype, tile)}"
    return ""


def _kinds(dtype: Any) -> tuple[int, ...]:
    """C++ has float alone for a float32; 16-bit floats are the bits of an integer, or a compiler's own type. Signs do not matter."""
    if dtype.kind in "iub":
        return (2, 3)
    return (1,) if dtype.itemsize == 4 else (0, 2, 3)


def _shown(one: Told) -> str:
    pointer, size, kind = one
    if pointer and not size:
        return "a pointer to void"
    what = f"{_KINDS[kind]} of {size} bytes"
    return f"a pointer to {what}" if pointer else f"a {what}"


def _legal(dtype: Any, tile: bool) -> str:
    if dtype.kind in "iub":
        name = f"{dtype.name}_t"
    else:
        name = "float" if dtype.itemsize == 4 else "uint16_t, its bits"
    return f"{name.partition(',')[0]}*{''.join(name.partition(',')[1:])}" if tile else name
