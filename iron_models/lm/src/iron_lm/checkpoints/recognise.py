"""What a checkpoint is, in one line; and what to say of an architecture that is not the model's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from iron_core.errors import printable
from iron_core.plugins.registry import registry

#: Tensors that are ignored, by name.
_NAMED = 3


def architecture(checkpoint: Any) -> str:
    """What the checkpoint says its model is, or "". Meta's layout has no word for it: what is in it is a Llama."""
    if checkpoint.kind == "meta":
        return "llama"
    said = (checkpoint.metadata if checkpoint.kind == "gguf" else checkpoint.metadata.get("config", {})).get(_entry(checkpoint))
    return "" if said is None else str(said)


def unnamed(checkpoint: Any) -> str:
    """Why a checkpoint that names no architecture is none that can be run."""
    where = "its metadata" if checkpoint.kind == "gguf" else "its config.json"
    return f"{checkpoint.path}: {where} has no {_entry(checkpoint)}, which says what model it is of."


def _entry(checkpoint: Any) -> str:
    return "general.architecture" if checkpoint.kind == "gguf" else "model_type"


def describe(checkpoint: Any) -> str:
    """One line: the kind of file, the architecture, the tensors by format, those that are refused, or ignored, their bytes, the
    file's or folder's name."""
    counts = Counter(str(format) for _, format, _ in checkpoint.tensors.values())
    formats = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    size = sum(format.nbytes(shape) for shape, format, _ in checkpoint.tensors.values())
    kind = getattr(checkpoint.file, "described", checkpoint.kind)
    refused = len(getattr(checkpoint.tensors, "refused", ()))
    unread = f", and {refused} not read" if refused else ""
    shown = f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
    named = architecture(checkpoint) or "no architecture named"
    unread += "".join(f", {note}" for note in getattr(checkpoint.tensors, "notes", ()))
    if ignored := getattr(checkpoint, "ignored", ()):
        names = ", ".join(printable(name, 60) for name in ignored[:_NAMED]) + (", ..." if len(ignored) > _NAMED else "")
        unread += f", {len(ignored)} of them ignored ({names})"
    return f"{kind} · {named} · {sum(counts.values())} tensors ({formats}){unread} · {shown} · {name_of(checkpoint.path)}"


def name_of(path: Any) -> str:
    """A file's or folder's name, of "." too."""
    place = Path(path)
    return (place if place.name not in ("", "..") else place.resolve()).name or str(path)


def unknown_architecture(found: str, architectures: tuple[str, ...]) -> str:
    """Why a checkpoint of architecture `found` is not this model's, and which are to be had; nothing is imported for it."""
    models = [name for name in registry().names("models") if name != "auto"]  # which is any of the others
    shown = repr(found[:40])
    other = next((name for name in models if found == name or found.startswith(f"{name}_")), None)
    fix = f" `iron-run {other}` runs it." if other is not None and other not in architectures else ""
    return f"architecture {shown}. This model runs: {', '.join(architectures)}.{fix} Models there are: {', '.join(models) or 'none'}."
