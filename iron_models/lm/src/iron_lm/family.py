"""`Family`: an architecture with a command line. A distribution registers its subclass under `iron.models.v1`."""

from __future__ import annotations

from typing import Any

from iron_lm.architecture import Architecture


class Family(Architecture):
    """`iron-run NAME` of an architecture; see `Architecture` for what a subclass gives."""

    @classmethod
    def main(cls, argv: list[str]) -> int:
        """Run a command line (`iron-run NAME ...`); the exit status. IronError and click's errors come through to the caller."""
        from iron_lm.runner import main  # here: a family that is only asked what it is needs no command line

        return main(cls, argv)

    @classmethod
    def compiled(cls, argv: list[str], **options: Any) -> Any:
        """The `CompiledGraph` that this command line would run, not loaded. options: of `Graph.compile`, beside the line's own."""
        from iron_lm.runner import compiled  # here: as above

        return compiled(cls, argv, **options)
