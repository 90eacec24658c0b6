"""Weights of a mapped file are no memory of the process's own: what SmolLM2 takes beside its caches is a part of its file's size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.smollm2

#: Prints the file's bytes, the caches', and the most of anonymous memory that a load, a prompt and some steps added, and what was left.
PROGRAM = """
import json, sys, threading
from pathlib import Path

def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Anonymous:", "Swap:"))) * 1024

import iron_lm
from iron_host.backend import HostBackend
file, backend = sys.argv[1], HostBackend(tiles=sys.argv[2] == "tiles")
list(iron_lm.load(sys.argv[3], max_seq_len=64, backend=backend).session.generate([1, 2, 3], 2))  # imports, kernels, threads
before, most, done = anonymous(), [0], threading.Event()

def watch():
    while not done.wait(0.002):
        most[0] = max(most[0], anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
model = iron_lm.load(file, max_seq_len=512, backend=backend)
model.session.generate(list(range(100)), 20)
done.set(), watcher.join()
after, caches = anonymous(), sum(cache.nbytes for cache in model.session.model.caches)
print(json.dumps(dict(file=Path(file).stat().st_size, caches=caches, most=max(most[0], after) - before, left=after - before)))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell a process's memory by kind")
@pytest.mark.parametrize("tiles", ("tiles", "no tiles"))
def test_a_file_that_is_mapped_is_not_copied(smollm2: Path, tiles: str) -> None:
    """Tokenizer, graph and rows of activations take less than half of what the weights do, at any moment that is looked at."""
    tiny = Path(__file__).parents[1] / "data" / "tiny_llama"
    line = [sys.executable, "-c", PROGRAM, str(smollm2), tiles, str(tiny)]
    found = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    assert found["file"] > 90 << 20 and found["caches"] > 10 << 20
    assert found["most"] - found["caches"] < found["file"] // 2, found
    assert found["left"] - found["caches"] < found["file"] // 2, found
