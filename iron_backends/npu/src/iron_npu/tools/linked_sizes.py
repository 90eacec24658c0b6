"""How large cores' programs were when aiecc linked them, kept by what their array is, whatever image it was linked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from iron_core.array.pools import Place
from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache
from iron_npu.settings import Settings
from iron_npu.tools.programs import AIECC, CLANG, LINKER, Program, find
from iron_npu.tools.request import Request

#: Changes whenever what is kept does.
FORMAT = 1
_FILE = "sizes.json"
_CORE = re.compile(r"(?:(\d+)_)?(.*)_core_(\d+)_(\d+)")


def keep_sizes(cache: Cache, request: Request, sizes: Mapping[str, int], tools: str) -> None:
    """Keep what a request's build reported, as `iron_npu.tools.program_size` has it, by array. tools: see `made_by`."""
    found: dict[str, dict[str, int]] = {}
    arrays = [dict(module.arrays) for module in request.modules]
    for name, nbytes in sizes.items():
        parts = _CORE.fullmatch(name)
        if parts is None:
            continue
        link, device = (int(parts[1] or 0), parts[2]) if len(arrays) > 1 else (0, name.rpartition("_core_")[0])
        array = arrays[link].get(device) if link < len(arrays) else None
        if array is not None:
            found.setdefault(array, {})[f"{parts[3]},{parts[4]}"] = nbytes
    for array, cores in found.items():
        content = json.dumps({"tools": tools, "cores": cores}).encode()
        cache.keep(_key(request.dev, array), _FILE, content, about=About("programs", request.name), replace=True)


def known_sizes(cache: Cache, dev: str, array: str) -> tuple[Mapping[Place, int], str] | None:
    """(bytes by a core's place, what made them) of an array of this digest; None where none is kept. CacheError as `Cache.read`."""
    kept = cache.read(_key(dev, array), _FILE)
    if kept is None:
        return None
    said = json.loads(kept)
    cores = {(int(col), int(row)): int(size) for (col, row), size in ((at.split(","), size) for at, size in said["cores"].items())}
    return cores, str(said["tools"])


def made_by(settings: Settings) -> str:
    """What a program's size depends on beside its array: the programs that link it. "" where one is missing, or kernels' sources are
    given from elsewhere, whose every change counts."""
    programs = [find(name, settings) for name in (AIECC, CLANG, LINKER)]
    if settings.kernel_sources is not None or not all(isinstance(one, Program) for one in programs):
        return ""
    return digest("linked", [one.identity for one in programs if isinstance(one, Program)])


def _key(dev: str, array: str) -> str:
    return f"programs-{digest('programs', FORMAT, dev, array)}"
