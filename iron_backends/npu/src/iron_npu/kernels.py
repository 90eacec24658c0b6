"""Functions that cores call: declarations, the objects they are linked from, and the small C++ the printer adds to them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.kernel import KernelData
from iron_core.array.objects import ObjectType
from iron_core.array.program import SetRounding, walk
from iron_core.errors import DeclarationError
from iron_npu.text import Writer, memref

_SCALARS = {
    "bool": "i8",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
    "float32": "f32",
    "bfloat16": "bf16",
}
_C_SCALARS = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "f32": "float", "bf16": "bfloat16"}
_ROUNDING = "iron_set_rounding"


def scalar_type(dtype_name: str) -> str:
    """MLIR's type of a scalar argument."""
    try:
        return _SCALARS[dtype_name]
    except KeyError:
        raise DeclarationError(f"a kernel's scalar of {dtype_name}; legal: {', '.join(_SCALARS)}.") from None


def rounding_symbol(mode: str) -> str:
    """The function that sets a core's rounding mode."""
    return f"{_ROUNDING}_{mode}"


@attrs.frozen
class KernelObject:
    """An object file that cores link: what builds it, and C++ functions that go into it beside the kernel itself.

    kernel: None for an object of the printer's own.
    """

    file: str
    kernel: KernelData | None
    functions: tuple[str, ...] = ()

    def merged(self, other: KernelObject) -> KernelObject:
        """One object that serves both: the same kernel, and the functions of either."""
        assert (self.file, self.kernel) == (other.file, other.kernel)
        return attrs.evolve(self, functions=tuple(sorted({*self.functions, *other.functions})))

    @property
    def source(self) -> str:
        """The functions as one C++ file; empty where there are none."""
        head = "#include <stdint.h>\n"
        if self.kernel is not None:
            head += f'extern "C" void {self.kernel.symbol}({", ".join(_c_type(a) for a in self.kernel.arguments)});\n'
        return head + "".join(f"{function}\n" for function in self.functions) if self.functions else ""


class Kernels:
    """The functions one array calls, in the order of their symbols.

    A kernel that is given part of an object is called through an adapter: a function that takes the whole object and an
    element offset, and hands the kernel the address. It lies in the kernel's own object. (A memref with an offset would lose
    it on the way into a function: a core passes bare pointers.)
    """

    def __init__(self, array: ArrayDesign) -> None:
        self._array = array
        self._adapters: dict[tuple[str, tuple[ObjectType | None, ...]], str] = {}
        self._direct: set[str] = set()

    def callee(self, kernel: KernelData, bases: tuple[ObjectType | None, ...]) -> str:
        """The symbol to call. bases: per argument the type of the object a part of which is given, else None."""
        if not any(bases):
            self._direct.add(kernel.symbol)
            return kernel.symbol
        key = kernel.symbol, bases
        if key not in self._adapters:
            given = "_".join("x" if base is None else str(base.elements) for base in bases)
            self._adapters[key] = f"{kernel.symbol}_at_{given}"
        return self._adapters[key]

    def declare(self, writer: Writer) -> None:
        """The `func.func` declarations of what was called."""
        for mode in _rounding_modes(self._array):
            symbol = rounding_symbol(mode)
            writer.line(f'func.func private @{symbol}() attributes {{link_with = "{symbol}.o"}}')
        for kernel in self._array.kernels:
            if kernel.symbol in self._direct:
                self._declare(writer, kernel, kernel.symbol, (None,) * len(kernel.arguments))
            for (symbol, bases), name in self._adapters.items():
                if symbol == kernel.symbol:
                    self._declare(writer, kernel, name, bases)

    def _declare(self, writer: Writer, kernel: KernelData, name: str, bases: tuple[ObjectType | None, ...]) -> None:
        kinds: list[str] = []
        for argument, base in zip(kernel.arguments, bases, strict=True):
            if isinstance(argument, str):
                kinds.append(scalar_type(argument))
            else:
                kinds += [memref(argument)] if base is None else [memref(base), "i32"]
        writer.line(f'func.func private @{name}({", ".join(kinds)}) attributes {{link_with = "{kernel.symbol}.o"}}')

    def objects(self) -> tuple[KernelObject, ...]:
        """What has to be built for the cores to link."""
        own = [KernelObject(f"{rounding_symbol(m)}.o", None, _rounding(m)) for m in _rounding_modes(self._array)]
        used = self._direct | {symbol for symbol, _ in self._adapters}
        kernels = (kernel for kernel in self._array.kernels if kernel.symbol in used)
        return (*own, *(KernelObject(f"{kernel.symbol}.o", kernel, self._functions(kernel)) for kernel in kernels))

    def _functions(self, kernel: KernelData) -> tuple[str, ...]:
        functions = []
        for (symbol, bases), name in self._adapters.items():
            if symbol != kernel.symbol:
                continue
            parameters, passed = [], []
            for i, (argument, base) in enumerate(zip(kernel.arguments, bases, strict=True)):
                parameters.append(f"{_c_type(argument)} a{i}")
                if base is not None:
                    parameters.append(f"int32_t o{i}")
                passed.append(f"a{i}" if base is None else f"a{i} + o{i}")
            functions.append(f'extern "C" void {name}({", ".join(parameters)}) {{ {symbol}({", ".join(passed)}); }}')
        return tuple(sorted(functions))


def _c_type(argument: ObjectType | str) -> str:
    """A C type with the size of an argument; what lies behind a pointer is not looked at."""
    if isinstance(argument, str):
        return _C_SCALARS[scalar_type(argument)]
    return f"uint{8 * argument.dtype.itemsize}_t *"


def _rounding_modes(array: ArrayDesign) -> Iterable[str]:
    return sorted({s.mode for core in array.cores for s in walk(core.program) if isinstance(s, SetRounding)})


def _rounding(mode: str) -> tuple[str, ...]:
    body = f"{{ ::aie::set_rounding(aie::rounding_mode::{mode}); }}"
    return "#include <aie_api/aie.hpp>", f'extern "C" void {rounding_symbol(mode)}() {body}'
