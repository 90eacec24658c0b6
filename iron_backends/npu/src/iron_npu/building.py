"""From a compiled version to files: what the tools are asked for, and what they gave."""

from __future__ import annotations

from collections.abc import Sequence

from iron_core.array.build import kernels_of
from iron_core.errors import UnsupportedError
from iron_npu.compiled import CompiledVersion
from iron_npu.tools.build import build
from iron_npu.tools.request import Built, Stream


def files(compiled: CompiledVersion) -> Sequence[Built]:
    """Of every binary of the image, in order, what it became: from the cache, or built now. What that raises: see `build`."""
    kernels = {}
    for array in compiled.arrays:
        for step in array.steps:
            kernels.update(kernels_of(step.configured, array.dev))
    return build(compiled.image, kernels=kernels)


def stream(file: Stream, scalars: tuple[int, ...]) -> bytes:
    """The instructions that a dynamic stream's file makes for these scalars."""
    raise UnsupportedError(f"{file.path}: a stream of a call's numbers ({scalars}), which nothing makes yet. Legal: a full ELF.")
