"""What can be wrong with a file of an NPU's image."""

from __future__ import annotations

from iron_core.errors import LONGEST, IronError, printable


class ImageError(IronError, ValueError):
    """A file of an NPU's image that is cut short or breaks a rule of its format, or values that no such file holds.

    The message is one printable line of at most `LONGEST` characters: the byte, the rule, the value and what would be legal.

    Raises:  iron image inspect half-a-copy.xclbin
    Fix:     copy the file again, or build it again
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message, LONGEST))
