"""Iron: operators declared once, composed into traced graphs, packaged once, run on whatever backend is installed.

    import iron_core as iron

Names load on first use (PEP 562): importing this package imports no operator, no backend and no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "2.0.0"

_HOME = {
    "declare.operator": ("Operator",),
    "declare.field": ("Auto", "DType", "Param"),
    "declare.operand": ("In", "InOut", "OptionalDim", "Out", "Select"),
    "declare.value": ("Carried", "DispatchTime", "Extent", "Scratchpad", "Value"),
    "declare.identity": ("array_key", "contract_key", "design_key", "label"),
    "declare.chained": ("Chained", "fold", "place", "prefold"),
    "declare.domain": ("Choices", "Divisors", "Level", "Pins", "Placement", "Width", "domains"),
    "declare.formats": (
        *("BlockQuant", "Dense", "Format", "PackedArray", "Plane", "PlaneQuant"),
        *("BFP16EBS8", "IQ4_NL", "IQ4_XS", "MXFP4", "Q2_K", "Q3_K", "Q4NX", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"),
        "bfloat16",
    ),
    "declare.objects": ("ObjectType",),
    "declare.pattern": ("Pattern",),
    "declare.profile": ("Profile",),
    "declare.rules": ("nearest", "require", "require_channels", "require_columns", "require_dtype", "require_npu", "require_whole"),
    "declare.rounding": ("round_to", "widen"),
    "declare.testing": ("Case", "Sweep", "Testing"),
    "declare.tolerance": ("Tolerance", "allclose"),
    "declare.xclbin": ("Xclbin",),
    "array": (
        *("Buffer", "Kernel", "KernelContract", "Lane", "Lock", "Loop", "ObjectFifo", "Tile", "Worker", "WorkerRuntimeBarrier"),
        *("else_", "if_", "maximum", "minimum", "range_", "set_rounding"),
    ),
    "array.explain": ("explain",),
    "bases": ("BinaryElementwise", "Rowwise", "UnaryElementwise", "every_row"),
    "graph.graph": ("Graph",),
    "graph.weight": ("state", "weight"),
    "graph.carry": ("carry",),
    "graph.current": ("category",),
    "graph.fold": ("Fold",),
    "image.packaging": ("CONTEXTS", "ELF", "XCLBIN", "each_step"),
    "image.plan": ("Plan",),
    "lowering.answer": ("No", "Yes"),
    "lowering.protocol": ("Lowering",),
    "backends.protocol": ("Available", "Backend", "Finding", "Unavailable"),
    "compiled.operator_image": ("OperatorImage",),
    "devices": ("current_device", "set_current_device", "using_device"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}
_MODULES = ("devices", "errors")

__all__ = sorted([*_WHERE, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(f"iron_core.{_WHERE[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"iron_core.{name}")
    else:
        raise AttributeError(f"module 'iron_core' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
