"""`Signature`: what tells a graph's versions apart."""

from __future__ import annotations

#: A version's key: (input name, shape, format name) for each input it takes.
Signature = tuple[tuple[str, tuple[int, ...], str], ...]


def describe_signature(signature: Signature) -> str:
    """`x=(512, 2048) bfloat16`, or "(no tensors)"."""
    return ", ".join(f"{name}={shape} {format}" for name, shape, format in signature) or "(no tensors)"
