"""A kernel's own C++ compiled with this machine's compiler, and held against its tile reference.

It runs in a process of its own, which what it does wrong cannot harm: a call that never ends, or writes where it may not, is told
in words.
"""

from __future__ import annotations

import os
import pickle
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.array.kernel import Kernel
from iron_core.cache.eviction import ZIG
from iron_core.cache.home import home, unusable
from iron_core.declare.formats import as_dtype
from iron_core.declare.objects import ObjectType
from iron_core.declare.tolerance import Deviation
from iron_core.errors import CacheError, DeclarationError, DeviationError
from iron_core.processes import TimeLimit, cxx_commands, output, run
from iron_core.side_by_side import side_by_side
from iron_core.trials.takes import MOST, Told, disagreement, telling

#: What is computed is what is written: no multiply-add in place of a product and a sum, which round once each.
FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w")
#: Bytes around a tile that no kernel may touch: a core's vectors are aligned to as many.
GUARD = 64
#: Seconds that the calls of one kernel may take.
SECONDS = 60.0

_CHILD = """
import ctypes, pickle, sys
library, symbol, given, made, most, guard = *sys.argv[1:5], *map(int, sys.argv[5:])
with open(given, "rb") as file:
    calls = pickle.load(file)
loaded = ctypes.CDLL(library)
told = (ctypes.c_int * (3 * most))()
found = getattr(loaded, symbol + "_takes")(told)
results = []
for call in calls:
    arguments, tiles = [], []
    for kind, value in call:
        if kind == "tile":
            raw = ctypes.create_string_buffer(len(value) + guard)
            start = -ctypes.addressof(raw) % guard
            ctypes.memmove(ctypes.addressof(raw) + start, value, len(value))
            tiles.append((raw, start, len(value)))
            arguments.append(ctypes.c_void_p(ctypes.addressof(raw) + start + guard))
        else:
            arguments.append(getattr(ctypes, kind)(value))
    getattr(loaded, symbol)(*arguments)
    results.append([raw.raw[start : start + size] for raw, start, size in tiles])
with open(made, "wb") as file:
    pickle.dump(([tuple(told[3 * i : 3 * i + 3]) for i in range(found)], results), file)
"""


def compiler() -> tuple[str, ...] | None:
    """The command that compiles C++ here: $CXX where it is set, else the first of c++, g++, clang++ and the ziglang wheel's that runs.
    None where there is none."""
    given = os.environ.get("CXX", "").strip()
    try:
        commands = [tuple(shlex.split(given))] if given else list(cxx_commands())
    except ValueError:  # a quote that is not closed
        return None
    for command in commands:
        line = (*command, "--version") if "ziglang" not in command else (*command[:-1], "version")
        if output(line, _environment()) is not None:
            return command
    return None


def _environment() -> dict[str, str]:
    """Ours, with zig's cache inside Iron's, where there is one."""
    folder = Path(tempfile.gettempdir()) / ZIG
    try:
        if not unusable(home()):
            folder = home() / "iron" / "host" / ZIG
    except CacheError:
        pass
    zig = {"ZIG_LOCAL_CACHE_DIR": str(folder / "local"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "global")}
    return os.environ | {"LC_ALL": "C"} | zig


