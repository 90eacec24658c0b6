"""Kernels that mlir-aie hosts: its factory is called as a kernel says, and what it promises is held against what the kernel does.

mlir-aie's Python is imported here alone, when a build needs a kernel of it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any, get_args

import attrs
import numpy as np

from iron_core.array.kernel import Kernel, KernelData
from iron_core.cache.keys import known_sources
from iron_core.declare.formats import as_dtype
from iron_core.declare.objects import ObjectType
from iron_core.devices import device
from iron_core.errors import FormatError, printable
from iron_npu.errors import KernelMismatch, MissingTool
from iron_npu.settings import Settings, variable
from iron_npu.tools.programs import AIECC, MLIR_AIE, Program, find

KERNELS = "aie.iron.kernels"
#: What mlir-aie calls roles, over its versions, and what they are called here.
_ROLES = {"in": "in", "out": "out", "inout": "inout", "param": "param", "scalar": "param", "count": "param"}
#: The current device is one of the whole process.
_turn = RLock()


@attrs.frozen(eq=False)
class Source:
    """What a factory gave: C++ that defines `symbols` (by the symbol of our kernel the one in the source), and how it is compiled."""

    text: str
    symbols: dict[str, str]
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def source(kernels: Sequence[KernelData], dev: str, settings: Settings, declared: dict[str, Kernel] | None = None) -> Source:
    """The C++ of kernels that one call of a factory makes. declared: by symbol, kernels whose whole contracts are at hand.

    MissingTool without mlir-aie's Python. KernelMismatch where it has no such factory or the factory does not take the kernel's
    keywords, and where what it promises is not what a kernel does here.
    """
    first = kernels[0]
    with _turn, _current(dev, settings):
        made = _made(first, _factory(first, settings))
        symbols = {}
        for kernel in kernels:
            own, name = _named(made, kernel)
            symbols[kernel.symbol] = name
            if own is not None:
                compare(kernel, own, dev, (declared or {}).get(kernel.symbol))
    text, path = getattr(made, "_source_string", None), getattr(made, "_source_file", None)
    include = tuple(map(str, getattr(made, "_include_dirs", None) or ()))
    if text is not None:
        written = str(text)
    elif path is not None:
        written = f'#include "{Path(path).absolute()}"\n'
        include = (str(Path(path).absolute().parent), *include)
    else:
        raise KernelMismatch(f"kernel {first.symbol}: {KERNELS}.{first.factory} gave no C++ source, but {type(made).__name__}.")
    return Source(written, symbols, include, tuple(map(str, getattr(made, "_compile_flags", None) or ())))


def module(name: str, settings: Settings) -> Any:
    """A module of mlir-aie's, found beside `aiecc` if it is not on Python's path. MissingTool where it cannot be imported."""
    _reach(settings)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "aie":
            raise MissingTool(f"npu: mlir-aie's Python is not installed: {error}. {MLIR_AIE.fix}") from None
        raise MissingTool(f"npu: mlir-aie's Python ({name}) cannot be imported: {error}. {MLIR_AIE.fix}") from None


def identity(settings: Settings) -> str | None:
    """What factories give depends on: mlir-aie's Python, by its files, which are not imported. None where that is not all: it is not
    there, or takes kernels' sources from elsewhere."""
    if settings.kernel_sources is not None:
        return None
    _reach(settings)
    return known_sources("aie")


def _reach(settings: Settings) -> None:
    """Put the Python beside `aiecc` on Python's path, if there is no other."""
    if "aie" in sys.modules or find_spec("aie") is not None:
        return
    program = find(AIECC, settings)
    beside = program.folder / "python" if isinstance(program, Program) else None
    if beside is not None and (beside / "aie").is_dir() and str(beside) not in sys.path:
        sys.path.append(str(beside))
        invalidate_caches()


@contextmanager
def _current(dev: str, settings: Settings) -> Iterator[None]:
    """With a device as mlir-aie's current one, and the settings' folder of sources as its own: by these factories choose theirs."""
    iron = module("aie.iron", settings)
    before = iron.get_current_device()
    name = variable("kernel_sources")
    held = os.environ.get(name)
    if settings.kernel_sources is not None:
        os.environ[name] = str(settings.kernel_sources)
    iron.set_current_device(module("aie.iron.device", settings).from_name(device(dev).family))
    try:
        yield
    finally:
        iron.set_current_device(before)
        if settings.kernel_sources is not None:
            os.environ.pop(name, None)
            os.environ.update({} if held is None else {name: held})


def _factory(kernel: KernelData, settings: Settings) -> Any:
    """`aie.iron.kernels.<factory>`; a module's function of its own name where that is what the name is of."""
    found: Any = module(KERNELS, settings)
    for name in kernel.factory.split("."):
        missing = object()
        part = getattr(found, name, missing)
        if part is missing:
            raise KernelMismatch(
                f"kernel {kernel.symbol} is {KERNELS}.{kernel.factory}, which this mlir-aie does not have: {found.__name__} has no {name}."
            )
        found = part
    return getattr(found, kernel.factory.rpartition(".")[2], found) if inspect.ismodule(found) else found


