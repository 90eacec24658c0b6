"""Loading a compiled version: what is not built is built, and one executable per version stands over what the memory holds."""

from __future__ import annotations

from iron_core.image.packaging import ELF
from iron_npu import building
from iron_npu.compiled import CompiledVersion
from iron_npu.runtime.chain import ChainExecutable
from iron_npu.runtime.executable import ElfExecutable, NpuExecutable, Running
from iron_npu.runtime.loaded_image import LoadedImage
from iron_npu.runtime.loop import ElfLoop
from iron_npu.runtime.memory import NpuMemory


def load(compiled: CompiledVersion, memory: NpuMemory, how: Running) -> NpuExecutable:
    """See `Backend.load`. What a build may raise is in `iron_npu.building`."""
    newest = memory.image
    if newest is None or newest.image is not compiled.image:
        newest = LoadedImage(memory.npu, compiled.image, building.files(compiled), building.stream, memory.files)
        memory.image = newest
    array = compiled.array
    if compiled.image.kind != ELF:
        return ChainExecutable(newest, array, memory, how)
    own = compiled.image.version(compiled.signature)
    loops = own.program is not None and not array.version.inputs and own.feeds in (None, compiled.signature)
    return (ElfLoop if loops else ElfExecutable)(newest, array, memory, how)
