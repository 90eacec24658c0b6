"""Which image a graph becomes on a device, and why: one full ELF, a chain of xclbins, an xclbin per array, or a host run list.

npu2 takes a whole graph as one full ELF (one dispatch a call, per-call words patched into it). npu1 has
no full ELF, so each step is a dispatch of its own; a `DispatchTime` value or `boundaries=iron.each_step`
asks for the same on npu2. `image=iron.CONTEXTS` loads every array once, in a hardware context of its own, where a chain loads
them in turn. The host runs a list of native calls whatever the graph holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iron_core.devices import Device, device
from iron_core.errors import CallError, UnsupportedError
from iron_core.graph.traced import PerCallValue
from iron_core.image.plan import Packaging

#: `image=`: one full ELF.
ELF = "elf"
#: `image=`: a chain of xclbins, one dispatch per step.
XCLBIN = "xclbin"
#: `image=`: an xclbin per array, each in a hardware context of its own, all alive from load on; one dispatch per step.
CONTEXTS = "contexts"
#: `boundaries=`: every step is a dispatch of its own.
each_step = "each_step"

#: Designs that one xclbin holds before the next begins: each is a compute unit, of which a hardware context takes so many.
CHAIN_DESIGNS = 32

_LOWERED = {
    (ELF, "scratchpad"): "patched through the parameter scratchpad",
    (ELF, "carried"): "a word of the parameter scratchpad, computed by the graph for its next call",
    (XCLBIN, "scratchpad"): "a dispatch-time scalar: an offset regenerates the stream, a bound is written by the sequence",
    (XCLBIN, "carried"): "read back and written by the host between dispatches",
    (XCLBIN, "dispatch"): "sizes, strides and offsets regenerated at each dispatch",
    ("host", "scratchpad"): "patched into the run list before each call",
    ("host", "carried"): "patched into the run list; the native loop computes the next one",
    ("host", "dispatch"): "patched into the run list before each call",
}


def decide(
    dev: Device | str,
    values: Sequence[PerCallValue] = (),
    *,
    boundaries: str | None = None,
    image: str | None = None,
) -> Packaging:
    """The packaging of a graph with these per-call values on this device, with a reason per rule that decided.

    CallError for a `boundaries=` or `image=` that does not exist; UnsupportedError for an image that a rule
    forbids (the message lists the rules).
    """
    dev = device(dev)
    check_packaging(boundaries, image)
    if not dev.is_npu:
        return _host(dev, values, boundaries, image)
    if image == CONTEXTS:
        reason = (
            "image='contexts' asks for one xclbin per array, each in a hardware context of its own, all alive from load on; "
            f"{dev} holds {dev.contexts}."
        )
        return Packaging(CONTEXTS, "separate", (reason,), _lowered(XCLBIN, values))
    rules = _chain_rules(dev, values, boundaries)
    if image == ELF and rules:
        raise UnsupportedError(f"image='elf' on {dev}: {' '.join(rules)} Leave image= out for an xclbin chain.")
    if image == XCLBIN and not rules:
        raise UnsupportedError(
            f"image='xclbin' on {dev}: an xclbin runs one dispatch per step; several steps fused inside one have no "
            "proven construction. Pass boundaries=iron.each_step too, or image=iron.CONTEXTS, or leave image= out for a full ELF."
        )
    if rules:
        return Packaging(XCLBIN, "separate", tuple(rules), _lowered(XCLBIN, values))
    asked = " image='elf' asked for it." if image == ELF else ""
    reason = f"{dev} takes a whole graph as one full ELF and nothing here needs a dispatch per step.{asked}"
    return Packaging(ELF, "fused", (reason,), _lowered(ELF, values))


def check_packaging(boundaries: Any, image: Any) -> None:
    """CallError for a `boundaries=` or `image=` that does not exist."""
    if not (boundaries is None or (isinstance(boundaries, str) and boundaries == each_step)):
        raise CallError(f"boundaries={boundaries!r}: legal are None and iron.each_step.")
    if not (image is None or (isinstance(image, str) and image in (ELF, XCLBIN, CONTEXTS))):
        raise CallError(f"image={image!r}: legal are None, iron.ELF, iron.XCLBIN and iron.CONTEXTS.")


def _chain_rules(dev: Device, values: Sequence[PerCallValue], boundaries: str | None) -> list[str]:
    """One sentence per rule that forces an xclbin chain."""
    rules = []
    dispatch = [value.name for value in values if value.kind == "dispatch"]
    if dispatch:
        names = ", ".join(f"`{name}`" for name in dispatch)
        rules.append(f"DispatchTime value {names} regenerates the sequence at each dispatch, which a full ELF cannot.")
    if not dev.full_elf:
        rules.append(f"{dev} has no parameter scratchpad ({dev.arch}), so no full ELF: one dispatch per step.")
    if boundaries == each_step:
        rules.append("boundaries=each_step asks for one dispatch per step.")
    return rules


def _host(dev: Device, values: Sequence[PerCallValue], boundaries: str | None, image: str | None) -> Packaging:
    if image is not None:
        raise UnsupportedError(
            f"image={image!r} on {dev}: it is no NPU and runs a list of native calls. Leave image= out, or pass dev='npu2'."
        )
    reasons = [f"{dev} runs a list of native calls: no image is linked, and another shape compiles nothing new."]
    if boundaries == each_step:
        reasons.append("boundaries=each_step changes nothing: the host has no dispatches, steps follow one another in one call.")
    return Packaging("host", "fused", tuple(reasons), _lowered("host", values))


def _lowered(image: str, values: Sequence[PerCallValue]) -> tuple[tuple[str, str], ...]:
    return tuple((value.name, _LOWERED[image, value.kind]) for value in values)
