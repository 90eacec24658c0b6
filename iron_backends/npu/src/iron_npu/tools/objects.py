"""Objects that cores link: kernels' C++ compiled with Peano, under the symbols that the printed modules call.

An object is known by its text, flags, the programs that made it, and every header that it really included: which those are is noted
when it is compiled, and they are read again to find it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from iron_core.array.kernel import Kernel, KernelData
from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache
from iron_core.devices import device
from iron_core.errors import CacheError
from iron_npu.errors import ToolError
from iron_npu.mlir.kernels import KernelObject
from iron_npu.settings import Settings
from iron_npu.tools import factory
from iron_npu.tools.programs import AIECC, CLANG, LINKER, OBJCOPY, Program
from iron_npu.tools.run import Runner

#: Changes whenever objects are made in another way.
FORMAT = 1
OBJECT, HEADERS, RECIPE = "kernel.o", "headers.json", "recipe.json"

#: Peano's flags, as mlir-aie's own compilations have them.
FLAGS = (
    *("-c", "-std=c++20", "-O2", "-DNDEBUG", "-D__AIE_API_AIE_ADF_HPP__"),
    *("-Wno-parentheses", "-Wno-attributes", "-Wno-macro-redefined", "-Wno-empty-body"),
)
#: Peano's name of an architecture of ours.
TARGETS = {"AIE2": "aie2", "AIE2P": "aie2p"}
_DEFINED = re.compile(r'^extern "C" void (\w+)\(', re.MULTILINE)


@attrs.frozen
class Unit:
    """One compilation: C++ text, folders of headers, flags of its own, and symbols that become others."""

    text: str
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Recipe:
    """How an object is made: its units, and the symbols that others may call."""

    file: str
    units: tuple[Unit, ...]
    exported: tuple[str, ...]


def compile_line(clang: str, arch: str, unit: Unit, source: Path, target: Path, headers: Path, include: tuple[str, ...]) -> list[str]:
    """Peano's command for one unit. headers: where it notes what it included. include: folders behind the unit's own."""
    places = [word for place in (*unit.include, *include) for word in ("-I", place)]
    noted = ["-MD", "-MF", str(headers)]
    return [clang, f"--target={TARGETS[arch]}-none-unknown-elf", *FLAGS, *unit.flags, *places, *noted, str(source), "-o", str(target)]


def recipe(wanted: KernelObject, dev: str, settings: Settings, declared: Mapping[str, Kernel] | None = None) -> Recipe:
    """How what a module links is made. Asks mlir-aie for the source of its own kernels; see `factory.source`."""
    units = []
    made = [kernel for kernel in wanted.kernels if kernel.factory]
    if made:
        given = factory.source(made, dev, settings, dict(declared or {}))
        units.append(Unit(given.text, given.include, given.flags, tuple((old, new) for new, old in sorted(given.symbols.items()))))
    units += [_inline(kernel) for kernel in wanted.kernels if not kernel.factory]
    if wanted.source:
        # Apart: it has kernels' arguments as bare bits.
        units.append(Unit(wanted.source))
    exported = (*(kernel.symbol for kernel in wanted.kernels), *_DEFINED.findall("\n".join(wanted.functions)))
    return Recipe(wanted.file, tuple(units), tuple(sorted(exported)))


def known_recipe(wanted: KernelObject, dev: str, settings: Settings, declared: Mapping[str, Kernel] | None = None) -> Recipe:
    """The same, kept in the cache as long as mlir-aie's Python is the same: its import takes long, and what is built needs none."""
    sources = factory.identity(settings) if any(kernel.factory for kernel in wanted.kernels) else None
    if sources is None:
        return recipe(wanted, dev, settings, declared)
    cache, key = Cache("npu", settings.cache_home), f"recipe-{digest('recipe', FORMAT, wanted, dev, sources)}"
    kept = cache.read(key, RECIPE)
    if kept is not None:
        return _thawed(json.loads(kept))
    made = recipe(wanted, dev, settings, declared)
    cache.keep(key, RECIPE, json.dumps(attrs.asdict(made)).encode(), about=About("recipe", wanted.file))
    return made


