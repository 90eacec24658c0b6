"""What a host lowering is written with: everything a pack needs to run its operators by kernels of its own.

docs/host-kernels.md shows it; `iron_core` has `Yes`, `No` and `Auto`.
"""

from __future__ import annotations

from iron_host.build import Header, Unit
from iron_host.kernel_call import Constant, HostLowering, KernelCall, Lines, Member, Pointer
from iron_host.kernels import BINARY, ROWWISE, UNARY
from iron_host.lowerings.elementwise import Binary, Rowwise, Unary
from iron_host.lowerings.rows import Rows
from iron_host.lowerings.template import TemplateLowering
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit
from iron_host.slots import Slots
from iron_host.view import FormatLowering, View

__all__ = [
    "BINARY",
    "FLOATS",
    "FormatLowering",
    "GRAIN",
    "ROWWISE",
    "UNARY",
    "Binary",
    "Constant",
    "Header",
    "HostLowering",
    "KernelCall",
    "Lines",
    "Member",
    "Pointer",
    "Rows",
    "Rowwise",
    "Slots",
    "TemplateLowering",
    "Unary",
    "Unit",
    "View",
    "cpp",
    "takes",
    "threads",
    "unit",
]
