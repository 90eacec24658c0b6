"""mlir-aie's own tools as a gate: verify the text, then lower it as far as the instruction stream and the routed device.

Nothing here needs them: where `aie-opt` or `aiecc` is not on PATH, `missing()` says so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import attrs

from iron_npu.mlir.printer import Printed
from iron_npu.tools.command import DYNAMIC

#: What the gate runs, and what it is for.
TOOLS = {"aie-opt": "verifies and lowers", "aiecc": "drives the lowering"}
#: What a sequence with scalars needs besides, to become C++.
TRANSLATE = "aie-translate"

_SECONDS = 600


@attrs.frozen
class Refusal:
    """The tool that refused, its command line, and what it said."""

    tool: str
    command: str
    said: str

    def __str__(self) -> str:
        lines = [line for line in self.said.splitlines() if "error" in line] or self.said.splitlines()
        return f"{self.tool}: {lines[0] if lines else 'failed without a word'}"


def missing() -> str | None:
    """Why the gate cannot run here, in one line; None if it can."""
    absent = [name for name in TOOLS if shutil.which(name) is None]
    if not absent:
        return None
    return f"{' and '.join(absent)} not on PATH; build or install mlir-aie and put its bin folder there"


def gate(printed: Printed, folder: Path) -> Refusal | None:
    """Run the tools on a module in an empty folder; None if they accept it.

    A module whose sequence takes scalars has no static stream: it goes as far as C++ that builds one, if the translator is
    there.
    """
    source = folder / "design.mlir"
    source.write_text(printed.text, encoding="utf-8")
    refused = _run("aie-opt", str(source), "-o", "/dev/null", folder=folder)
    if refused is not None:
        return refused
    out = folder / "out"
    wanted = "input_with_addresses.mlir,input_physical.mlir" + ("" if printed.dynamic else ",npu_lowered.mlir")
    request = [f"--get={wanted}", f"--output-dir={out}", f"--tmpdir={out / 'tmp'}", str(source)]
    refused = _run("aiecc", *([] if printed.dynamic else ["--get-npu-insts"]), *request, folder=folder)
    if refused is not None or not printed.dynamic:
        return refused
    addressed = next(iter(sorted(out.rglob("input_with_addresses.mlir"))), None)
    if addressed is None:
        return Refusal("aiecc", " ".join(request), "it wrote no input_with_addresses.mlir")
    lowered = folder / "lowered.mlir"
    refused = _run("aie-opt", *(f"--{name}" for name in DYNAMIC), str(addressed), "-o", str(lowered), folder=folder)
    if refused is not None or shutil.which(TRANSLATE) is None:
        return refused
    return _run(TRANSLATE, "--aie-npu-to-cpp", str(lowered), "-o", str(folder / "stream.h"), folder=folder)


def stream(folder: Path) -> Path | None:
    """The instruction stream that `gate` left in a folder; None where it left none, as of a module whose sequence takes scalars."""
    return next(iter(sorted((folder / "out").rglob("insts*.bin"))), None)


def _run(tool: str, *arguments: str, folder: Path) -> Refusal | None:
    command = [tool, *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Refusal(tool, " ".join(command), f"it did not finish in {_SECONDS} s")
    return None if done.returncode == 0 else Refusal(tool, " ".join(command), done.stderr or done.stdout)
