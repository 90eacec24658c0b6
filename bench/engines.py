"""The engines: Iron, and the peers, each in an environment of its own that is made where it is absent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs

from bench.weights import QUANTIZED

WORKERS = Path(__file__).parent / "workers"


@attrs.frozen
class Engine:
    """One program that runs models. `packages` install it; none: this environment has it. `takes`: the rows' weights it
    runs; `weights` names, for some of them, the file it takes instead. `settings`: further ones of its worker. `made_by`: the
    engine whose packages make its weights, if it is another."""

    name: str
    worker: str
    packages: tuple[str, ...] = ()
    weights: tuple[tuple[str, str], ...] = ()
    takes: tuple[str, ...] = ()
    settings: tuple[tuple[str, object], ...] = ()
    made_by: Engine | None = None

    def file(self, weights: str) -> str:
        """The name of the file it runs for a row's weights."""
        return dict(self.weights).get(weights, weights)


#: Files of the formats that people have.
_FORMATS = (*QUANTIZED, "llama-1b-q4_k_m", "llama-3b-q4_k_m")
_GGUF = ("q4_1", "q4_0", "q8_0", "llama-1b-bf16", "qwen3-0.6b-q8_0", "qwen1.5-moe-q4_0", "qwen3-moe-q4_0", *_FORMATS)
IRON = Engine("iron", "iron.py", takes=(*_GGUF, "q4nx"))
#: Iron as if nothing had been tuned on this machine, where it is asked for.
UNTUNED = Engine("iron-untuned", "iron.py", takes=IRON.takes, settings=(("tuned", False),))
LLAMA_CPP = Engine("llama.cpp", "llama_cpp.py", ("llama-cpp-python==0.3.36", "numpy"), takes=_GGUF)
ONNXRUNTIME = Engine(
    "onnxruntime-genai",
    "onnxruntime_genai.py",
    (
        "onnxruntime-genai==0.18.0",
        "onnx",
        "onnx-ir",
        "torch==2.13.0",
        "transformers>=5",
        "accelerate",
        "gguf",
        "safetensors",
        "sentencepiece",
    ),
    weights=(("q4_1", "onnx-int4"), ("smollm2-q4_k_m", "onnx-int4"), ("llama-1b-q4_k_m", "llama-1b-onnx-int4")),
    takes=("q4_1", "smollm2-q4_k_m", "llama-1b-q4_k_m"),
)
OPENVINO = Engine("openvino-genai", "openvino_genai.py", ("openvino-genai==2026.4.1.0", "numpy"), takes=("q4_1", *_FORMATS))

_TORCH = ("torch==2.13.0", "sentence-transformers>=5")
IRON_ENCODER = Engine("iron", "iron_encoder.py", takes=("minilm",))
SENTENCE_TRANSFORMERS = Engine("sentence-transformers", "torch_encoder.py", _TORCH, takes=("minilm",))
#: Both run the ONNX file that the first one's environment makes.
ONNXRUNTIME_ENCODER = Engine(
    "onnxruntime", "onnx_encoder.py", ("onnxruntime==1.32.0", "onnx", *_TORCH), weights=(("minilm", "minilm-onnx"),), takes=("minilm",)
)
OPENVINO_ENCODER = Engine(
    "openvino", "openvino_encoder.py", ("openvino==2026.4.1", "onnx", *_TORCH), weights=(("minilm", "minilm-onnx"),), takes=("minilm",)
)

TRANSFORMERS = Engine(
    "transformers", "transformers_media.py", ("torch==2.13.0", "transformers==5.24.0", "safetensors", "pillow"), takes=("embedding-gemma2",)
)
IRON_MEDIA = Engine("iron", "iron_media.py", takes=("embedding-gemma2",), made_by=TRANSFORMERS)

ENGINES = (IRON, LLAMA_CPP, ONNXRUNTIME, OPENVINO)
#: Of rows of vectors.
ENCODERS = (IRON_ENCODER, SENTENCE_TRANSFORMERS, ONNXRUNTIME_ENCODER, OPENVINO_ENCODER)
#: Of rows of media.
MEDIA = (IRON_MEDIA, TRANSFORMERS)


class Unavailable(Exception):
    """An engine cannot run here; the message says why."""


def python_of(engine: Engine, folder: Path, *, install: bool = True) -> str:
    """The python that has the engine. A peer's environment is made in `folder` and kept; building llama.cpp takes long.

    Unavailable with pip's last words where that fails, or where it is absent and not to be made.
    """
    if not engine.packages:
        return sys.executable
    place = folder / engine.name
    python = place / "bin" / "python"
    done = place / f"installed-{engine.name}"
    wanted = "\n".join(engine.packages)
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return str(python)
    if not install:
        raise Unavailable(f"not installed in {folder}, and --no-install was given")
    print(f"installing {engine.name} ({', '.join(engine.packages)}) ...", file=sys.stderr, flush=True)
    for line in ([sys.executable, "-m", "venv", str(place)], [str(python), "-m", "pip", "install", "--quiet", *engine.packages]):
        ran = subprocess.run(line, capture_output=True, text=True)
        if ran.returncode:
            last = (ran.stderr.strip() or ran.stdout.strip() or "no output").splitlines()[-1]
            raise Unavailable(f"does not install: {last}")
    done.write_text(wanted, encoding="utf-8")
    return str(python)
