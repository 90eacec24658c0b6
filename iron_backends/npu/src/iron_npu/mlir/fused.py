"""One version of a graph as one module: see `iron_npu.mlir.graph`."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np

from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.feedback import Program
from iron_core.image.gathers import ControlTensors
from iron_core.image.packs import Pack
from iron_core.image.parameters import Parameter
from iron_core.image.plan import Plan
from iron_npu.mlir.address_map import AddressMap
from iron_npu.mlir.graph import print_graph
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.length import PATCH


@attrs.frozen(eq=False)
class Fused:
    """Text, what its cores link, the flat arguments, the scratchpad's words, and how often the array is configured. name: of the main
    device.

    program: (words, 9) int32, how each word is made of a call's values (see `iron_core.image.parameters.rows`). tensors, feedback:
    what the host writes beside a plan's buffers: see `ControlTensors`, and the rows of `iron_core.image.feedback.next_words`.
    """

    text: str
    objects: tuple[KernelObject, ...]
    name: str
    addresses: AddressMap
    words: tuple[Parameter, ...]
    program: np.ndarray
    entries: int
    tensors: ControlTensors
    feedback: Program | None


def print_version(plan: Plan, signature: Signature, *, spelling: str = PATCH, coresident: Iterable[Pack] = ()) -> Fused:
    """One version of a plan for a device with a full ELF. spelling: of lengths set per call; see `iron_npu.mlir.length`. coresident: arrays
    that share a device, see `iron_core.image.packs`.

    CallError for a spelling that there is not, UnsupportedError for a device without full ELFs.
    """
    image = array_image(plan, signature, coresident)
    require_elf(plan, image)
    made = print_graph(plan, [image], spelling=spelling)
    (main,) = made.versions
    return Fused(
        made.text, made.objects, main.name, main.addresses, image.parameters, main.table, main.entries, image.tensors, image.program
    )


def require_elf(plan: Plan, image: ArrayImage) -> None:
    """UnsupportedError for an image that is no full ELF."""
    if not image.elf:
        what = "an xclbin per array; print_contexts() prints them" if image.contexts else "a chain of dispatches; print_chain() prints them"
        raise UnsupportedError(f"{plan.name} on {image.dev} is no full ELF but {what}.")
