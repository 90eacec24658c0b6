"""Photographs and speech for the tests of devices: files of a folder that is no part of this repository."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

#: The variable that names the folder, and the file in it that lists the others as `sha256sum` does.
VARIABLE, SUMS = "IRON_MEDIA", "SHA256SUMS"
PHOTOGRAPHS, SPEECH = (".jpg", ".jpeg", ".png", ".webp"), (".wav", ".flac", ".ogg")


def media(kinds: tuple[str, ...]) -> list[Path]:
    """The files of these kinds, each as its sum says. Skips the test where there is no folder, no list or no such file in it; fails
    it for a file that is missing or is another than the list says."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder of photographs and speech, with their sums in {SUMS}")
    sums = Path(folder) / SUMS
    if not sums.is_file():
        pytest.skip(f"{sums} is missing: `sha256sum * > {SUMS}` in that folder makes it")
    found = []
    for line in sums.read_text("utf-8").splitlines():
        digest, _, name = line.partition(" ")
        file = Path(folder) / name.strip().removeprefix("*")
        if file.suffix.lower() not in kinds:
            continue
        if not file.is_file():
            pytest.fail(f"{file}: listed in {SUMS}, and not there")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest.lower():
            pytest.fail(f"{file}: another file than {SUMS} says")
        found.append(file)
    if not found:
        pytest.skip(f"{sums} lists no {', '.join(kinds)}")
    return found
