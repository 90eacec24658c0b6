"""What `nox -s sanitize` watches for is seen: kernels that are wrong by one element, or that race, end their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: "address" or "thread" inside the session.
SANITIZER = os.environ.get("IRON_SANITIZER", "")
CHILD = Path(__file__).with_name("wrong_kernel.py")

under = {
    name: pytest.mark.skipif(name != SANITIZER, reason=f"runs under the {name} sanitizer, in nox -s sanitize")
    for name in ("address", "thread")
}


def run(statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHILD), statement], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "statement",
    [
        "sink = x[n]",
        "sink = x[-1]",
        "y[n] = 1",
        "y[-1] = 1",
        "scratch[64] = 1",
        "shared[64] = 1",
        "sink = scratch[-1]",
    ],
)
@under["address"]
def test_an_element_too_many_is_seen(statement):
    """Read or written, past the end or before the start, in the arena and in a step's areas."""
    done = run(statement)
    assert done.returncode and "AddressSanitizer" in done.stderr, done.stderr
    assert "iron_test_wrong" in done.stderr or "copied" in done.stderr


@under["address"]
def test_undefined_behaviour_is_seen():
    """A shift by more than a number's bits."""
    done = run("sink = 1 << (n & 4090)")
    assert done.returncode and "shift exponent" in done.stderr, done.stderr


@under["thread"]
def test_a_race_is_seen():
    """Two parts of one step that write one number."""
    done = run("y[0] = tid")
    assert done.returncode and "data race" in done.stderr, done.stderr


@pytest.mark.skipif(not SANITIZER, reason="runs under a sanitizer, in nox -s sanitize")
def test_a_right_kernel_is_left_alone():
    """What the others are told from."""
    done = run("")
    assert (done.returncode, done.stdout) == (0, "ran to its end\n"), done.stderr
