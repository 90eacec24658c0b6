"""GatedDeltaStep, GatedDeltaChunk and DeltaGates on the host: kernels `gated_delta_step<T>` and so on of delta.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import KernelCall
from iron_host.kernels import DELTA_GATES, GATED_DELTA, GATED_DELTA_CHUNK
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.template import TemplateLowering
from iron_host.lowerings.units import FLOATS, cpp, takes, unit
from iron_host.slots import Slots

# Of delta.h: columns of a state that a part takes. Of vectors.h: numbers of the widest vector.
COLUMNS, WIDEST = 32, 16


class _GatedDelta(Sharing):
    """Work is counted in multiplications."""

    template: ClassVar[str]
    slots: ClassVar[Slots]

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, self.template, T=FLOATS)

    def numbers(self, op: Any) -> dict[str, Any]:
        """Slots that one kernel alone has."""
        return {}

    def scratch(self, op: Any) -> int:
        """Numbers that a thread keeps."""
        raise NotImplementedError

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        rows, heads, width = shapes["v"]
        return 7 * rows * heads * op.key_dim * width

    def moved(self, op: Any, sizes: Mapping[str, int]) -> int:
        return sum(sizes.values()) + sizes["state"]  # which is read and written

    def step(self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]) -> KernelCall:
        slots = self.slots(
            **{name: name for name, _ in self.slots.pointers},
            valid=self.count(op, bindings, "valid"),
            past=self.count(op, bindings, "past"),
            key_heads=op.key_heads,
            value_heads=op.value_heads,
            key_dim=op.key_dim,
            value_dim=op.value_dim,
            repeat=op.value_heads // op.key_heads,
            tiled=int(op.tiled),
            scale=op.scale,
            **self.numbers(op),
        )
        work = 4 * op.rows * op.value_heads * op.key_dim * op.value_dim
        kernel = unit("delta.h", self.template, cpp(op.T))
        return KernelCall(kernel, slots, scratch_bytes=4 * self.scratch(op), **self.shared_by(tunables, work))


class GatedDeltaStep(_GatedDelta):
    """Heads, and columns of their states, are shared among threads."""

    operator = "iron_ops_aie.GatedDeltaStep"
    template, slots = "gated_delta_step", GATED_DELTA

    def scratch(self, op: Any) -> int:
        return op.key_dim * (COLUMNS + 3)  # type: ignore[no-any-return]


class GatedDeltaChunk(_GatedDelta):
    """Heads are shared among threads."""

    operator = "iron_ops_aie.GatedDeltaChunk"
    template, slots = "gated_delta_chunk", GATED_DELTA_CHUNK

    def numbers(self, op: Any) -> dict[str, Any]:
        return dict(chunk=op.chunk)

    def scratch(self, op: Any) -> int:
        deep, wide = (-(-n // WIDEST) * WIDEST for n in (op.key_dim, op.value_dim))
        return op.chunk * (2 * deep + 2 * wide + 2 * op.chunk + 2) + op.key_dim * wide  # type: ignore[no-any-return]


class DeltaGates(TemplateLowering):
    """Rows are shared among threads."""

    operator = "iron_ops_aie.DeltaGates"
    header, template, slots = "delta.h", "delta_gates", DELTA_GATES
    grain = Auto(4096)  # of exponentials and logarithms
