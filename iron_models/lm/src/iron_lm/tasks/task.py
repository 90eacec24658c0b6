"""`Task`: what a model is run for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from iron_core.errors import UsageError, printable
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.model import Model
from iron_lm.opening import opened
from iron_lm.running import Running
from iron_lm.tasks.prompt import prompt_of

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint, Grammar
    from iron_lm.guessing import Guessing

#: What may hold an answer, by the option's name: as it is typed, what it is, and whether a file has it.
GRAMMARS = {
    "json_schema": ("--json-schema", "schema", True),
    "grammar": ("--grammar", "grammar", True),
    "regex": ("--regex", "regex", False),
}


class Task(ABC):
    """Made from a command line's options, prepared when a model is loaded, run when it is compiled.

    Each refuses by a UsageError what it can tell is wrong, so that nothing is loaded or compiled in vain.
    """

    #: Can an encoder do it?
    of_encoders: ClassVar[bool] = False
    #: Does it continue one prompt?
    continues: ClassVar[bool] = False
    #: Has it answers that a grammar may hold?
    answers: ClassVar[bool] = False
    loaded: Loaded

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.grammar: Grammar | None = None
        self.guesses: Guessing | None = None
        self._rules = [option for option in GRAMMARS if options.get(option) is not None]
        if len(self._rules) > 1:
            raise UsageError(f"{' and '.join(GRAMMARS[option][0] for option in self._rules)} exclude each other; leave one out.")
        if not self.answers:
            for option in ("shift", "state", "lookup", "draft"):
                if options.get(option):
                    raise UsageError(f"--{option} is for answers: of --prompt{'' if option == 'state' else ', or of --chat'}.")
        if self._rules and not self.answers:
            raise UsageError(f"{GRAMMARS[self._rules[0]][0]} is for answers: of --prompt, or of --chat.")

    def prepare(self, loaded: Loaded) -> None:
        """See that the task is possible with what is loaded, and that its vocabulary has the tokens that rules of sampling name; and
        take what standard input has for it."""
        if loaded.config.encodes and not self.of_encoders:
            raise UsageError(f"{loaded.family.name} encodes texts and continues none; legal: --embed TEXT, --check-accuracy.")
        self.options["sampler"].check(loaded.config.vocab_size)
        if self.continues:
            self.options = {**self.options, "prompt": prompt_of(self.options, loaded)}
        self.loaded = loaded
        if self.options.get("lookup") or self.options.get("draft"):
            self.guesses = self._guessing(loaded)
        for option in self._rules:
            name, kind, of_file = GRAMMARS[option]
            given, said = self.options[option], name
            if loaded.tokenizer is None:
                raise UsageError(f"{name} needs a tokenizer; give --tokenizer FILE.")
            if of_file:
                said = f"{name} {printable(given)}"
                try:
                    given = Path(given).read_text(encoding="utf-8")
                except (OSError, ValueError) as error:
                    raise UsageError(f"{said}: {getattr(error, 'strerror', None) or 'no UTF-8'}.") from None
            from iron_lm.generation.grammar import Grammar, Vocabulary  # here: most answers are free

            self.grammar = Grammar(Vocabulary(loaded.tokenizer, loaded.config.vocab_size), kind, given, said)

    def constraint(self) -> Constraint | None:
        """What holds a new answer."""
        return None if self.grammar is None else self.grammar.start()

    def compiled(self, **options: Any) -> Running:
        """What is loaded, compiled as this task runs it. options: of `Graph.compile`."""
        model = Model(self.loaded, **options)
        model.speculation = None if self.guesses is None else self.guesses.compiled(model.session, **options)
        return model

    def _guessing(self, loaded: Loaded) -> Guessing | None:
        from iron_lm.guessing import guessing  # here: most answers are guessed at by nobody

        o = self.options

        def draft(path: str) -> Loaded:
            return opened(None, path, backend=o["backend"], dev=o["dev"])

        return guessing(loaded, o["lookup"], o["draft"], o["draft_tokens"], draft, lambda option: f"--{option.replace('_', '-')}")

    @abstractmethod
    def run(self, model: Any, figures: Figures) -> int:
        """Do it with what `compiled()` gave; the exit status."""
