"""A call's arguments: tensors by input name, as arrays, and per-call values."""

from __future__ import annotations

from typing import Any

from iron_core.declare.formats import DTYPES, format_of
from iron_core.declare.tensor import plain
from iron_core.errors import CallError, FormatError


def sort_call(
    graph: Any, tensors: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call's tensors, of a class of graphs, by input name (None left out) and its per-call values; an input may be given by name too.

    CallError for a wrong count, an input given twice, or one that is missing.
    """
    body, name = graph.parameters(), graph.__name__
    named = {key: item for key, item in keywords.items() if key in body.inputs}
    least = sum(1 for n in body.inputs if n not in body.optional)
    if len(tensors) > len(body.inputs) or len(tensors) + len(named) < least:
        many = f"{least}" if least == len(body.inputs) else f"{least} to {len(body.inputs)}"
        raise CallError(
            f"{name} takes {many} tensors ({', '.join(body.inputs) or 'none'}); got {len(tensors) + len(named)}."
        )
    for key in body.inputs[: len(tensors)]:
        if key in named:
            raise CallError(f"{name}: input {key} is given twice.")
    given = dict(zip(body.inputs, tensors, strict=False)) | named
    given = {key: given[key] for key in body.inputs if given.get(key) is not None}
    for key in body.inputs:
        if key not in given and key not in body.optional:
            others = f"; the inputs that may be: {', '.join(sorted(body.optional))}" if body.optional else ""
            raise CallError(f"{name}: input {key} is None or left out{others}.")
    return given, {key: item for key, item in keywords.items() if key not in named}


def sort_values(graph: Any, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call's `DispatchTime` numbers, which choose a version, and the values that the version is called with."""
    fixed = {name: values[name] for name in graph.parameters().dispatch if name in values}
    return fixed, {name: number for name, number in values.items() if name not in fixed}


def as_arrays(graph: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A call's tensors as arrays, each converted once; CallError, naming the input, for what is none or of a dtype Iron does not carry."""
    arrays = {name: plain(t, f"{graph.__name__}: input {name}") for name, t in given.items()}
    for name, array in arrays.items():
        try:
            format_of(array)
        except FormatError:
            dtype = getattr(array, "dtype", type(array).__name__)
            raise CallError(
                f"{graph.__name__}: input {name} is {dtype}; cast it to what the graph takes. Legal: {', '.join(DTYPES)}."
            ) from None
    return arrays
