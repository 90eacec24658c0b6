"""What tests of files made to do harm share: what a refusal may cost, and files of Meta's layout with any pickle in them."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from iron_core.errors import LONGEST, CheckpointError
from iron_lm.checkpoints.meta import MetaFolder

ANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: The slowest takes a fifth of a second on a quiet machine; a busy one counts several times that. What is guarded against takes minutes.
CPU_SECONDS, BYTES = 5.0, 100e6


def refused(says: str, attempt: Callable[[], Any]) -> None:
    """A CheckpointError of one line that says so, within little CPU and 100 MB."""
    start = time.thread_time()
    with pytest.raises(CheckpointError, match=says) as caught:
        attempt()
    took = time.thread_time() - start
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000, str(caught.value)
    assert took < CPU_SECONDS, f"{took:.2f} s"
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            attempt()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BYTES, f"{peak / 1e6:.0f} MB"


def refusal(path: Path, attempt: Callable[[], Any]) -> str:
    """The message of the CheckpointError that an attempt ends in: short, printable, and it names the file."""
    with pytest.raises(CheckpointError) as caught:
        attempt()
    said = str(caught.value)
    assert said.isprintable() and len(said) <= LONGEST and path.name in said, said
    return said


def sparse(path: Path, head: bytes, size: int) -> Path:
    """A file of this size that begins with `head` and is zero from there on; it takes no room on the disk."""
    path.write_bytes(head)
    os.truncate(path, size)
    return path


class Runs:
    """Unpickled the usual way, it makes a file."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.made = (function, arguments)

    def __reduce__(self) -> Any:
        return self.made


def meta(tmp_path: Path, pth: Any, pickled: bytes, storages: dict[str, bytes] | None = None, **options: Any) -> Callable[[], Any]:
    (tmp_path / "params.json").write_text("{}")
    pth.archive(tmp_path / "consolidated.00.pth", pickled, storages or {}, **options)
    return lambda: MetaFolder.open(tmp_path)