def _thawed(kept: Any) -> Recipe:
    units = []
    for one in kept["units"]:
        renamed = tuple((old, new) for old, new in one["renamed"])
        units.append(Unit(one["text"], tuple(one["include"]), tuple(one["flags"]), renamed))
    return Recipe(kept["file"], tuple(units), tuple(kept["exported"]))


def _inline(kernel: KernelData) -> Unit:
    macros = [f"-DKERNEL={kernel.symbol}", *(f"-D{name}={value}" for name, value in kernel.defines)]
    return Unit(kernel.source, flags=tuple(macros))


@attrs.frozen(eq=False)
class Objects:
    """Makes objects for one device. programs: by name, those that are used."""

    dev: str
    settings: Settings
    programs: Mapping[str, Program]

    def made(self, recipe: Recipe, runner: Runner) -> tuple[str, Path]:
        """(what it is known by, the object), from the cache or made. ToolError with what a program said."""
        cache = Cache("npu", self.settings.cache_home)
        about = self._about(recipe)
        noted = cache.read(f"headers-{about}", HEADERS)
        key = None if noted is None else _key(about, json.loads(noted))
        found = None if key is None else cache.get(key)
        if key is not None and found is not None:
            return key, found / OBJECT
        with runner.folder(about) as work:
            headers = self._make(recipe, runner, work)
            key = _key(about, headers)
            if key is None:
                raise CacheError(f"headers of {recipe.file} changed while it was compiled. Build again.")
            made = cache.entry(key, lambda folder: shutil.copy(work / OBJECT, folder / OBJECT), about=About("object", recipe.file))
            cache.keep(f"headers-{about}", HEADERS, json.dumps(headers).encode(), about=About("headers", recipe.file), replace=True)
        return key, made / OBJECT

    def _about(self, recipe: Recipe) -> str:
        """All but the headers that an object depends on."""
        tools = [(name, self.programs[name].identity) for name in (CLANG, OBJCOPY, LINKER)]
        units = [(unit.text, unit.include, unit.flags, unit.renamed) for unit in recipe.units]
        return digest("object", FORMAT, device(self.dev).arch, FLAGS, self._include(), units, recipe.exported, tools)

    def _include(self) -> tuple[str, ...]:
        """Folders of headers that every unit may include from: mlir-aie's, the AIE API among them."""
        folder = self.programs[AIECC].folder / "include"
        return (str(folder),) if folder.is_dir() else ()

    def _make(self, recipe: Recipe, runner: Runner, work: Path) -> list[str]:
        """Makes the object in a folder; the headers that were included, and the sources that are files."""
        headers: set[str] = set()
        parts = []
        for number, unit in enumerate(recipe.units):
            source, part, noted = (work / f"unit{number}{end}" for end in (".cc", ".o", ".d"))
            source.write_text(unit.text, encoding="utf-8")
            clang = str(self.programs[CLANG].path)
            runner.run(compile_line(clang, device(self.dev).arch, unit, source, part, noted, self._include()), work)
            if not part.is_file():
                raise ToolError(CLANG, recipe.file, "it made no object and reported no error")
            if noted.is_file():
                headers |= set(included(noted.read_text(encoding="utf-8", errors="replace"))) - {str(source)}
            if unit.renamed:
                renames = [f"--redefine-sym={old}={new}" for old, new in unit.renamed]
                runner.run([str(self.programs[OBJCOPY].path), *renames, str(part)], work)
            parts.append(part)
        joined = work / OBJECT
        runner.run([str(self.programs[LINKER].path), "-r", "-o", str(joined), *map(str, parts)], work)
        # Two objects of one core may have functions of their own by one name.
        kept = [f"--keep-global-symbol={symbol}" for symbol in recipe.exported]
        runner.run([str(self.programs[OBJCOPY].path), *kept, str(joined)], work)
        return sorted(headers)


def included(noted: str) -> list[str]:
    """The files that a compiler noted as Make has it: "target: file file", lines that go on behind a backslash."""
    text = noted.replace("\\\n", " ").partition(": ")[2]
    words = re.findall(r"(?:\\.|\S)+", text)
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _key(about: str, headers: list[str]) -> str | None:
    """What an object is known by; None where a header is not there any more."""
    try:
        return digest(about, *((path, _content(path)) for path in headers))
    except OSError:
        return None


def _content(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
