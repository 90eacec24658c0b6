"""What the pages' commands name, made small: the files they read, and what is put behind a line that would go on for minutes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from iron_npu.formats.instructions import Header, Stream
from iron_npu.formats.operations import Wait, Write
from tests.distributions import ROOT
from tests.npu.xclbins import xclbin

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
ENCODER = "all-MiniLM-L6-v2"
TINY = ROOT / "tests" / "data" / "tiny_llama"
#: A user's own file, in a line that begins so -> the file that is there.
NAMES = {
    r"iron checkpoints convert": {"PATH": str(TINY), "OUT": "$(mktemp -u outXXXX)"},
    r"iron": {"PATH": WEIGHTS, "FILE": WEIGHTS, "SMALLER": WEIGHTS},
}
#: A line that begins so -> words behind it.
CUT = {
    r"iron sim$": "SiLU",
    r"iron bench run": "SiLU --commit 0123456 --date 2026-01-01",
    r"iron picture llama": "--max-seq-len 64",
    r"iron-run .*--bench": "--max-seq-len 64",
    r"iron-run .*--(prompt|chat|parallel|draft)\b": "--num-tokens 3",
    r"iron-run .*<": "--num-tokens 3",
    r"iron-run PATH --check-accuracy": "--max-seq-len 32",
    r"iron-run .*--profile": "--prompt-len 8 --num-tokens 2",
}
#: A line that begins so -> how it may end, where that depends on the machine: an NPU that is missing, others that use it meanwhile.
ENDS = {r"iron doctor": (0, 1), r"iron tune (?!.*--backend sim)": (0, 1), r"iron bench run": (0, 1)}
TEXTS = {
    "manual.txt": "Iron is a metal.\n",
    "module.py": "def f(x):\n    return x\n",
    "prompt.txt": "The capital of France is\n",
    "questions.txt": "One and one is\nThe capital of France is\n",
    "texts.jsonl": '"a cat"\n{"text": "a dog"}\n',
    "person.json": '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}',
    "yesno.gbnf": 'root ::= "yes" | "no"\n',
}
PARAMETERS = b"2\ncount_core 0 i32 core\nstart_offset 1 i32 addr\n"


def fill(folder: Path) -> None:
    """The files, in a folder, and programs `iron`, `iron-run` and `python` in its bin."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    (folder / "insts.bin").write_bytes(Stream(Header(4, 8), (Write(0x1D214, 1 << 31), Wait(0, 0, 1, 0))).write())
    (folder / "params.txt").write_bytes(PARAMETERS)
    for name in ("final.xclbin", "old.xclbin", "new.xclbin"):
        (folder / name).write_bytes(xclbin().write())
    (folder / "bin").mkdir()
    for name, start in {"iron": "_iron_start.iron()", "iron-run": "_iron_start.iron_run()"}.items():
        program(folder / "bin" / name, f"import sys, _iron_start; sys.argv[0] = {name!r}; {start}")
    (folder / "bin" / "python").symlink_to(sys.executable)


def program(path: Path, code: str) -> None:
    """A program that runs Python code."""
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)


def here(line: str) -> str:
    """A page's line as it is run here."""
    cut = "".join(f" {more}" for begins, more in CUT.items() if re.match(begins, line))
    names = next((names for begins, names in NAMES.items() if re.match(begins, line)), {})
    for name, there in names.items():
        line = re.sub(rf"(?<![\w/.-]){name}(?![\w.-])", there, line)
    return line.replace("--open", "-o drawn.html") + cut


def ends(line: str) -> tuple[int, ...]:
    """The statuses with which it may end."""
    return next((statuses for begins, statuses in ENDS.items() if re.match(begins, line)), (0,))


def environment(folder: Path, line: str = "") -> dict[str, str]:
    """The variables of a run: programs from the folder's bin, distributions from its site; a cache of its own where it is emptied."""
    path = {"PATH": "bin", "PYTHONPATH": "site"}
    found = {name: os.pathsep.join(filter(None, [str(folder / place), os.environ.get(name)])) for name, place in path.items()}
    return os.environ | found | {"COLUMNS": "200"} | ({"NPU_CACHE_HOME": str(folder)} if "cache clean" in line else {})
