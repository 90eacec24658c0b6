"""Real photographs and speech: the front ends of EmbeddingGemma 2 against their twins, on the CPU and on a device."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.backends import choose
from iron_core.backends.protocol import Available
from iron_embedding_gemma2 import clips, images
from iron_embedding_gemma2.config import VisionConfig
from iron_embedding_gemma2.vision import ImageTower, VisionTower
from iron_lm.blocks.image_patches import ImagePatches, ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMel, LogMelConfig
from iron_lm.run import Run
from tests.embedding_gemma2.conftest import drawn
from tests.npu.media import PHOTOGRAPHS, SPEECH, SUMS, VARIABLE, media

devices = pytest.mark.parametrize("dev", ["host", *(pytest.param(dev, marks=getattr(pytest.mark, dev)) for dev in ("npu1", "npu2"))])
#: Pixels on a side of a photograph at most; larger ones are made smaller by leaving pixels out.
SIDE = 1024
#: Frames of speech: two seconds.
FRAMES = 200


def backend_on(dev: str) -> str:
    """What runs graphs there: on a device an installed backend that is none of this repository's. Skips the test where there is none."""
    if dev == "host":
        return "host"
    for name in choose.names():
        if name not in ("host", "sim", "reference", "null") and isinstance(choose.probe(choose.get(name)), Available):
            return name
    pytest.skip("no installed backend runs on a device; iron-npu prints designs")


def tower() -> ImageTower:
    """Of 64 patches at most, a layer deep."""
    config = VisionConfig(hidden_size=64, num_layers=1, num_heads=1, head_dim=64, intermediate_size=128, pool=2, positions=64)
    run = Run(256, 256)
    return ImageTower(ImagePatches(ImagePatchesConfig(budget=16, pool=2, room=64, positions=65), run), VisionTower(config, 64, run))


@devices
def test_photographs_become_soft_tokens(dev: str) -> None:
    """Each token points where the numpy forward's does."""
    backend = backend_on(dev)
    photographs = [images.read_image(file) for file in media(PHOTOGRAPHS)]
    part = tower()
    weights = {path: array.astype(bfloat16) for path, array in drawn(part).items()}
    part.fill(weights)
    graph = part.compile(picture=((SIDE, 4096), np.uint8), backend=backend, dev=dev)
    for image in photographs:
        step = -(-max(image.shape) // SIDE)
        image = np.ascontiguousarray(image[::step, ::step])
        height, width, _ = image.shape
        picture = np.zeros((SIDE, 4096), np.uint8)
        picture[:height, : 3 * width] = image.reshape(height, -1)
        tokens = part.patches.config.tokens(height, width)
        got = np.asarray(graph(picture, **part.patches.config.sizes(height, width), tokens=tokens)).astype(np.float32)
        want = part.twin(weights, image)
        cosine = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
        assert cosine.min() > 0.995


@devices
def test_speech_becomes_its_spectrum(dev: str) -> None:
    """Within a unit of bfloat16."""
    recordings, backend = media(SPEECH), backend_on(dev)
    sound = LogMelConfig(frames=FRAMES)
    part = LogMel(sound, Run(FRAMES, FRAMES))
    part.fill({})
    graph = part.compile(samples=((sound.samples,), np.float32), backend=backend, dev=dev)
    for file in recordings:
        samples = clips.read(file)[: 160 * FRAMES]
        count = sound.frames_of(len(samples))
        laid = sound.laid(samples)
        got = np.asarray(graph(laid, frames=count)).astype(np.float32)[:count]
        want = part.twin({}, laid)[:count]
        assert (np.abs(got - want) <= 2.0**-8 * np.abs(want) + 1e-4).all()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_device_would_take_them(dev: str) -> None:
    """Both graphs are planned for it."""
    part, sound = tower(), LogMelConfig(frames=FRAMES)
    part.fill({path: array.astype(bfloat16) for path, array in drawn(part).items()})
    assert part.compile(picture=((SIDE, 4096), np.uint8), backend="null", dev=dev).plan is not None
    features = LogMel(sound, Run(FRAMES, FRAMES))
    features.fill({})
    assert features.compile(samples=((sound.samples,), np.float32), backend="null", dev=dev).plan is not None


def test_media_are_what_their_sums_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a kind; a skip that says why without them, a failure for one that is another."""
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{VARIABLE} names no folder"):
        media(SPEECH)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=f"{SUMS} is missing"):
        media(SPEECH)
    (tmp_path / "a.JPG").write_bytes(b"one")
    (tmp_path / SUMS).write_text(f"{hashlib.sha256(b'one').hexdigest()}  a.JPG\n{'0' * 64} *b.wav\n")
    assert media(PHOTOGRAPHS) == [tmp_path / "a.JPG"]
    with pytest.raises(pytest.fail.Exception, match="listed in SHA256SUMS, and not there"):
        media(SPEECH)
    (tmp_path / "b.wav").write_bytes(b"two")
    with pytest.raises(pytest.fail.Exception, match="another file than SHA256SUMS says"):
        media(SPEECH)
