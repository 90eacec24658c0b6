"""The CPU backend: C++ kernels and a native run list."""

import _iron_start

_iron_start.check()
