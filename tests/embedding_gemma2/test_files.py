"""Images, videos and sounds of files through `iron-run embedding_gemma2`: right, or one clear line."""

from __future__ import annotations

import json
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main
from iron_embedding_gemma2 import clips, embedder
from tests.embedding_gemma2.weights import clip, frames
from tests.resizes import image_of

RUN = ("--max-seq-len", "320", "--backend", "host", "--json")


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture(scope="module")
def model(pictured: Path) -> embedder.MediaEncoder:
    return embedder.load(pictured, max_seq_len=320, backend="host")


def scores(capsys: pytest.CaptureFixture[str], folder: Path, *line: str) -> dict[str, float]:
    """By what is compared with the query, as the command prints it."""
    assert main(["run", "embedding_gemma2", str(folder), "--query", "w4", *line, *RUN]) == 0
    said = json.loads(capsys.readouterr().out)
    return {one["document"]: one["score"] for one in said["documents"]}


def test_images_and_videos_are_what_the_model_says_of_their_pixels(
    pillow: Any, pictured: Path, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turned by EXIF, see-through, of a palette; a folder of frames and an image that moves: the scores of the vectors from Python."""
    image, (first, *others) = image_of(24, 40), frames()
    exif = pillow.Exif()
    exif[0x0112] = 6
    pillow.fromarray(image).save(tmp_path / "turned.png", exif=exif)
    pillow.fromarray(np.dstack([image, image[..., :1]])).save(tmp_path / "alpha.png")
    palette = pillow.fromarray(image).convert("P")
    palette.save(tmp_path / "palette.png")
    (tmp_path / "video").mkdir()
    for number, frame in enumerate((first, *others)):
        pillow.fromarray(frame).save(tmp_path / f"video/{number}.png")
    moving = [pillow.fromarray(frame) for frame in (first, *others)]
    moving[0].save(tmp_path / "video.png", save_all=True, append_images=moving[1:], duration=1000)
    pixels = {"turned.png": np.rot90(image, -1), "alpha.png": image, "palette.png": np.asarray(palette.convert("RGB"))}
    files = [str(tmp_path / name) for name in pixels]
    shown = [str(tmp_path / name) for name in ("video", "video.png")]
    got = scores(capsys, pictured, "--image", *files, "--video", *shown, "--dims", "16")
    query = model.embed(embedder.PROMPTS["query"] + "w4", dims=16)[0]
    for file, seen in zip(files, pixels.values(), strict=True):
        assert abs(got[file] - query @ model.embed_image(np.ascontiguousarray(seen), dims=16)) < 1e-5, file
    for where in shown:
        assert abs(got[where] - query @ model.embed_video(frames(), dims=16)) < 1e-5, where


def test_sounds_are_what_the_model_says_of_their_samples(
    pictured: Path, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two channels, at another rate, without loss: the scores of the vectors from Python; what is in both channels is one clip."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    samples = clip(7000, 3)
    soundfile.write(tmp_path / "two.wav", np.stack([samples, samples], 1), 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "fast.wav", samples, 44100, subtype="FLOAT")
    soundfile.write(tmp_path / "one.flac", samples, 16000)
    want = {"two.wav": samples, "fast.wav": clips.checked(samples[:, None], 44100, ""), "one.flac": np.round(samples * 32768) / 32768}
    got = scores(capsys, pictured, "--audio", *(str(tmp_path / name) for name in want))
    query = model.embed(embedder.PROMPTS["query"] + "w4")[0]
    for name, heard in want.items():
        assert abs(got[str(tmp_path / name)] - query @ model.embed_clip(heard.astype(np.float32))) < 2e-4, name


def test_a_mixed_document_is_what_the_model_says_of_its_pieces(
    pillow: Any, pictured: Path, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order: texts, what an image file holds and what a sound file does; a text may look like a file."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    image, samples = image_of(24, 40), clip(1600, 3)
    pillow.fromarray(image).save(tmp_path / "a.png")
    soundfile.write(tmp_path / "a.wav", samples, 16000, subtype="FLOAT")
    first = ["w5", f"image={tmp_path / 'a.png'}", "w6 w7", f"audio={tmp_path / 'a.wav'}"]
    got = scores(capsys, pictured, "--mixed", *first, "--mixed", f"audio={tmp_path / 'a.wav'}", "text=image=w8", "--dims", "16")
    query = model.embed(embedder.PROMPTS["query"] + "w4", dims=16)[0]
    for pieces, named in (
        (["w5", image, "w6 w7", samples], " ".join(first)), ([samples, "image=w8"], f"audio={tmp_path / 'a.wav'} text=image=w8")
    ):  # fmt: skip
        assert abs(got[named] - query @ model.embed_mixed(pieces, dims=16)) < 1e-5, named


@pytest.mark.parametrize(("pieces", "said"), [
    (["w5", "w6"], "w5 w6: embed_mixed: neither a clip nor an image; legal: one clip, one image, or one of each"),
    (["image=none.png"], "none.png: there is no such file"),
    (["w5", "audio="], "--mixed audio=: no file is named; legal: audio=FILE."),
])  # fmt: skip
def test_what_is_no_mixed_document_is_one_line(
    pieces: list[str], said: str, pillow: Any, pictured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "embedding_gemma2", str(pictured), "--query", "w4", "--mixed", *pieces, *RUN]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def _sound(seconds: float, rate: int = 16000) -> Callable[[Path], Any]:
    def made(path: Path) -> None:
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(np.zeros(round(seconds * rate), "<i2").tobytes())

    return made


def _narrow(path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed").fromarray(image_of(10000, 1)).save(path)


BROKEN: dict[str, tuple[str, str, Callable[[Path], Any], str]] = {
    "a clip without samples": ("--audio", "a.wav", _sound(0), "0 samples, 16000 a second; legal: 161 to 480000, which are 30 s"),
    "a clip of 40 s": ("--audio", "a.wav", _sound(40), "640000 samples, 16000 a second; legal: 161 to 480000, which are 30 s"),
    "a clip of few samples a second": ("--audio", "a.wav", _sound(1, 2000), "2000 samples a second; legal: 4000 to 192000"),
    "text as a sound": ("--audio", "a.wav", lambda path: path.write_text("text"), "no sound that soundfile reads"),
    "no such sound": ("--audio", "a.wav", lambda path: None, "there is no such file"),
    "text as an image": ("--image", "a.png", lambda path: path.write_text("text"), "not an image that Pillow reads"),
    "an image without bytes": ("--image", "a.png", lambda path: path.write_bytes(b""), "not an image that Pillow reads"),
    "no such image": ("--image", "a.png", lambda path: None, "there is no such file"),
    "a folder as an image": ("--image", "a", lambda path: path.mkdir(), "not an image that Pillow reads"),
    "an image of 1 x 10000": ("--image", "a.png", _narrow, "1 x 10000 pixels becomes 3 x 840 patches; legal: columns=24 x rows=126"),
    "an image of 1 x 10000 as a video": ("--video", "a.png", _narrow, "legal: columns=12 x rows=126 at most"),
    "no such video": ("--video", "a.gif", lambda path: None, "there is no such file"),
    "a folder without frames": ("--video", "a", lambda path: path.mkdir(), "a folder without files"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_read_is_one_line(what: str, pictured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its path, and what would be legal."""
    option, name, make, said = BROKEN[what]
    pytest.importorskip("soundfile" if option == "--audio" else "PIL.Image", reason="a library of media is not installed")
    make(tmp_path / name)
    status = main(["run", "embedding_gemma2", str(pictured), "--query", "w4", option, str(tmp_path / name), *RUN])
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1 and said in err and str(tmp_path / name) in err, err


@pytest.mark.parametrize(("option", "library", "said"), [
    ("--image", "PIL", "read by Pillow, which is not installed: pip install pillow"),
    ("--video", "PIL", "read by Pillow, which is not installed: pip install pillow"),
    ("--audio", "soundfile", "pip install soundfile"),
])  # fmt: skip
def test_a_missing_library_is_one_line(
    option: str, library: str, said: str, pictured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what installs it."""
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["run", "embedding_gemma2", str(pictured), "--query", "w4", option, "a", *RUN]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
