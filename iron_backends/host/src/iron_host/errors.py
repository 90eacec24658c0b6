"""What can go wrong with the host's kernels."""

from __future__ import annotations

from pathlib import Path

from iron_core.errors import LONGEST, BackendUnavailable, printable

#: Lines of a compiler's words that an error shows; templates that do not fit are told in hundreds, which the log has.
_LINES = 200


class KernelError(BackendUnavailable):
    """A kernel that the C++ compiler does not take. What a pack brought is told as the pack's, a `PluginError`.

    symbol: what the kernel is exported as. said: the compiler and its first error, on one line. words: all that it said. kept: the folder
    with the source, the slots.h it found, and `<symbol>.log`, the command and the words.

    Raises:  IRON_HOST_CXXFLAGS=-std=c++98 iron-run ...
    Fix:     unset IRON_HOST_CXXFLAGS, or use a compiler of C++17
    """

    def __init__(self, symbol: str, said: str, step: str = "", words: str = "", kept: Path | None = None) -> None:
        self.symbol = symbol
        self.said = printable(said, LONGEST).rstrip(".")
        self.words = words
        self.kept = kept
        where = "" if kept is None else f" Source and log are in {printable(kept)}."
        super().__init__(f"host: {step}{self.said}.{where}{self.shown}")

    @property
    def shown(self) -> str:
        """All that the compiler said, behind the line of an error."""
        lines = [printable(line) for line in self.words.rstrip().splitlines()]
        if len(lines) > _LINES:
            lines[_LINES:] = [f"... and {len(lines) - _LINES} lines more{'' if self.kept is None else ', which the log has'}"]
        return "".join(f"\n{line}" for line in lines)
