"""From a compiled version to files: what the tools are asked for, and what they gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iron_core.array.build import kernels_of
from iron_npu.image.compiled import CompiledVersion
from iron_npu.image.core_memory import check_linked
from iron_npu.tools.build import build
from iron_npu.tools.program_size import program_sizes
from iron_npu.tools.request import Built, Stream
from iron_npu.tools.stream_maker import StreamMaker

#: By file, of an entry of the cache, which does not change, and sequence.
_makers: dict[tuple[Path, str], StreamMaker] = {}


def files(compiled: CompiledVersion) -> Sequence[Built]:
    """Of every binary of the image, in order, what it became: from the cache, or built now. What that raises: see `build`;
    UnsupportedError for a core with a larger program than it holds."""
    kernels = {}
    for array in compiled.arrays:
        for step in array.steps:
            kernels.update(kernels_of(step.configured, array.dev))
    built = build(compiled.image, kernels=kernels)
    for one in built:
        check_linked(program_sizes(one.folder), compiled.image.graph, compiled.image.dev)
    return built


def stream(file: Stream, scalars: tuple[int, ...]) -> bytes:
    """The instructions that a dynamic stream's file makes for these scalars; see `StreamMaker`."""
    key = file.path, file.sequence
    if key not in _makers:
        _makers[key] = StreamMaker(*key)
    return _makers[key](scalars)
