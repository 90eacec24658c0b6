"""Functions that cores call: declarations, the objects they are linked from, and the small C++ the printer adds to them."""

from __future__ import annotations

import hashlib

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.kernel import KernelData
from iron_core.array.program import SetRounding, walk
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError
from iron_npu.mlir.text import Writer, memref

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
    """An object file that cores link: the kernels it defines, and C++ functions that go into it beside them.

    Kernels that mlir-aie makes by one call (a factory and its keywords) are one object. No kernels: an object of the printer's own.
    """

    file: str
    kernels: tuple[KernelData, ...] = ()
    functions: tuple[str, ...] = ()

    def merged(self, other: KernelObject) -> KernelObject:
        """One object that serves both."""
        assert self.file == other.file
        kernels = {kernel.symbol: kernel for kernel in (*self.kernels, *other.kernels)}
        functions = {*self.functions, *other.functions}
        return KernelObject(self.file, tuple(kernels[symbol] for symbol in sorted(kernels)), tuple(sorted(functions)))

    @property
    def source(self) -> str:
        """The functions as one C++ file; empty where there are none."""
        lines = ["#include <stdint.h>"]
        for kernel in self.kernels:
            takes = ", ".join(_c_type(argument) for argument in kernel.arguments)
            lines.append(f'extern "C" void {kernel.symbol}({takes});')
        return "\n".join([*lines, *self.functions, ""]) if self.functions else ""


def object_file(kernel: KernelData) -> str:
    """The object that defines a kernel."""
    if not kernel.factory:
        return f"{kernel.symbol}.o"
    digest = hashlib.sha256(repr((kernel.factory, kernel.keywords)).encode()).hexdigest()[:8]
    return f"{kernel.factory.rpartition('.')[2]}_{digest}.o"


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
        writer.line(f'func.func private @{name}({", ".join(kinds)}) attributes {{link_with = "{object_file(kernel)}"}}')

    def objects(self) -> tuple[KernelObject, ...]:
        """What has to be built for the cores to link."""
        found = {}
        for mode in _rounding_modes(self._array):
            file = f"{rounding_symbol(mode)}.o"
            found[file] = KernelObject(file, (), _rounding(mode))
        used = self._direct | {symbol for symbol, _ in self._adapters}
        for kernel in self._array.kernels:
            if kernel.symbol in used:
                one = KernelObject(object_file(kernel), (kernel,), self._functions(kernel))
                found[one.file] = found[one.file].merged(one) if one.file in found else one
        return tuple(found.values())

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


def _rounding_modes(array: ArrayDesign) -> list[str]:
    return sorted({s.mode for core in array.cores for s in walk(core.program) if isinstance(s, SetRounding)})


def _rounding(mode: str) -> tuple[str, ...]:
    body = f"{{ ::aie::set_rounding(aie::rounding_mode::{mode}); }}"
    return "#include <aie_api/aie.hpp>", f'extern "C" void {rounding_symbol(mode)}() {body}'
