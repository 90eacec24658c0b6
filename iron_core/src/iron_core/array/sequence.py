"""What a sequence becomes when it is recorded: the host-issued instruction stream of one design. Data only."""

from __future__ import annotations

from typing import Union

import attrs

from iron_core.array.descriptors import Descriptor
from iron_core.array.gather import Gather
from iron_core.declare.affine import Affine, by_key


@attrs.frozen
class Word:
    """A per-call number of a design.

    kind: "core" (cores read it), "offset" (elements added to a transfer's base) or "length" (how many units a transfer
    moves). form: of the number that a call gives for the operator's member `form.value`; that is a multiple of `every`.
    """

    name: str
    kind: str
    form: Affine = attrs.field(eq=by_key)
    every: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """Words of equal keys have one number in every call."""
        return (self.kind, self.form.key, self.every)


@attrs.frozen
class Transfer:
    """Configure and start a shim DMA task: `descriptors` in turn. `way`: "fill" (into the array) or "drain".

    offset_by: added to every descriptor's offset. length_by: the one descriptor moves that many times `unit` elements,
    from its start on. token: it can be awaited.
    """

    task: int
    way: str
    operand: str
    fifo: str
    descriptors: tuple[Descriptor, ...]
    token: bool = False
    offset_by: Word | None = None
    length_by: Word | None = None
    unit: int = 1

    @property
    def elements(self) -> int:
        """Elements it moves when no length is given."""
        return sum(d.size for d in self.descriptors)


@attrs.frozen
class Await:
    """Wait until the task is done; its descriptors are free afterwards."""

    task: int


@attrs.frozen
class Free:
    """The task is known to be done: its descriptors are free."""

    task: int


@attrs.frozen
class WriteWord:
    """Write a number that is the same at every call into a core's buffer."""

    buffer: str
    index: int
    value: int


@attrs.frozen
class Sync:
    """Write this call's numbers into cores' buffers: (buffer, index, word) each."""

    words: tuple[tuple[str, int, Word], ...]


@attrs.frozen
class SetBarrier:
    """Set a worker's barrier, after everything before it is written."""

    lock: str
    value: int


@attrs.frozen
class AwaitToken:
    """Wait for one token of the tasks that control packets start on a fifo's producing channel."""

    fifo: str


Step = Union[Transfer, Await, Free, WriteWord, Sync, SetBarrier, AwaitToken]


@attrs.frozen
class SequenceArgument:
    """A tensor of the sequence, flat: an operand's name, its dtype's name and its number of elements.

    control: it holds the control words of that gather, made on the host of what the caller gives as this operand.
    """

    operand: str
    dtype_name: str
    elements: int
    control: Gather | None = None


@attrs.frozen
class Sequence:
    """The tensors it is given, the per-call words it follows, and its steps."""

    arguments: tuple[SequenceArgument, ...]
    words: tuple[Word, ...]
    steps: tuple[Step, ...]

    def transfers(self) -> tuple[Transfer, ...]:
        """Its transfers, in the order they start."""
        return tuple(step for step in self.steps if isinstance(step, Transfer))
