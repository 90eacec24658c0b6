"""Matrices that a packer stores as `qweight`, `qzeros` and `scales`: which there are in a checkpoint, and by which packer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints import awq, gptq
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.entries import Entries, shown
from iron_lm.checkpoints.linear import SUFFIXES, Linear
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.tensors import Tensors

#: Files beside the weights that say how these are packed, where config.json does not.
_BESIDE = ("quantize_config.json", "quant_config.json")
_MARK = ".qweight"
#: What stands beside a weight, or in its place, of compressed-tensors, fp8, bitsandbytes and others: its name with an ending.
_SCALED = re.compile(r"(.*weight)(?:_(?:packed|scale\w*|shape|zero_point|g_idx|global_scale)|\.(?:absmax|nested_\w+|quant_\w+).*)")


def unpack(tensors: Tensors, config: dict[str, Any], path: Path, zeros: str | None) -> str:
    """Put a `weight` in the place of each `qweight` and what stands beside it; of one that is not read the reason is in `refused`.
    What was read, for people; "" where nothing is packed.

    path: of the checkpoint, which refusals name. zeros: how GPTQ's zero points are stored, of a file that does not say it. UsageError
    where nothing is packed so.
    """
    if zeros is not None and zeros not in gptq.CONVENTIONS:
        raise UsageError(f"gptq_zeros={zeros!r}; legal: {', '.join(gptq.CONVENTIONS)}.")
    linears = list(_linears(tensors))
    mixed = [linear for linear in linears if linear.unread or linear.weight in tensors.names]
    said, where = _said(config, path if path.is_dir() else path.parent)
    method = None if said is None else _method(said)
    if zeros is not None and (method != "gptq" or not linears):
        raise UsageError(f"{path}: no weights of GPTQ's are in it; gptq_zeros is for those.")
    if said is not None and method not in ("gptq", "awq"):
        _refuse_scaled(tensors, f"{path}: {where}: quant_method is {shown(said.get('quant_method'))}, which is not read. Legal: gptq, awq.")
    if not linears:
        return ""
    if said is None:
        reason = f"nothing says how it is packed: no quantization_config in config.json, no {' nor '.join(_BESIDE)} beside it"
        return _refused(tensors, linears, path, reason)
    if method not in ("gptq", "awq"):
        return _refused(tensors, linears, path, f"{where}: quant_method is {shown(said.get('quant_method'))}. Legal: gptq, awq")
    try:
        reader = (gptq.reader if method == "gptq" else awq.reader)(Entries(said, where), linears, zeros)
    except CheckpointError as error:
        return _refused(tensors, linears, path, str(error).removesuffix("."))
    scattered = 0
    for linear in linears:
        try:
            if linear in mixed:
                raise CheckpointError(linear.unread or f"stands beside {linear.name}.weight. Legal: one of them.")
            shape, format, array = reader.tensor(linear)
            array.packed = partial(_named, path, array.packed)
            scattered += not format.packed
            tensors[linear.weight] = shape, format, array
        except CheckpointError as error:
            tensors.pop(linear.weight, None)
            tensors.refused[linear.weight] = f"{path}: {linear.name}{_MARK} {error}"
        _drop(tensors, linear)
    return f"{reader.described}{f', {scattered} matrices in activation order, as float32' if scattered else ''}"


def _refuse_scaled(tensors: Tensors, reason: str) -> None:
    """Give the matrices that other packers make one reason: those of floats of 8 bits or of integers, with scales and more beside them.
    Without it their names would be missing, and what stands beside them none of the model's."""
    beside = {name: found[1] for name in sorted(tensors.names) if (found := _SCALED.fullmatch(name))}
    for name, weight in beside.items():
        tensors.pop(name, None)
        tensors.refused.pop(name, None)
        tensors.integers.pop(name, None)
        tensors.pop(weight, None)
        tensors.refused[weight] = reason


def _named(path: Path, make: Callable[[], Any]) -> Any:
    with reading(path):
        return make()


def _linears(tensors: Tensors) -> Iterator[Linear]:
    """Every matrix of which there is a `qweight` of integers."""
    for mark in [name for name in tensors.integers if name.endswith(_MARK)]:
        name = mark.removesuffix(_MARK)
        parts: dict[str, np.ndarray] = {}
        unread = ""
        for suffix in SUFFIXES:
            full = f"{name}.{suffix}"
            if full in tensors.integers:
                parts[suffix] = tensors.integers[full]
            elif full in tensors:
                parts[suffix] = tensors[full][2]
            elif full in tensors.refused:
                unread = unread or f"has a {suffix} that is not read."
        yield Linear(name, parts, unread)


def _said(config: dict[str, Any], folder: Path) -> tuple[dict[str, Any] | None, str]:
    """What a packer says of its weights, and where."""
    if config.get("quantization_config") is not None:
        found = config["quantization_config"]
        if not isinstance(found, dict):
            raise CheckpointError(f"config.json: quantization_config is {shown(found)}; legal: an object.")
        return found, "config.json: quantization_config"
    for name in _BESIDE:
        if (folder / name).exists():
            return read_json(folder / name), name
    return None, ""


def _method(said: dict[str, Any]) -> Any:
    """Of older files that do not name it: AWQ's have names of their own for their entries."""
    return said.get("quant_method", "awq" if "w_bit" in said else "gptq")


def _refused(tensors: Tensors, linears: list[Linear], path: Path, reason: str) -> str:
    for linear in linears:
        tensors.refused[linear.weight] = f"{path}: {linear.name}{_MARK} is not read: {reason}."
        _drop(tensors, linear)
    return ""


def _drop(tensors: Tensors, linear: Linear) -> None:
    """Take away what a matrix is made of. A bias of zeros, which some packers write for every matrix, may stay over."""
    for suffix in linear.parts:
        tensors.pop(f"{linear.name}.{suffix}", None)
        tensors.refused.pop(f"{linear.name}.{suffix}", None)
    bias = f"{linear.name}.bias"
    if bias in tensors and not np.asarray(tensors[bias][2]).any():
        tensors.spare.add(bias)
