"""`--parallel`: several prompts go on side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iron_core.aside import aside
from iron_core.cli.table import print_json
from iron_core.errors import UsageError, printable
from iron_lm import parallel, process
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.model import TOKENS
from iron_lm.parallel import Parallel, Spoken
from iron_lm.tasks.prompt import MOST_BYTES, prompt_ids, shown, standard_input
from iron_lm.tasks.task import Task


class ParallelTask(Task):
    """Prints each prompt and what follows it, in their order, the first that has not ended as it comes; with `--json` an object for each
    answer, on a line of its own, and one of the run."""

    answers = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        for other in ("shift", "state", "lookup", "draft", "profile", "profile_trace"):
            if options[other]:
                raise UsageError(f"--parallel and --{other.replace('_', '-')} exclude each other; leave one out.")
        self.count = options["num_tokens"] or TOKENS
        self.texts: list[str] = [*options["texts"]]

    def prepare(self, loaded: Loaded) -> None:
        super().prepare(loaded)
        parallel.check(loaded, "--parallel")
        file = self.options["prompts"]
        if file is None and not self.texts and sys.stdin is not None and not sys.stdin.isatty():
            file = "-"
        self.texts += [] if file is None else _lines(file)
        if not self.texts:
            raise UsageError("--parallel N needs prompts: --prompt TEXT, which may be repeated, --prompts FILE, or standard input.")
        self.ids = []
        for n, text in enumerate(self.texts, 1):
            try:
                self.ids.append(prompt_ids({**self.options, "prompt": text}, loaded, self.count))
            except UsageError as error:
                raise UsageError(f"prompt {n} of {len(self.texts)}: {error}") from None

    def compiled(self, **options: Any) -> Parallel:
        side_by_side = min(self.options["parallel"], len(self.texts))
        return Parallel(self.loaded, side_by_side, **options)

    def run(self, model: Parallel, figures: Figures) -> int:
        o, tokens = self.options, 0

        def told(_: int) -> None:
            nonlocal tokens
            if not tokens:
                figures.first_token_s, figures.first_token_cpu_s = process.since_start(), time.process_time()
            tokens += 1
            if tokens % 16 == 1:
                figures.sample_memory()

        start = time.perf_counter()
        spoken = [model.ask(ids, self.count, o["sampler"], o["stop"], self.constraint(), told) for ids in self.ids]
        for n, each in enumerate(spoken):
            self._show(model, n, each)
        seconds = time.perf_counter() - start
        figures.sample_memory()
        prompts, computed = sum(map(len, self.ids)), model.batch.computed
        if o["json"]:
            taken = {"answers": len(spoken), "prompt_tokens": prompts, "tokens": tokens, "computed": computed, "seconds": seconds}
            own = {name: getattr(figures, name) for name in ("load_s", "compile_s", "first_token_s", "first_token_cpu_s", "peak_memory_mb")}
            print_json({"model": model.family.name} | taken | {"tok_s": tokens / seconds} | model.facts() | own, indent=None)
        else:
            aside(
                f"{len(spoken)} answers, {tokens} tok in {seconds:.2f} s ({tokens / seconds:.1f} tok/s) · prompts {prompts} tok, "
                f"{computed} tok computed in all · first token {figures.first_token_s:.2f} s after start · "
                f"peak {figures.peak_memory_mb:.0f} MB of its own"
            )
        for n, each in enumerate(spoken, 1):
            if each.request.error is not None:
                raise type(each.request.error)(f"prompt {n} of {len(spoken)}: {each.request.error}")
        return 0

    def _show(self, model: Parallel, n: int, each: Spoken) -> None:
        """Print an answer as it comes. What ended it is said when all have ended."""
        o, request, text = self.options, each.request, list[str]()
        if not o["json"]:
            _write(("\n" if n else "") + shown({**o, "prompt": self.texts[n]}, model.loaded, each.before))
        try:
            for piece in each.pieces:
                text.append(piece)
                if not o["json"]:
                    _write(piece)
        except Exception as error:
            if error is not request.error:
                raise
        finally:
            if not o["json"]:
                _write("\n")
        if o["json"]:
            found = {"prompt": n, "prompt_ids": request.ids, "ids": request.answer, "text": "".join(text)}
            print_json(found | ({} if request.error is None else {"error": str(request.error)}), indent=None)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _read(path: str, named: str) -> str:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise UsageError(f"{named}: more than {MOST_BYTES} bytes.")
        return raw.decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{named}: {getattr(error, 'strerror', None) or 'no UTF-8'}.") from None


def _lines(path: str) -> list[str]:
    """The prompts of a file, - for standard input: its lines, but for empty ones. UsageError for one that cannot be read."""
    named = "standard input" if path == "-" else f"--prompts {printable(path)}"
    text = standard_input() if path == "-" else _read(path, named)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    found = [line for line in lines if line.strip()]
    if not found:
        raise UsageError(f"{named}: no line has a prompt.")
    return found
