"""`LogMel` alone: sound as the logarithm of its energy in bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import ParamError
from iron_lm.blocks.log_mel import LogMel, LogMelConfig
from iron_lm.run import Run
from tests.clips import CLIPS, clip
from tests.lm.blocks.calling import called

GOLDEN = dict(np.load(Path(__file__).parents[2] / "data/blocks.npz"))
SMALL: dict[str, Any] = dict(frames=64, sample_rate=4000, frame=64, hop=32, fft=64, mels=32, high=2000.0, before=32)


def made(config: LogMelConfig, dtype: str, sound: np.ndarray, **options: Any) -> np.ndarray:
    """The block's frames of a clip."""
    part = LogMel(config, Run(16, 16, dtype=dtype))
    part.fill({})
    got = called(part, config.laid(sound), frames=config.frames_of(len(sound)), **options)
    return np.asarray(got).astype(np.float32)


@pytest.mark.parametrize("name", sorted({key.split("/")[1] for key in GOLDEN if key.startswith("log_mel/")}))
def test_stored_frames_are_those_of_the_feature_extractor(name: str, backend: str) -> None:
    """transformers' of Gemma 4, of clips of any length: as many frames, within 2e-5."""
    want, sound = GOLDEN[f"log_mel/{name}"], clip(name)
    config = LogMelConfig(frames=64)
    got = made(config, "float32", sound, backend=backend)
    assert got.shape == want.shape and np.abs(got - want).max(initial=0) < 2e-5
    assert np.abs(LogMel(config, Run(16, 16)).twin({}, config.laid(sound))[: len(want)] - want).max(initial=0) < 2e-5


@pytest.mark.parametrize("hertz", [50, 440, 7000])
def test_a_loud_clean_tone_leaves_other_bands_alone(hertz: int, backend: str) -> None:
    """Of the loudest sine that there is: within 2e-5 of the twin in every band, where sums in float32 are off by 1e-3."""
    sound = np.sin(2 * np.pi * hertz * np.arange(8000) / 16000).astype(np.float32)
    config = LogMelConfig(frames=64)
    want = LogMel(config, Run(16, 16)).twin({}, config.laid(sound))[: config.frames_of(len(sound))]
    assert np.abs(made(config, "float32", sound, backend=backend) - want).max() < 2e-5


@pytest.mark.parametrize("name", ["noise", "speech", "steps"])
def test_limbs_are_as_good_as_float32(name: str) -> None:
    """In a run in bfloat16 too the transform is one of float32: what is given is the twin's number, rounded once."""
    config, sound = LogMelConfig(frames=64), clip(name)
    want = LogMel(config, Run(16, 16)).twin({}, config.laid(sound))[: config.frames_of(len(sound))]
    got = made(config, "bfloat16", sound, backend="host")
    assert (np.abs(got - want) <= 2.0**-8 * np.abs(want) + 1e-4).all()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_arrays_compute_it(dev: str) -> None:
    """Of frames of another size, within a unit of bfloat16."""
    config, sound = LogMelConfig(**SMALL), clip("noise")[:1500]
    want = LogMel(config, Run(16, 16)).twin({}, config.laid(sound))[: config.frames_of(1500)]
    got = made(config, "bfloat16", sound, backend="sim", dev=dev)
    assert got.shape == want.shape == (46, 32) and (np.abs(got - want) <= 2.0**-8 * np.abs(want) + 1e-4).all()


def test_a_tone_is_loudest_in_its_own_band(backend: str) -> None:
    """By hand: 1000 Hz lies in band 51 of 128, whose triangles are even on the HTK scale up to 8000 Hz."""
    mel = 2595 * np.log10(1 + np.array([1000, 8000]) / 700)
    at = mel[0] / mel[1] * 129 - 1
    got = made(LogMelConfig(frames=64), "float32", np.sin(2 * np.pi * 1000 * np.arange(8000) / 16000), backend=backend)
    assert abs(int(np.median(got.argmax(1))) - at) <= 1


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (1, 0), (160, 0), (161, 1), (320, 1), (321, 2), (16000, 99), (480000, 2999)])
def test_a_frame_is_one_whose_samples_are_the_clips(samples: int, frames: int) -> None:
    """And the sample behind it; half a frame of zeros stands before the clip."""
    assert LogMelConfig(frames=4).frames_of(samples) == frames


def test_silence_is_the_floor(backend: str) -> None:
    """log 0.001, whatever the band."""
    got = made(LogMelConfig(frames=8), "float32", np.zeros(1000), backend=backend)
    assert got.shape == (6, 128) and np.allclose(got, np.log(1e-3), atol=1e-6)


def test_clips_that_do_not_fit_are_refused() -> None:
    """With how long they may be; stereo too."""
    config = LogMelConfig(frames=4)
    assert config.laid(np.zeros(640)).shape == (800,)
    for given in (np.zeros(802), np.zeros((10, 2))):
        with pytest.raises(ParamError, match=r"legal: \(n,\), n up to 640 for frames=4"):
            config.laid(given)


@pytest.mark.parametrize(("fields", "says"), [
    (dict(frame=600), "frame=600 samples in fft=512"), (dict(high=9000.0), "high=9000.0; legal: 0 <= low < high <= 8000"),
    (dict(low=-1.0), "low=-1.0"), (dict(before=-1), "before=-1; legal: 0 or more"), (dict(mels=0), "mels=0"),
])  # fmt: skip
def test_what_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    """By field, value and what would be legal."""
    with pytest.raises(ParamError, match=says):
        LogMelConfig(**dict(frames=4) | fields)


def test_the_clips_are_many() -> None:
    """Twenty of them are compared live, in tests/oracle."""
    assert len(CLIPS) >= 20 and len({clip(name).tobytes() for name in CLIPS}) == len(CLIPS)
