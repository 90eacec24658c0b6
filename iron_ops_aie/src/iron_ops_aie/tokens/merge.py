"""`Merge`: which row of a table of text and soft tokens each position takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Buffer,
    Case,
    Extent,
    In,
    InOut,
    Kernel,
    KernelContract,
    ObjectFifo,
    ObjectType,
    Operator,
    Out,
    Param,
    Testing,
    Tolerance,
    Value,
    Worker,
    range_,
    require_npu,
)
from iron_core.errors import ParamError
from iron_ops_aie.rules import divisors, require_divisor

#: Ids of an object at most.
BLOCK = 64
#: What a core counts: the next position, and the next rows of the audio's and of the image's soft tokens.
COUNTS = ("position", "audio", "vision")

_MERGE = """
#include <stdint.h>
extern "C" void KERNEL(const int32_t *ids, int32_t *counts, int32_t *rows) {
  for (int32_t i = 0; i < BLOCK; i++) {
    rows[i] = ids[i] == AUDIO ? counts[1]++ : ids[i] == IMAGE ? counts[2]++ : counts[0];
    counts[0]++;
  }
}
"""


class Merge(Operator):
    """y[i] = i, but the j-th `audio_token` among the ids gives audio_at + j, and the j-th `image_token` vision_at + j.

    ids, y: (rows,) int32. So y are the ids of a gather from [text | audio | vision], one table of the text's embeddings by position and
    of the soft tokens that take the placeholders' places, which begin at rows `audio_at` and `vision_at`. Per call, `valid` bounds the
    rows.

    The array is one core that goes through the ids `block` at a time and counts.

    Errors: ParamError for one placeholder twice, or a row below 0.
    """

    rows: int = Param()
    audio_token: int = Param(array=True)
    image_token: int = Param(array=True)
    audio_at: int = Param()
    vision_at: int = Param()
    block: int = Auto()
    ids = In(rows, dtype=np.int32, tile=block)
    y = Out(rows, dtype=np.int32, tile=block)
    valid = Extent(rows)
    blocks = Value(derive=lambda op: -(-op.valid // op.block))
    audio = Value(derive=lambda op: op.audio_at)
    vision = Value(derive=lambda op: op.vision_at)

    test = Testing(
        Case(rows=2048, audio_token=258881, image_token=258880, audio_at=2048, vision_at=2560, lower=True),
        Case(rows=45, audio_token=3, image_token=5, audio_at=100, vision_at=45, block=9, lower=True),
        Case(rows=64, audio_token=0, image_token=1, audio_at=0, vision_at=7, lower=True),
        Case(rows=64, audio_token=3, image_token=5, audio_at=64, vision_at=80, bounds=dict(valid=45), lower=True),
        draw=dict(ids=lambda op, rng: rng.choice([op.audio_token, op.image_token, 2, 9], op.rows)),
    )

    def validate(self) -> None:
        if self.audio_token == self.image_token:
            raise ParamError(f"Merge: audio_token and image_token are both {self.audio_token}; legal: two different ids.")
        if min(self.audio_at, self.vision_at) < 0:
            raise ParamError(f"Merge: audio_at={self.audio_at}, vision_at={self.vision_at}; legal: rows of a table, 0 or more.")

    def reference(self, ids: Any) -> Any:
        ids = np.asarray(ids)
        rows = np.arange(ids.size, dtype=np.int32).reshape(ids.shape)
        for token, first in ((self.audio_token, self.audio_at), (self.image_token, self.vision_at)):
            here = ids == token
            rows[here] = first + np.arange(here.sum())
        return rows

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    # -- the array ---------------------------------------------------------------------------------

    def resolve(self, dev: Any) -> Any:
        require_npu(self, dev)
        # A call can bound the rows by whole blocks only if these are whole 16-byte units, 4 ids.
        return self.evolve(block=self.block or max(divisors(self.rows, BLOCK), key=lambda n: (n % 4 == 0, n)))

    def compatible(self, dev: Any) -> None:
        require_divisor(self, "block", "rows", BLOCK)

    def kernel(self) -> Kernel:
        """The `Kernel` of one block. It is given what was counted before it, and goes on counting."""
        tokens = (self.audio_token, self.image_token)

        def reference(ids: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
            counts = np.array(counts)
            rows = counts[0] + np.arange(ids.size, dtype=np.int32)
            counts[0] += ids.size
            for kind, token in enumerate(tokens, 1):
                here = ids == token
                rows[here] = counts[kind] + np.arange(here.sum())
                counts[kind] += here.sum()
            return counts, rows

        def poison(ids: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
            """A row follows from the ids up to its own, so those past a call's bound change none before."""
            rows = np.logical_or.accumulate(ids) | counts.any()
            return counts | ids.any(), rows

        contract = KernelContract(roles=(In, InOut, Out), reference=reference, tolerance=self.tolerance(), poison=poison)
        kinds = tuple(ObjectType.of(n, np.int32) for n in (self.block, len(COUNTS), self.block))
        return Kernel.inline("merge", _MERGE, kinds, contract, dict(BLOCK=self.block, AUDIO=tokens[0], IMAGE=tokens[1]))

    def array(self, target: Any) -> None:
        def core(ids: Any, y: Any, counts: Any, kernel: Any, blocks: Any, audio: Any, vision: Any) -> None:
            for at, first in enumerate((0, audio, vision)):
                counts[at] = first
            for _ in range_(blocks):
                kernel(ids.acquire(), counts, y.acquire())
                ids.release()
                y.release()

        ids, y = ObjectFifo(self.ids.tile, name="ids"), ObjectFifo(self.y.tile, name="y")
        ids.prod(tile=self.ids.lane(0))
        y.cons(tile=self.y.lane(0))
        args = [ids.cons(), y.prod(), Buffer(len(COUNTS), np.int32, name="counts"), self.kernel()]
        Worker(core, args, values=[self.blocks, self.audio, self.vision], name="core")

    def composed(self, ids: Any) -> Any:
        """Block by block, with what is counted between them."""
        kernel, counts, found = self.kernel(), np.array([0, self.audio_at, self.vision_at], np.int32), []
        # Of a bounded call the last block is short.
        for at in range(0, len(ids), self.block):
            counts, rows = kernel.reference(np.asarray(ids[at : at + self.block]), counts)
            found.append(rows)
        return np.concatenate(found) if found else np.empty(0, np.int32)
