"""Building what was printed: kernels' objects first, then ELFs and xclbins, side by side, each once and kept in the cache.

Needs mlir-aie and Peano, and for xclbins xclbinutil; no device. What is built is known by the text, the objects, the command lines and
the programs that ran. A program that fails is one `ToolError`, and what it worked on is kept.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import attrs

from iron_core.array.kernel import Kernel
from iron_core.aside import aside
from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache, optional
from iron_core.errors import CacheError, CacheHomeError
from iron_core.processes import Running
from iron_core.side_by_side import side_by_side
from iron_npu.image.image import Image, Module
from iron_npu.mlir.kernels import KernelObject
from iron_npu.settings import Settings
from iron_npu.tools import programs
from iron_npu.tools.command import FILES, PARAMETERS, Driver
from iron_npu.tools.linked_sizes import keep_sizes, made_by
from iron_npu.tools.make import STREAMS, make, steps
from iron_npu.tools.objects import Objects, Recipe, known_recipe
from iron_npu.tools.program_size import program_sizes
from iron_npu.tools.programs import AIECC, CLANG, XCLBINUTIL, Program
from iron_npu.tools.request import XCLBIN, Built, Request, Stream, requests
from iron_npu.tools.run import Runner

#: Changes whenever what a build gives, or how, does.
FORMAT = 1


@attrs.frozen(eq=False)
class _Work:
    """A request, the objects that each of its modules links, by their names, and what it is known by."""

    request: Request
    objects: tuple[Mapping[str, Path], ...]
    key: str


def build(
    image: Image | Iterable[Request], settings: Settings | None = None, kernels: Mapping[str, Kernel] | None = None
) -> tuple[Built, ...]:
    """An image's binaries, or all that is asked for, in order, from the cache or built; equal requests are built once.

    settings: those of the environment unless given. kernels: by symbol, kernels as they are declared: mlir-aie's are compared with these
    in full, and with what the image holds of others. Where the cache cannot be used all is built for this process, with a warning.

    MissingTool for programs that are needed and not here, ToolError where one fails, KernelMismatch where mlir-aie's kernels are not those
    that the modules call, CacheHomeError where NPU_CACHE_HOME names no folder.
    """
    wanted = list(requests(image) if isinstance(image, Image) else image)
    chosen = Settings.read() if settings is None else settings
    try:
        return _build(wanted, chosen, kernels or {})
    except CacheHomeError:
        raise
    except CacheError as error:
        first = error
    with optional():
        raise first
    return _build(wanted, attrs.evolve(chosen, cache_home=_own()), kernels or {})


def _build(wanted: list[Request], settings: Settings, kernels: Mapping[str, Kernel]) -> tuple[Built, ...]:
    tools = programs.found(needed(wanted), settings)
    works = _works(wanted, settings, tools, kernels)
    distinct = {work.key: work for work in works}
    cache = Cache("npu", settings.cache_home)
    absent = [work for work in distinct.values() if cache.get(work.key) is None]
    running, ended = Running(), itertools.count(1)
    share, linkers = _threads(settings, len(absent)), made_by(settings) if absent else ""

    def one(work: _Work) -> None:
        folder = _entry(cache, work, Runner(work.request.name, settings, running), tools, share)
        if linkers:
            keep_sizes(cache, work.request, program_sizes(folder), linkers)
        _say(f"built {next(ended)} of {len(absent)}: {work.request.name}")

    if absent:
        _say(f"building {len(absent)} {'image' if len(absent) == 1 else 'images'} with aiecc (kept from then on) ...")
    side_by_side(one, absent, running.end, settings.jobs)
    return tuple(_built(_entry(cache, work, Runner(work.request.name, settings), tools, share), work.request) for work in works)


@lru_cache(maxsize=1)
def _own() -> Path:
    """A cache for this process alone, where its home cannot be used."""
    folder = tempfile.mkdtemp(prefix="iron-npu-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def needed(wanted: Sequence[Request]) -> tuple[str, ...]:
    """The programs that a build runs."""
    names = [programs.AIECC, programs.CLANG, programs.OBJCOPY, programs.LINKER]
    if any(one.format == XCLBIN for one in wanted):
        names.append(programs.XCLBINUTIL)
    if any(module.dynamic for one in wanted for module in one.modules):
        names += [programs.AIE_OPT, programs.AIE_TRANSLATE]
    return tuple(names)


def _works(
    wanted: list[Request], settings: Settings, tools: Mapping[str, Program], kernels: Mapping[str, Kernel]
) -> list[_Work]:
    """The requests with their objects, which are made first, each once."""
    recipes: dict[tuple[str, KernelObject], Recipe] = {}
    for request in wanted:
        for module in request.modules:
            for item in module.objects:
                if (request.dev, item) not in recipes:
                    recipes[request.dev, item] = known_recipe(item, request.dev, settings, kernels)
    distinct = list(dict.fromkeys((dev, made) for (dev, _), made in recipes.items()))
    running = Running()
    sorts = {dev: Objects(dev, settings, tools) for dev, _ in distinct}

    def one(item: tuple[str, Recipe]) -> tuple[str, Path]:
        return sorts[item[0]].made(item[1], Runner(item[1].file, settings, running))

    made = dict(zip(distinct, side_by_side(one, distinct, running.end, settings.jobs), strict=True))
    identities = _identities(tools, settings)

    def links(dev: str, module: Module) -> dict[str, tuple[str, Path]]:
        return {item.file: made[dev, recipes[dev, item]] for item in module.objects}

    works = []
    for request in wanted:
        linked = [links(request.dev, module) for module in request.modules]
        texts = [(module.text, module.device, module.sequences, module.dynamic) for module in request.modules]
        known = [sorted((file, key) for file, (key, _) in each.items()) for each in linked]
        key = digest("image", FORMAT, request.format, request.dev, texts, known, _lines(request), identities)
        works.append(_Work(request, tuple({file: path for file, (_, path) in each.items()} for each in linked), key))
    return works


def _identities(tools: Mapping[str, Program], settings: Settings) -> list[tuple[str, str]]:
    """The programs that run, those that aiecc runs among them."""
    known = [(name, program.identity) for name, program in sorted(tools.items())]
    bootgen = programs.find(programs.BOOTGEN, settings)
    if isinstance(bootgen, Program):  # else it is a part of aiecc
        known.append((bootgen.name, bootgen.identity))
    for name in ("opt", "llc", "llvm-link", "clang"):
        path = tools[CLANG].path.parent / name
        if path.is_file():
            known.append((name, Program(name, path, "").identity))
    return known


def _lines(request: Request) -> list[list[str]]:
    """The command lines of aiecc, without what differs from one machine to another."""
    driver = Driver(AIECC, "peano", XCLBINUTIL)
    return [line for _, line in steps(request, driver, Path("work"))]


def _entry(cache: Cache, work: _Work, runner: Runner, tools: Mapping[str, Program], threads: int | None) -> Path:
    """The entry of one request, built if it is not there."""

    def fill(folder: Path) -> None:
        xclbinutil = str(tools[XCLBINUTIL].path) if XCLBINUTIL in tools else ""
        driver = Driver(str(tools[AIECC].path), str(tools[CLANG].folder), xclbinutil, threads)
        with runner.folder(work.key) as place:
            make(work.request, work.objects, driver, runner, tools, place, folder)

    return cache.entry(work.key, fill, about=About("image", runner.design))


def _built(folder: Path, request: Request) -> Built:
    made = json.loads((folder / STREAMS).read_text(encoding="utf-8"))
    streams = tuple(Stream(one["kernel"], one["sequence"], folder / one["path"], one["dynamic"]) for one in made)
    table = folder / PARAMETERS
    return Built(folder, folder / FILES[request.format], streams, table if table.is_file() else None)


def _threads(settings: Settings, builds: int) -> int | None:
    """Threads of each aiecc: as the environment says to all of them, else this machine's, shared among those that run at once."""
    if settings.threads is not None:
        return settings.threads
    cpus = os.cpu_count() or 1
    return max(1, cpus // max(1, min(builds, settings.jobs or cpus)))


def _say(text: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        aside(text)
