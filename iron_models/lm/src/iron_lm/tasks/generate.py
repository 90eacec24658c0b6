"""What is done without an option that asks for something else: the prompt goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from iron_core.aside import aside
from iron_core.cli.table import print_json
from iron_core.errors import UsageError
from iron_lm import process
from iron_lm.figures import Figures
from iron_lm.generation.shifting import Shift, generate, kept_of
from iron_lm.loading import Loaded
from iron_lm.model import TOKENS, Model
from iron_lm.tasks.kept_state import KeptState
from iron_lm.tasks.prompt import prompt_ids, shown
from iron_lm.tasks.task import Task
from iron_lm.text.answer import Answer, Numbers


class GenerateTask(Task):
    """Prints the prompt and what follows it, as it comes; with `--profile` also where the time went."""

    answers = continues = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.count = options["num_tokens"] or TOKENS
        self.state = KeptState(options["state"]) if options["state"] else None
        self.profiling = bool(options["profile"] or options["profile_trace"])

    def prepare(self, loaded: Loaded) -> None:
        super().prepare(loaded)
        o = self.options
        self.ids = prompt_ids(o, loaded, 1 if o["shift"] else self.count)
        self.shift = None
        if o["shift"]:
            bos = None if loaded.tokenizer is None else loaded.tokenizer.bos
            self.shift = Shift(loaded.context, kept_of(self.ids, o["keep"], bos))

    def run(self, model: Model, figures: Figures) -> int:
        o, ids, tokenizer, session, sampler = self.options, self.ids, model.tokenizer, model.session, self.options["sampler"]
        recording: Any = nullcontext()
        if self.profiling:
            from iron_lm import profile  # here: most runs take no times

            recording = profile.profiled(session)
        stream = tokenizer.stream() if tokenizer else None
        if self.state is not None:
            self.state.read(model, ids)
        before = stream.take(ids) if stream else ""  # the answer goes on where the prompt ends, not at a text's start
        answer = Answer(stream or Numbers(), o["stop"])
        text: list[str] = []
        stamps: list[float] = []

        def write(piece: str) -> None:
            if not o["json"]:
                sys.stdout.write(piece)
                sys.stdout.flush()

        def show(token: int) -> bool:
            if not stamps:
                figures.first_token_s, figures.first_token_cpu_s = process.since_start(), time.process_time()
            stamps.append(time.perf_counter())
            text.append(answer(token))
            write(text[-1])
            if len(stamps) % 16 == 1:
                figures.sample_memory()
            return answer.ended

        session.sample(sampler)
        write(shown(o, model.loaded, before))
        start = time.perf_counter()
        try:
            with recording as measured:
                start = time.perf_counter()  # the limits are measured on the way in
                given = (ids, self.count, sampler, show, tokenizer.stop if tokenizer else (), self.constraint(), model.speculation)
                said = session.generate(*given) if self.shift is None else generate(session, *given, shift=self.shift)
        finally:
            text.append(answer.rest())
            write(text[-1] + "\n")
        end = time.perf_counter()
        figures.prompt_tokens, figures.prompt_s = len(ids), (stamps[0] if stamps else end) - start
        if len(stamps) > 1:
            figures.decode_tokens, figures.decode_s = len(stamps) - 1, stamps[-1] - stamps[0]
        figures.sample_memory()
        if self.state is not None:
            self.state.write()
        if o["json"]:
            found = {"model": model.family.name, "prompt_ids": ids, "ids": said, "text": "".join(text)} | model.facts() | figures.as_dict()
            found |= {} if model.speculation is None else {"speculation": model.speculation.as_dict()}
            print_json(found | ({"profile": measured.as_dict()} if measured is not None else {}), indent=None)
        else:
            aside(figures.line())
            if model.speculation is not None:
                aside(model.speculation.line())
            if measured is not None:
                aside("\n".join(profile.lines(measured)))
        if o["profile_trace"]:
            _write_trace(measured, o["profile_trace"])
        return 0


def _write_trace(measured: Any, path: str) -> None:
    try:
        measured.write_trace(path)
    except OSError as error:
        raise UsageError(f"--profile-trace {path}: {error.strerror}.") from None
