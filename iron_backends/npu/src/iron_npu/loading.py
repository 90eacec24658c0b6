"""Loading a compiled version: what is not built is built, and one executable per version stands over what the memory holds."""

from __future__ import annotations

from collections.abc import Mapping

from iron_core.image.array_image import ArrayImage
from iron_core.image.packaging import ELF
from iron_core.image.plan import VersionPlan
from iron_npu import building
from iron_npu.image.compiled import CompiledVersion, compiled
from iron_npu.linked import linked
from iron_npu.runtime.chain import ChainExecutable
from iron_npu.runtime.executable import ElfExecutable, NpuExecutable, Running
from iron_npu.runtime.loaded_image import LoadedImage
from iron_npu.runtime.loop import ElfLoop
from iron_npu.runtime.memory import NpuMemory
from iron_npu.settings import Settings


def load(image: CompiledVersion, memory: NpuMemory, arrays: Mapping[VersionPlan, ArrayImage], how: Running) -> NpuExecutable:
    """See `Backend.load`. arrays: of the plan's versions, as far as they are made. What a build may raise is in `iron_npu.building`."""
    loaded = memory.image
    if loaded is None or loaded.plan is not memory.plan or not loaded.holds(image.signature):
        if any(image.signature == version.signature for version in memory.plan.versions):
            image = compiled(memory.plan, image.signature, arrays, known=image, linked=linked(Settings.read()))
        loaded = LoadedImage(memory.npu, memory.plan, image.image, building.files(image), building.stream, memory.files)
        memory.image = loaded
    array = image.array
    if loaded.image.kind != ELF:
        return ChainExecutable(loaded, array, memory, how)
    own = loaded.image.version(image.signature)
    loops = own.program is not None and not array.version.inputs and own.feeds in (None, image.signature)
    return (ElfLoop if loops else ElfExecutable)(loaded, array, memory, how)
