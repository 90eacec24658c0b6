"""Where checkpoints for tests of a device lie: the folder that `IRON_EXAMPLE_WEIGHTS_DIR` names, else /srv."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

VARIABLE, USUAL = "IRON_EXAMPLE_WEIGHTS_DIR", "/srv"
#: As Llama-3.2-1B, llama3.2-1b-instruct, Llama-3.2-1B-Instruct-Q4_K_M.gguf.
LLAMA = re.compile(r"llama-?_?3[._]2-?_?1b", re.IGNORECASE)


def llama() -> Path:
    """A folder or GGUF file of Llama 3.2 1B, the first by name. Skips where there is none, but fails where `IRON_TESTS_REQUIRE` names
    llama."""
    folder = Path(os.environ.get(VARIABLE) or USUAL)
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [path for path in there if LLAMA.search(path.name) and (path.is_dir() or path.suffix == ".gguf")]
    if found:
        return found[0]
    missing = f"no folder or GGUF file of Llama 3.2 1B in {folder}; {VARIABLE} names another, or --random-weights SEED draws weights"
    if "llama" in os.environ.get("IRON_TESTS_REQUIRE", "").split(","):
        pytest.fail(missing)
    pytest.skip(missing)