@attrs.frozen(eq=False)
class CompiledKernel:
    """An inline kernel and the shared object of its C++."""

    kernel: Kernel
    library: Path

    def takes(self) -> list[Told]:
        """Its arguments as the C++ has them."""
        return self._run([])[0]

    def check(self, calls: Iterable[Sequence[Any]]) -> Deviation:
        """Judge it on calls: per call the arguments that are read, in order, bound scalars too (what `noting()` notes).

        DeclarationError where it takes other types than are declared, crashes or does not end. DeviationError where it writes outside
        of its outputs, an answer is further from the tile reference than the contract's tolerance, or the same call gives another
        answer later.
        """
        data = self.kernel.data
        wrong = disagreement(data, self.takes())
        if wrong:
            raise DeclarationError(f"kernel {data.symbol}: {wrong}.")
        calls = list(calls)
        if not calls:
            return Deviation()
        packed = [list(self._packed(call)) for call in calls]
        results = self._run([*packed, packed[0]])[1]
        worst = Deviation()
        for call, given, made in zip(calls, packed, results, strict=False):
            worst = worst.worse(self._judged(call, given, made))
        if results[-1] != results[0]:
            raise DeviationError(f"kernel {data.symbol}: the same call gives another answer when it is made again.")
        return worst

    def _packed(self, call: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """Arguments as the process that calls it takes them: tiles as bytes within guards, scalars by their C type."""
        data, left = self.kernel.data, iter(call)
        for position, (kind, role) in enumerate(zip(data.arguments, data.roles, strict=True)):
            if isinstance(kind, ObjectType):
                fence = bytes([0x5A + 17 * position & 0xFF]) * GUARD  # of each another: what is copied from one is no fence elsewhere
                # What nobody wrote is no number, and of integers none that is likely.
                held = bytes([0xFF if kind.dtype.kind not in "iub" else 0xA5]) * kind.nbytes
                if role != "out":
                    held = np.ascontiguousarray(next(left), kind.dtype).tobytes()
                yield "tile", fence + held + fence
            else:
                value = next(left)
                value = getattr(value, "value", value)
                dtype = as_dtype(kind)
                if dtype.kind in "iub":
                    yield f"c_{dtype.name}", int(value)
                elif dtype.itemsize == 4:
                    yield "c_float", float(value)
                else:
                    yield "c_uint16", int(np.array(value, dtype).view(np.uint16))

    def _judged(self, call: Sequence[Any], given: list[tuple[str, Any]], made: list[bytes]) -> Deviation:
        """One call's tiles against the tile reference's."""
        data, contract = self.kernel.data, self.kernel.contract
        with np.errstate(all="ignore"):
            result = contract.reference(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in call))
        want = iter(result if isinstance(result, tuple) else (result,))
        before = iter(held for kind, held in given if kind == "tile")
        after, worst = iter(made), Deviation()
        for position, (kind, role) in enumerate(zip(data.arguments, data.roles, strict=True)):
            if not isinstance(kind, ObjectType):
                continue
            held, now = next(before), next(after)
            what = f"kernel {data.symbol}, argument {position} ({kind})"
            if now[:GUARD] != held[:GUARD] or now[-GUARD:] != held[-GUARD:]:
                raise DeviationError(f"{what}: it writes {'before' if now[:GUARD] != held[:GUARD] else 'behind'} the tile.")
            if role == "in":
                if now != held:
                    raise DeviationError(f"{what}: it writes to a tile that it only reads.")
                continue
            exact = next(want, None)
            if exact is None or np.size(exact) != kind.elements:
                gave = "nothing" if exact is None else list(np.shape(exact))
                raise DeclarationError(f"{what}: its tile reference gave {gave}; legal: {kind.elements} numbers.")
            got = np.frombuffer(now[GUARD:-GUARD], kind.dtype)
            worst = worst.worse(contract.tolerance.check(got, np.asarray(exact).reshape(-1), kind.dtype, None, what))
        return worst

    def _run(self, calls: list[list[tuple[str, Any]]]) -> tuple[list[Told], list[list[bytes]]]:
        """What it takes, and per call what its tiles hold afterwards, of a process of its own."""
        symbol = self.kernel.data.symbol
        with tempfile.TemporaryDirectory(prefix="iron-kernel-") as folder:
            given, made, log = (Path(folder) / name for name in ("given", "made", "said"))
            given.write_bytes(pickle.dumps(calls))
            child = (sys.executable, "-I", "-S", "-c", _CHILD)
            line = (*child, str(self.library), symbol, str(given), str(made), str(MOST), str(GUARD))
            try:
                status, said = run(line, os.environ, log=log, seconds=SECONDS)
            except TimeLimit:
                waited = f"{SECONDS:.0f} s were waited for {len(calls)} calls"
                raise DeclarationError(f"kernel {symbol}: its C++ does not end; {waited}.") from None
            if status < 0:
                raise DeclarationError(f"kernel {symbol}: its C++ crashes ({signal.Signals(-status).name}) where it is called.")
            if status:
                last = (said.strip().splitlines() or [""])[-1]
                if f"symbol: {symbol}" in last or f"undefined symbol: {symbol}" in last:
                    raise DeclarationError(f'kernel {symbol}: its C++ defines no `extern "C" void KERNEL(...)`.')
                raise DeclarationError(f"kernel {symbol}: its C++ cannot be called: {last}.")
            return pickle.loads(made.read_bytes())


def compiled(kernel: Kernel, command: Sequence[str], folder: Path) -> CompiledKernel:
    """Compile an inline kernel into `folder`. DeclarationError with the compiler's first errors."""
    data = kernel.data
    source, library = folder / f"{data.symbol}.cpp", folder / f"{data.symbol}.so"
    source.write_text(data.source + telling(data.symbol), encoding="utf-8")
    macros = [f"-DKERNEL={data.symbol}", *(f"-D{name}={value}" for name, value in data.defines)]
    line = [*command, *FLAGS, *macros, str(source), "-o", str(library), "-lm"]
    status, said = run(line, _environment())
    if status or not library.is_file():
        errors = [text for text in said.splitlines() if "error" in text]
        own = [text for text in errors if text.startswith((str(source), source.name))]
        if errors and not own:  # its source compiles, and what asks it for its arguments does not find it
            raise DeclarationError(f'kernel {data.symbol}: its C++ defines no `extern "C" void KERNEL(...)`.')
        errors = own or said.splitlines() or ["no output"]
        shown = "; ".join(text.replace(f"{folder}{os.sep}", "") for text in errors[:2])
        raise DeclarationError(f"kernel {data.symbol}: {Path(command[0]).name} does not compile its C++: {shown}.")
    return CompiledKernel(kernel, library)


def compile_all(kernels: Mapping[str, Kernel], command: Sequence[str], folder: Path) -> dict[str, CompiledKernel | DeclarationError]:
    """Inline kernels by symbol, compiled several at a time; what does not compile is its error."""

    def one(kernel: Kernel) -> CompiledKernel | DeclarationError:
        try:
            return compiled(kernel, command, folder)
        except DeclarationError as error:
            return error

    return dict(zip(kernels, side_by_side(one, kernels.values()), strict=True))


def random_arguments(kernel: Kernel, seed: int) -> tuple[Any, ...]:
    """Random tiles and small scalars for all that a kernel reads: a call for `CompiledKernel.check`, where any numbers are legal."""
    data, bound = kernel.data, dict(kernel.contract.bindings)
    rng = np.random.default_rng(seed)
    given: list[Any] = []
    for position, (kind, role) in enumerate(zip(data.arguments, data.roles, strict=True)):
        if not isinstance(kind, ObjectType):
            given.append(bound[position] if position in bound else int(rng.integers(0, 64)))
        elif role != "out":
            whole = kind.dtype.kind in "iu"
            given.append((rng.integers(0, 100, kind.shape) if whole else rng.standard_normal(kind.shape)).astype(kind.dtype))
    return tuple(given)
