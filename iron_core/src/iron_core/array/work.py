"""`Loop`: what a kernel's inner loop does in one turn; a device's rates and latencies make cycles of it."""

from __future__ import annotations

import attrs

from iron_core.errors import DeclarationError


@attrs.frozen(kw_only=True)
class Loop:
    """times: turns of a call. reads, writes: bytes of vectors that a turn loads and stores.

    chain: the multiplications and additions of a turn that wait for each other; conversions: of float32 to bfloat16 among them; special: a
    tanh, exp2 or look-up among them; scalar: instructions of the scalar unit, or on whole numbers, among them; neither counted in `chain`.
    issued: instructions of a turn (default: those of the chain).
    overlapped: turns run into each other, so that a turn takes what it issues; else the next one waits until the last one has stored.
    """

    times: int
    reads: int = 0
    writes: int = 0
    chain: int = 1
    conversions: int = 0
    special: int = 0
    scalar: int = 0
    issued: int = 0
    overlapped: bool = False

    def __attrs_post_init__(self) -> None:
        for name in ("times", "reads", "writes", "chain", "conversions", "special", "scalar", "issued"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise DeclarationError(f"Loop({name}={value!r}); legal: a whole number, 0 or more.")
