"""`KeptState`: the file of `--state`, which holds what one run had computed for the next."""

from __future__ import annotations

import os

from iron_core.aside import aside
from iron_core.errors import UsageError, printable
from iron_core.files import writable
from iron_lm.generation.session import shared
from iron_lm.model import Model


class KeptState:
    """A file from which a run goes on, where there is one, and which has what is held at its end. UsageError where it cannot be written."""

    def __init__(self, path: str) -> None:
        self.path, self.named = path, f"--state {printable(path)}"
        try:
            writable(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.named}: {getattr(error, 'strerror', None) or error}.") from None

    def read(self, model: Model, prompt: list[int]) -> None:
        """Have the model hold what the file does; where that begins otherwise than the prompt it is left as it is, and that is said.
        CheckpointError for a file that is damaged or another model's."""
        self.model, there = model, os.path.exists(self.path)
        self.held = model.load_state(self.path) if there else []
        same = shared(self.held, prompt)
        self.other = bool(self.held) and not same
        if self.other:
            model.session.reset()
            aside(f"{self.named}: of {len(self.held)} tokens, the first is another than the prompt's; it is neither used nor written.")
        elif there:
            aside(f"{self.named}: {same} of the prompt's {len(prompt)} tokens.")

    def write(self) -> None:
        """Keep what is held now, unless that is what the file has."""
        if self.other or self.model.session.held == self.held:
            return
        try:
            tokens = self.model.save_state(self.path)
        except OSError as error:
            raise UsageError(f"{self.named}: {error.strerror or error}.") from None
        aside(f"{self.named}: {tokens} tokens written.")
