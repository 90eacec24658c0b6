"""What can go wrong with the host's kernels."""

from __future__ import annotations

from iron_core.errors import LONGEST, BackendUnavailable, printable


class KernelError(BackendUnavailable):
    """A kernel that the C++ compiler does not take. `symbol`: what the kernel is exported as; `said`: the compiler and its first
    error. What a pack brought is told as the pack's, a `PluginError`.

    Raises:  IRON_HOST_CXXFLAGS=-std=c++98 iron-run ...
    Fix:     unset IRON_HOST_CXXFLAGS, or use a compiler of C++17
    """

    def __init__(self, symbol: str, said: str, step: str = "") -> None:
        self.symbol = symbol
        self.said = printable(said, LONGEST)
        super().__init__(f"host: {step}{self.said}")
