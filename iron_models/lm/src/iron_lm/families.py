"""The families that distributions registered under `iron.models.v1`: one by its name, or the one that runs a checkpoint."""

from __future__ import annotations

from iron_core.errors import CheckpointError, PluginError, UsageError
from iron_core.plugins.registry import registry
from iron_lm.architecture import Architecture
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.recognise import architecture, unnamed


def named(name: str) -> type[Architecture]:
    """The family of a name. UnknownName lists those there are; UsageError for a model that is no language model of ours."""
    found = registry().load("models", name)
    if not _is_family(found):
        families, _ = _loaded(registry().names("models"))
        raise UsageError(f"model `{name}` is no iron_lm family; `iron-run {name}` runs it. Families: {', '.join(families)}.")
    return found  # type: ignore[no-any-return]


def of(checkpoint: Checkpoint) -> type[Architecture]:
    """The family that runs a checkpoint, by what the file says its architecture is.

    Models named like the architecture are imported first, the others where none of those runs it. CheckpointError where none
    does, UsageError where several do.
    """
    if checkpoint.kind not in ("gguf", "meta") and "config" not in checkpoint.metadata:
        raise CheckpointError(f"{checkpoint.path}: no config.json beside it, which says what model it is of.")
    wanted = architecture(checkpoint)
    if not wanted:
        raise CheckpointError(unnamed(checkpoint))
    names = registry().names("models")
    for some in ([name for name in names if wanted.startswith(name)], names):
        found, _ = _loaded(some)
        runs = {name: family for name, family in found.items() if wanted in family.architectures}
        if len(set(runs.values())) > 1:
            raise UsageError(f"{checkpoint.path}: architecture {wanted!r} is run by {' and by '.join(runs)}; say which, before the path.")
        if runs:
            return next(iter(runs.values()))
    found, failed = _loaded(names)
    others = f" `iron models list --load` says why these fail: {', '.join(failed)}." if failed else ""
    shown = repr(wanted[:40])
    raise CheckpointError(f"{checkpoint.path}: architecture {shown}, which no model here runs. There are: {_listed(found)}.{others}")


def _loaded(names: list[str]) -> tuple[dict[str, type[Architecture]], list[str]]:
    """The families among models of these names, and which models cannot be had."""
    found: dict[str, type[Architecture]] = {}
    failed = []
    for name in names:
        try:
            model = registry().load("models", name)
        except PluginError:
            failed.append(name)
        else:
            found |= {name: model} if _is_family(model) else {}
    return found, failed


def _is_family(model: object) -> bool:
    return isinstance(model, type) and issubclass(model, Architecture)


def _listed(families: dict[str, type[Architecture]]) -> str:
    """Each with what it runs, where that is not its name alone."""
    runs = {name: ", ".join(family.architectures) for name, family in families.items()}
    return ", ".join(name if name == words else f"{name} ({words})" for name, words in runs.items()) or "none"