def _made(kernel: KernelData, factory: Any) -> Any:
    try:
        inspect.signature(factory).bind(**dict(kernel.keywords))
    except TypeError as error:
        takes = ", ".join(inspect.signature(factory).parameters)
        raise KernelMismatch(f"kernel {kernel.symbol} calls {KERNELS}.{kernel.factory}: {error}. Legal: {takes}.") from None
    try:
        return factory(**{name: _value(given) for name, given in kernel.keywords})
    except (TypeError, ValueError, NotImplementedError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in kernel.keywords)
        raise KernelMismatch(f"kernel {kernel.symbol}: {KERNELS}.{kernel.factory}({given}) is refused: {printable(error, 300)}") from None


def _value(given: Any) -> Any:
    """A keyword as a factory takes it: the name of a dtype is its class."""
    if not isinstance(given, str):
        return given
    try:
        return as_dtype(given).type
    except FormatError:
        return given


def _named(made: Any, kernel: KernelData) -> tuple[Any, str]:
    """The function of a factory's that is this kernel, if it says which, and the symbol that its source defines it by."""
    prefix = getattr(getattr(made, "object_file", None), "symbol_prefix", None) or getattr(made, "_symbol_prefix", None)
    main = str(made._name).removeprefix(f"{prefix}_" if prefix else "")
    asked = kernel.symbol.rpartition("_")[0]
    if asked in (kernel.factory.rpartition(".")[2], main):
        return made, main
    also = getattr(made, "also", None)
    return getattr(also, asked, None) or getattr(made, asked, None), asked


def compare(kernel: KernelData, made: Any, dev: str, declared: Kernel | None = None) -> None:
    """KernelMismatch where what a factory made promises something else than the kernel as it is declared here."""
    theirs = getattr(made, "contract", None)
    for rule, ours, other in chain(_arguments(kernel, made), _promises(kernel, theirs, dev, declared)):
        if ours != other:
            raise KernelMismatch(f"kernel {kernel.symbol}: {rule} {ours} here, and {other} of {KERNELS}.{kernel.factory} in this mlir-aie.")


def _arguments(kernel: KernelData, made: Any) -> Iterator[tuple[str, str, str]]:
    """(what is compared, as it is here, as it is theirs): how many arguments, and the elements of each."""
    types = made.arg_types() if callable(getattr(made, "arg_types", None)) else getattr(made, "_arg_types", None)
    if not types:
        return
    yield "arguments are", str(len(kernel.arguments)), str(len(types))
    for number, (ours, theirs) in enumerate(zip(kernel.arguments, types, strict=True)):
        said = f"1 {ours}" if isinstance(ours, str) else f"{ours.elements} {ours.dtype_name}"
        other = _type(theirs)
        if other:
            yield f"argument {number} is", said if not isinstance(ours, str) else ours, other


def _type(theirs: Any) -> str:
    """An argument's type as `np.ndarray[(n,), np.dtype[T]]`, or of a scalar, in words; "" for one that is neither."""
    parts = get_args(theirs)
    if len(parts) == 2:
        return f"{int(np.prod(parts[0]))} {np.dtype((get_args(parts[1]) or (parts[1],))[0]).name}"
    try:
        return np.dtype(theirs).name
    except TypeError:
        return ""


def _promises(kernel: KernelData, theirs: Any, dev: str, declared: Kernel | None) -> Iterator[tuple[str, str, str]]:
    """The same of contracts: roles, stack, devices; of a kernel whose contract is at hand also how exact it is and what it gives."""
    if theirs is None:
        return
    roles = getattr(theirs, "roles", None)
    if roles is not None:
        yield "roles are", ", ".join(kernel.roles), ", ".join(_ROLES.get(_name(role), _name(role)) for role in roles)
    stack = getattr(theirs, "stack_bytes", None)
    if stack is not None and stack > kernel.stack:
        yield "a call takes", f"{kernel.stack} bytes of stack", f"{stack} bytes"
    refused = {str(one).lower() for one in getattr(theirs, "unsupported", None) or ()}
    names = {dev, device(dev).family, device(dev).arch.lower()}
    if refused & names:
        yield f"{device(dev).family} is", "supported", "not supported"
    if declared is not None:
        yield from _computes(declared, theirs)


def _computes(kernel: Kernel, theirs: Any) -> Iterator[tuple[str, str, str]]:
    contract = kernel.contract
    exact = getattr(getattr(theirs, "tolerance", None), "is_exact", getattr(getattr(theirs, "tolerance", None), "exact", None))
    if isinstance(exact, bool) and contract.tolerance.exact and not exact:
        yield "results are", "exact", "within a tolerance"
    reference = getattr(theirs, "reference", None)
    if callable(reference):
        given = [_zeros(argument) for argument, role in zip(kernel.data.arguments, kernel.data.roles, strict=True) if role != "out"]
        bound = dict(contract.bindings)
        read = [i for i, role in enumerate(kernel.data.roles) if role != "out"]
        given = [bound.get(i, zero) for i, zero in zip(read, given, strict=True)]
        with np.errstate(all="ignore"):
            yield "on zeros it gives", _sizes(contract.reference(*given)), _sizes(reference(*given))


def _zeros(argument: ObjectType | str) -> Any:
    return as_dtype(argument).type(0) if isinstance(argument, str) else np.zeros(argument.shape, argument.dtype)


def _sizes(results: Any) -> str:
    """How many elements each result has: mlir-aie's tiles are flat."""
    return ", ".join(f"{np.size(one)} elements" for one in (results if isinstance(results, tuple | list) else (results,)))


def _name(role: Any) -> str:
    """A role's name: a text, a class or a member of an enumeration."""
    return str(role if isinstance(role, str) else getattr(role, "__name__", None) or getattr(role, "name", role)).lower()
