"""Running a program of the vendor's: its log is kept, its time is limited, and what it says becomes one error."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from iron_core.cache import failed
from iron_core.errors import printable
from iron_core.processes import Running, TimeLimit, run
from iron_npu.errors import ToolError
from iron_npu.settings import Settings, variable


@attrs.frozen(eq=False)
class Runner:
    """Runs programs for one build. design: what is built, for messages. running: what may be ended from elsewhere."""

    design: str
    settings: Settings
    running: Running = attrs.field(factory=Running)

    def run(self, line: Sequence[str], work: Path) -> str:
        """What a command said, working in a folder; its words go to a log there, `<program>.log`, behind those of earlier calls.

        ToolError, which names no folder yet, where it fails, does not start, or takes longer than the settings allow.
        """
        tool = Path(line[0]).name
        log = work / f"{tool}.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {shlex.join(line)}\n")
        before = log.stat().st_size
        environment = os.environ | {"LC_ALL": "C", "PATH": self.settings.path}
        try:
            code, _ = run(line, environment, self.running, folder=work, log=log, seconds=self.settings.seconds or None)
        except TimeLimit:
            limit = f"it did not end in {self.settings.seconds:g} s, which {variable('seconds')} allows"
            raise ToolError(tool, self.design, limit) from None
        except OSError as error:
            raise ToolError(tool, self.design, f"{line[0]} does not start: {error.strerror}") from None
        words = log.read_bytes()[before:].decode(errors="replace")
        if code:
            raise ToolError(tool, self.design, _error(words, code))
        return words

    @contextlib.contextmanager
    def folder(self, key: str) -> Iterator[Path]:
        """A folder to work in, which is gone behind the block; but kept where the settings say so, and where a program fails in it: then
        the ToolError names it."""
        work = Path(tempfile.mkdtemp(prefix="iron-npu-"))
        name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', self.design)}-{key[:8]}"
        try:
            yield work
            if self.settings.keep is not None:
                self._keep(work, name)
        except ToolError as error:
            kept = self._keep(work, name)
            raise ToolError(error.tool, error.design, error.said, kept) from None
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)

    def _keep(self, work: Path, name: str) -> Path:
        """Where a folder is kept, moved there: in the settings' folder, or with the last failures in the cache's; or where it is."""
        if self.settings.keep is None:
            return failed.keep(work, name, self.settings.cache_home)
        target = self.settings.keep / name
        try:
            failed.move(work, target)
        except OSError:
            return target if target.is_dir() else work
        return target


def _error(words: str, code: int) -> str:
    """The line that says what is wrong: the first with an error, else the last."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower()]
    if code < 0 and not wrong:
        return f"signal {-code} ended it" + (f" after: {lines[-1]}" if lines else "")
    return printable((wrong or lines[-1:] or [f"it failed with status {code} and no word"])[0], 500)
