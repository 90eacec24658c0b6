"""Whole images of models at their full size, as `iron compile` makes them: of weights that nobody draws."""

from __future__ import annotations

import functools
from typing import Any

from iron_core.cli.targets import compiled_graph
from iron_core.image.packaging import each_step
from iron_npu.image.image import Image
from iron_npu.image.making import image_of

#: Name -> (model, device, options of a compile).
IMAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama-npu2": ("llama", "npu2", {}),
    "llama-npu2-folded": ("llama", "npu2", {"fold": True}),
    "llama-npu2-each-step": ("llama", "npu2", {"boundaries": each_step}),
    "llama-npu1": ("llama", "npu1", {}),
    "embedding-gemma-2-npu2": ("embedding_gemma2", "npu2", {}),
    "embedding-gemma-2-npu1": ("embedding_gemma2", "npu1", {}),
}


@functools.lru_cache(maxsize=1)
def whole(name: str) -> Image:
    """The image of this name."""
    model, dev, options = IMAGES[name]
    line = ["--random-weights", "0"]
    return image_of(compiled_graph(model, line, backend="null", dev=dev, unread=True, **options).plan)
