"""What the hardware has stands in `iron_core.devices` and nowhere else."""

from __future__ import annotations

import ast

import pytest

from iron_core import devices
from tests.distributions import DISTRIBUTIONS

NAMES = {name for name, value in vars(devices).items() if name.isupper() and isinstance(value, int | tuple | dict)} - {"DEVICES", "KIB"}
#: Bytes of a tile's address space that hold a shim's DMA registers.
REGISTERS = range(0x1D000, 0x1E000)
#: Every source file but the one where the numbers stand.
FILES = [
    file for one in DISTRIBUTIONS for file in sorted(one.sources.rglob("*.py")) if file.parts[-2:] != ("iron_core", "devices.py")
]


def found(source: str) -> list[str]:
    """Lines that write a register's address, or give a number of the hardware's name a value of their own."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in REGISTERS:
            wrong.append(f"line {node.lineno}: {node.value:#x}")
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Constant) and type(n.value) is int for n in ast.walk(node.value)):
            names = {n.id.strip("_") for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            wrong += [f"line {node.lineno}: {name}" for name in sorted(names & NAMES)]
    return wrong


def test_no_other_file_has_numbers_of_the_hardware():
    """Registers, queue depths, what locks and descriptors hold."""
    array = [f for f in FILES if "iron_host" not in f.parts and "iron_lm" not in f.parts]
    wrong = {str(file): lines for file in array if (lines := found(file.read_text(encoding="utf-8")))}
    assert len(array) > 100 and not wrong, wrong


@pytest.mark.parametrize("line", ["BASE = 0x1D000", "at = 8 * n + 0x1D214", "QUEUE = 4", "_REPEATS = 256", "WORD, LOCK_VALUE = 4, 63"])
def test_such_a_line_is_seen(line):
    """The walk above would be worth nothing if it saw none."""
    assert found(line) and not found("from iron_core.devices import QUEUE\nqueue = QUEUE\nk = 4")
