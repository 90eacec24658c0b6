"""Sounds as files have them: in several channels, at other rates, and broken."""

from __future__ import annotations

import struct
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_embedding_gemma2 import clips
from iron_embedding_gemma2.resampling import resampled

RNG = np.random.default_rng(0)


@pytest.fixture
def soundfile() -> Any:
    return pytest.importorskip("soundfile", reason="soundfile is not installed")


def tone(hertz: int, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def test_a_sound_is_its_samples(tmp_path: Path, soundfile: Any) -> None:
    """16 bits at 16 kHz, written by Python's own wave: numbers / 32768."""
    numbers = RNG.integers(-32768, 32768, 1000).astype("<i2")
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(numbers.tobytes())
    got = clips.read(tmp_path / "a.wav")
    assert got.dtype == np.float32 and np.array_equal(got, numbers.astype(np.float32) / 32768)


@pytest.mark.parametrize("channels", [2, 5])
def test_channels_become_one(channels: int, tmp_path: Path, soundfile: Any) -> None:
    """Their mean."""
    samples = RNG.uniform(-1, 1, (500, channels)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 16000, subtype="FLOAT")
    assert np.allclose(clips.read(tmp_path / "a.wav"), samples.mean(1), atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000, 16001])
def test_another_rate_is_resampled(rate: int) -> None:
    """A tone of 1000 Hz stays one, within 1e-3 of its formula away from the ends; as long as it was, at 16 kHz."""
    got = clips.checked(tone(1000, rate)[:, None], rate, "a.wav")
    assert got.dtype == np.float32 and abs(len(got) - 8000) <= 1
    assert np.abs(got - tone(1000, 16000, 1)[: len(got)])[400:-400].max() < 1e-3


def test_what_is_too_high_to_be_heard_is_gone() -> None:
    """A tone of 15 kHz at 48 kHz is none at 16 kHz, and none of 1 kHz either; a tone of 7 kHz stays."""
    assert np.abs(resampled(tone(15000, 48000), 48000, 16000))[200:-200].max() < 1e-3
    assert np.abs(resampled(tone(7000, 48000), 48000, 16000))[200:-200].max() > 0.9


def test_a_constant_stays_one() -> None:
    """Within 1e-12, away from the ends, whatever the two rates."""
    for rate, wanted in ((44100, 16000), (8000, 16000), (3, 7)):
        got = resampled(np.ones(2000), rate, wanted)
        assert len(got) == -(-2000 * wanted // rate) and np.abs(got[300:-300] - 1).max() < 1e-12


@pytest.mark.parametrize("content", [b"no sound", b"", b"RIFF"])
def test_a_sound_that_is_none_is_one_line(content: bytes, tmp_path: Path, soundfile: Any) -> None:
    """Its path, and what soundfile says."""
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UsageError, match="no sound that soundfile reads") as said:
        clips.read(tmp_path / "a.wav")
    assert "a.wav" in str(said.value) and "\n" not in str(said.value)


def of_chunks(*chunks: tuple[bytes, bytes], size: int | None = None) -> bytes:
    """A WAV of these; size: what its last one says its is."""
    body = b"WAVE"
    for name, content in chunks:
        says = len(content) if size is None or name != chunks[-1][0] else size
        body += name + says.to_bytes(4, "little") + content + bytes(len(content) % 2)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


FORMAT = (b"fmt ", struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16))


@pytest.mark.parametrize("between", [(), ((b"LIST", b"odd"),)])
def test_a_sound_that_is_cut_off_is_refused(between: Any, tmp_path: Path, soundfile: Any) -> None:
    """Which soundfile reads as a shorter one; with another chunk, of an odd size, before its samples too."""
    whole = of_chunks(FORMAT, *between, (b"data", bytes(2000)))
    (tmp_path / "a.wav").write_bytes(whole)
    assert len(clips.read(tmp_path / "a.wav")) == 1000
    (tmp_path / "a.wav").write_bytes(whole[:-2])
    with pytest.raises(UsageError, match=r"a\.wav: 1998 of 2000 bytes of samples; it is cut off"):
        clips.read(tmp_path / "a.wav")


def test_a_sound_whose_writer_did_not_know_its_length_is_read(tmp_path: Path, soundfile: Any) -> None:
    """As programs write into a pipe: it says 4 GB, and ends where the file does."""
    (tmp_path / "a.wav").write_bytes(of_chunks(FORMAT, (b"data", bytes(2000)), size=0xFFFFFFFF))
    assert len(clips.read(tmp_path / "a.wav")) == 1000


def test_without_soundfile_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what installs it."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UsageError, match=r"sound is read by soundfile.*pip install soundfile"):
        clips.read("a.wav")
