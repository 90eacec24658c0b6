"""`iron-run PATH`: the family is found from the file."""

from __future__ import annotations

from typing import Any

import click

from iron_core.cli import streams
from iron_core.compiled.graph import CompiledGraph
from iron_core.errors import IronError, UsageError
from iron_lm import families
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.family import Family
from iron_lm.options import command, invoke
from iron_lm.runner import Runner


class Auto:
    """`iron-run auto PATH`, which is what `iron-run PATH` is short for."""

    summary = "Whichever model a checkpoint is of: `iron-run PATH` finds it."

    @classmethod
    def main(cls, argv: list[str]) -> int:
        """As `Family.main`, of the family that runs the checkpoint; of one with a line of its own, that line where it has the options."""
        with streams.in_order():
            try:
                return int(invoke(command("auto", cls.summary, lambda **options: _runner(options).run()), argv) or 0)
            except click.NoSuchOption:
                family = _with_own_line(argv)
                if family is None:
                    raise
                return int(family.main(argv))

    @classmethod
    def compiled(cls, argv: list[str], **given: Any) -> CompiledGraph:
        """As `Family.compiled`, of the family that runs the checkpoint."""
        graph: CompiledGraph = invoke(command("auto", cls.summary, lambda **options: _runner(options).compiled(**given)), argv)
        return graph


def _with_own_line(argv: list[str]) -> type[Family] | None:
    """The family of the checkpoint that a line begins with, where its `main` is another than every family's."""
    try:
        family = families.of(Checkpoint.open(argv[0]))
    except IronError:  # what is said of the option is nearer
        return None
    return family if issubclass(family, Family) and family.main.__func__ is not Family.main.__func__ else None  # type: ignore[attr-defined]


def _runner(options: dict[str, Any]) -> Runner:
    if not options["checkpoint"]:
        raise UsageError("a checkpoint is needed, to find the model from: iron-run PATH. Without one, name the model: `iron models list`.")
    # Opened once: reading a vocabulary takes a while.
    said = {name: options[name] for name in ("reader", "quantized_from", "gptq_zeros")}
    checkpoint = Checkpoint.open(options["checkpoint"], **said)
    return Runner(families.of(checkpoint), options | {"checkpoint": checkpoint})
