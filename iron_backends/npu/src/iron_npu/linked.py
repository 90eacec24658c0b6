"""Programs of cores as aiecc linked them, looked up where images are made."""

from __future__ import annotations

from collections.abc import Mapping

from iron_core.array.design import ArrayDesign
from iron_core.array.pools import Place, TilePlacement
from iron_core.cache.store import Cache, optional
from iron_core.devices import device
from iron_npu.image.core_memory import Linked
from iron_npu.mlir.printer import array_digest
from iron_npu.settings import Settings
from iron_npu.tools.linked_sizes import known_sizes, made_by


def linked(settings: Settings) -> Linked:
    """Sizes out of the cache, of arrays that were built; none where the cache cannot be used. Those that are too large count only as long
    as the tools that linked them are those found now: other ones may fit them in, and a refusal would keep them from being asked."""

    def sizes(array: ArrayDesign, placement: TilePlacement) -> Mapping[Place, int]:
        found: tuple[Mapping[Place, int], str] | None = None
        with optional():
            found = known_sizes(Cache("npu", settings.cache_home), array.dev, array_digest(array, placement))
        if found is None:
            return {}
        cores, tools = found
        if max(cores.values(), default=0) > device(array.dev).program_memory and made_by(settings) not in (tools, ""):
            return {}
        return cores

    return sizes
