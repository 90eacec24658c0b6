"""The conversation of a command line: what the user types, and the task."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from iron_core.aside import aside
from iron_core.errors import UsageError
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.model import TURN, Model
from iron_lm.tasks.chat import Chat
from iron_lm.tasks.task import Task


def lines(prompt: str = "> ") -> Iterator[str]:
    """What the user types, line by line, until the end of input. On a terminal with history and pastes of many lines."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        for line in sys.stdin:
            yield line.rstrip("\n")
        return
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import InMemoryHistory

    session: PromptSession[str] = PromptSession(history=InMemoryHistory())
    while True:
        try:
            yield session.prompt(prompt)
        except KeyboardInterrupt:
            continue  # an empty line; Ctrl-D leaves
        except EOFError:
            return


class ChatTask(Task):
    """The conversation of a command line, over standard input and output."""

    answers = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        if options["json"] or options["profile"]:
            raise UsageError("--chat is a conversation; leave out --json and --profile.")
        if options["keep"] is not None or options["state"]:
            other = "--state: /save FILE.safetensors and /load do that" if options["state"] else "--keep: its system message stays"
            raise UsageError(f"--chat is a conversation; leave out {other}.")

    def prepare(self, loaded: Loaded) -> None:
        super().prepare(loaded)
        if loaded.tokenizer is None:
            asked = "--chat" if self.options["chat"] else "no prompt, and a conversation"
            raise UsageError(f"{asked} needs a tokenizer; give --tokenizer FILE, or --prompt-len N for a prompt of drawn tokens.")
        template = loaded.template()
        if template is None:
            asked = "--chat needs" if self.options["chat"] else "no prompt, and a conversation needs"
            raise UsageError(f"{asked} a chat template, which this checkpoint has not; --prompt TEXT continues a text.")
        self.tokenizer, self.template = loaded.tokenizer, template

    def run(self, model: Model, figures: Figures) -> int:
        o = self.options

        def write(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        model.session.sample(o["sampler"])
        chat = Chat(
            model.session, self.tokenizer, self.template, o["sampler"],
            answer=o["num_tokens"] or TURN, context=self.loaded.context, stop=o["stop"], system=o["system"],
            grammar=self.grammar, shift=bool(o["shift"]), states=model.states, speculation=model.speculation,
            write=write, say=aside,
        )  # fmt: skip
        aside("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves")
        if o["prompt"]:
            aside(f"> {o['prompt']}")
            chat.turn(o["prompt"])
        for line in lines():
            try:
                if not chat.take(line):
                    break
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise  # at a terminal, one too many
        return 0
