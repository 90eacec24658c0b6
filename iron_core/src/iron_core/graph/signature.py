"""`Signature`: what tells a graph's versions apart."""

from __future__ import annotations

#: A version's key: (input name, shape, format name) for each input it takes, then (value's name, (number,), NUMBER) for each
#: `DispatchTime` value.
Signature = tuple[tuple[str, tuple[int, ...], str], ...]
NUMBER = "number"
#: Versions of one graph's `DispatchTime` numbers that are kept; the one made first goes.
KEPT = 8


def numbers_of(signature: Signature) -> dict[str, int]:
    """The numbers of the `DispatchTime` values that a version is of, by name."""
    return {name: shape[0] for name, shape, format in signature if format == NUMBER}


def describe_signature(signature: Signature) -> str:
    """`x=(512, 2048) bfloat16, n=3`, or "(no tensors)"."""
    each = (f"{name}={shape[0]}" if format == NUMBER else f"{name}={shape} {format}" for name, shape, format in signature)
    return ", ".join(each) or "(no tensors)"
