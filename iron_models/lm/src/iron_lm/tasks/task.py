"""`Task`: what a model is run for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.errors import UsageError
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.model import Model
from iron_lm.running import Running


class Task(ABC):
    """Made from a command line's options, prepared when a model is loaded, run when it is compiled.

    Each refuses by a UsageError what it can tell is wrong, so that nothing is loaded or compiled in vain.
    """

    #: Can an encoder do it?
    of_encoders: ClassVar[bool] = False
    loaded: Loaded

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def prepare(self, loaded: Loaded) -> None:
        """See that the task is possible with what is loaded, and that its vocabulary has the tokens that rules of sampling name."""
        if loaded.config.encodes and not self.of_encoders:
            raise UsageError(f"{loaded.family.name} encodes texts and continues none; legal: --embed TEXT, --check-accuracy.")
        self.options["sampler"].check(loaded.config.vocab_size)
        self.loaded = loaded

    def compiled(self, **options: Any) -> Running:
        """What is loaded, compiled as this task runs it. options: of `Graph.compile`."""
        return Model(self.loaded, **options)

    @abstractmethod
    def run(self, model: Any, figures: Figures) -> int:
        """Do it with what `compiled()` gave; the exit status."""
