"""Checks of the printed text that need no tools: every line is a known form, every name is defined once, before its use, of the
type it is used as; every fifo is used at both ends; tasks, descriptors and words keep within what the hardware has.

The checks read the text alone, so they hold for what the printer really wrote.
"""

from __future__ import annotations

import re

from iron_core.errors import IronError
from tests.npu import grammar
from tests.npu.check_core import CoreChecks
from tests.npu.check_device import DeviceChecks
from tests.npu.check_sequence import SequenceChecks
from tests.npu.checker import Problem


def check(text: str) -> tuple[Problem, ...]:
    """Everything wrong with a module, in the order of its lines. Empty: the structure holds."""
    return _Checker(text).run()


def require(text: str) -> None:
    """IronError with every problem, if there are any."""
    problems = check(text)
    if problems:
        raise IronError("the printed MLIR is wrong in itself: " + "; ".join(str(problem) for problem in problems[:10]))


class _Checker(DeviceChecks, CoreChecks, SequenceChecks):
    """Line by line: `on_<form>` where a form is met, `after_<region>` where a region ends."""

    def run(self) -> tuple[Problem, ...]:
        for number, raw in enumerate(self.lines, 1):
            self.number, line = number, raw.strip()
            if not line:
                continue
            if line.startswith("}"):
                self.close(line)
                continue
            found = grammar.parse(line, self.regions[-1][0])
            if found is None:
                self.wrong(f"no known operation of a {self.regions[-1][0] or 'file'}: {line}")
                # Keep the nesting right, so that one bad head line is one problem.
                if line.endswith("{"):
                    self.regions.append(("", {}))
                continue
            form, match = found
            if form.opens:
                self.regions.append((form.opens, {}))
            getattr(self, f"on_{form.name}")(match)
        if len(self.regions) > 1:
            self.wrong(f"{len(self.regions) - 1} regions are not closed")
        self.finish()
        return tuple(sorted(self.problems, key=lambda p: p.line))

    def close(self, line: str) -> None:
        region, _ = self.regions[-1]
        match = grammar.CLOSES.get(region, grammar.CLOSE).fullmatch(line)
        if match is None:
            self.wrong(f"no end of a {region}: {line}")
        if len(self.regions) > 1:
            self.regions.pop()
        if match is None:
            return
        after = getattr(self, f"after_{region}", None)
        if after is not None:
            after(match)

    def after_if(self, match: re.Match[str]) -> None:
        if match["other"]:
            self.regions.append(("else", {}))

    def finish(self) -> None:
        for name in self.parameters:
            if name not in self.moved:
                self.wrong(f"nothing uses parameter {name}", 1)
        if len(self.devices) > 1:
            for name, dev in self.devices.items():
                for sequence, (kind, line) in dev.symbols.items():
                    if kind == "sequence" and sequence not in dev.used and name not in self.mains:
                        self.wrong(f"nothing runs {sequence} of {name}", line)
