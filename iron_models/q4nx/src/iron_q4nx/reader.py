"""`Q4NXFolder`: a checkpoint as FastFlowLM lays it out: config.json, model.q4nx, a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iron_core import PackedArray
from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors import DTYPES, dense_tensor
from iron_lm.checkpoints.safetensors_header import Entry, Header, read_header
from iron_lm.checkpoints.tensors import Tensors
from iron_q4nx import chunks
from iron_q4nx.layout import CONFIG, QUANTIZED_FROM, WEIGHTS
from iron_q4nx.shapes import shape_of

if TYPE_CHECKING:
    from iron_lm.conversion.output import Output

_HEAD = "lm_head.weight"
#: What names of matrices that are blocked for vision and audio begin with.
_OTHER_SENSES = ("vision", "audio", "multi_modal", "model.vision", "model.visual", "model.audio", "visual")
#: Families of FastFlowLM's, by `model_type`, whose order of rows, columns or nibbles is another or was compared by nobody.
_UNREAD = (
    "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_text", "qwen3_5", "qwen3_5_text", "qwen3_moe", "qwen3_5_moe", "qwen3_next",
    "gpt_oss", "lfm2", "lfm2_vl", "lfm2_moe", "gemma3n", "gemma4", "gemma4_text", "phi3", "whisper",
)  # fmt: skip


class Q4NXFolder:
    """An open checkpoint: the folder, or its model.q4nx.

    `tensors`: name -> (shape, Format, array over the map), matrices as chunks in the shape that config.json gives them.
    `metadata`: config.json, under "config", with the head's matrix as the file has it; `quantized_from`, where it is known.
    """

    kind = "q4nx"

    def __init__(self, path: str | Path, quantized_from: str | None = None) -> None:
        if quantized_from is not None and quantized_from not in chunks.SAID:
            raise UsageError(f"quantized_from={quantized_from!r}; legal: {', '.join(chunks.SAID)}.")
        path = Path(path)
        self.path = path if path.is_dir() else path.parent
        weights = self.path / WEIGHTS if path.is_dir() else path
        if weights.name != WEIGHTS:
            raise CheckpointError(f"{weights}: matrices of vision and audio are not read; {WEIGHTS}, the decoder's, is.")
        if not weights.exists():
            found = ", ".join(sorted(file.name for file in self.path.glob("*.q4nx"))[:4])
            raise CheckpointError(f"{self.path}: no {WEIGHTS}, the decoder's matrices; it holds {found}, which is not read.")
        if not (self.path / CONFIG).exists():
            raise CheckpointError(f"{self.path}: no {CONFIG} beside {WEIGHTS}; the shapes of matrices are read from there.")
        config = decoder_config(read_json(self.path / CONFIG))
        file = MappedFile(weights)
        header = read_header(file, lenient=True)
        file.known_by(header.digest)
        said = _said(weights, header, quantized_from)
        _check_family(weights, header, config)
        self.tensors = tensors_of(file, header, config, said)
        if _HEAD in self.tensors.names:  # there, too, where the model's head is its embedding
            config = config | {"tie_word_embeddings": False}
        self.metadata: dict[str, Any] = {"config": config} | ({} if said is None else {QUANTIZED_FROM: said})
        others = sorted(file.name for file in self.path.glob("*.q4nx") if file.name != WEIGHTS)
        self.described = "Q4NX" + (f", 4 bits from {said}" if said else "") + (f", without {', '.join(others[:4])}" if others else "")

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it a .q4nx file, or a folder with any?"""
        path = Path(path)
        return any(path.glob("*.q4nx")) if path.is_dir() else path.suffix == ".q4nx"

    @classmethod
    def converted(cls, checkpoint: Checkpoint) -> Output:
        """A checkpoint of any kind in this layout; see `writer.output`."""
        from iron_q4nx.writer import output  # here: who reads needs none of it

        return output(checkpoint)

    @classmethod
    def open(cls, path: str | Path, quantized_from: str | None = None) -> Q4NXFolder:
        """Map the file and read where its tensors are; CheckpointError if it is damaged. quantized_from: see `chunks.SAID`."""
        return cls(path, quantized_from)


def decoder_config(raw: dict[str, Any]) -> dict[str, Any]:
    """config.json of the decoder: of a model that has other parts too, the entries of its text."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw
    return {key: raw[key] for key in ("model_type",) if key in raw} | text


def _said(path: Path, header: Header, asked: str | None) -> str | None:
    """What is said of the file's 4-bit chunks, by who opens it or by itself."""
    own = header.metadata.get(QUANTIZED_FROM)
    if own is not None and own not in chunks.SAID:
        raise CheckpointError(f"{path}: {QUANTIZED_FROM} is {str(own)[:40]!r} in its header; legal: {', '.join(chunks.SAID)}.")
    if asked is not None and own not in (None, asked):
        raise CheckpointError(f"{path}: its header says {QUANTIZED_FROM}={own}, and {asked} is asked for. Legal: {own}, or none.")
    return asked if own is None else own


def _check_family(path: Path, header: Header, config: dict[str, Any]) -> None:
    """CheckpointError for what FastFlowLM writes of families in an order that was compared by nobody; not for what Iron wrote."""
    model = config.get("model_type")
    if model in _UNREAD and QUANTIZED_FROM not in header.metadata:
        raise CheckpointError(
            f"{path}: FastFlowLM's files of {model} have rows, columns or nibbles in an order of their own, or one that nobody compared. "
            "Legal: llama, qwen3, gemma3, and what `iron checkpoints convert` writes."
        )


def tensors_of(file: MappedFile, header: Header, config: dict[str, Any], said: str | None) -> Tensors:
    """The tensors of an open file; of 4-bit chunks of which nothing is said (None), the reason why they are not read."""
    tensors, unsaid = Tensors(), {}
    for entry in header.entries:
        name, data = entry.name, file.view(entry.begin, entry.end - entry.begin, f"tensor {entry.name}")
        try:
            if name.startswith(_OTHER_SENSES):
                raise CheckpointError("is of vision or audio, whose matrices are blocked for an NPU.")
            if name.endswith(".weight.scale"):
                raise CheckpointError("is a scale of a matrix of 8 bits, whose meaning nobody has written down.")
            if entry.dtype in DTYPES:
                tensors[name] = dense_tensor(file, entry)
                continue
            found = _matrix(entry, data, config, said)
            if found is None:
                unsaid[name] = data.reshape(-1, chunks.FOUR_BITS)
            else:
                tensors[name] = found
        except CheckpointError as error:
            reason = str(error)
            tensors.refused[name] = reason if reason.startswith(str(file.path)) else f"{file.path}: tensor {name} {reason}"
    if unsaid:
        why = "nothing in it says whether its 4-bit matrices are made from Q4_1 or Q4_0: say --quantized-from Q4_1, or Q4_0"
        tensors.refused |= dict.fromkeys(unsaid, f"{file.path}: {why}. Evidence: {chunks.evidence(list(unsaid.values()))}.")
    return tensors


def _matrix(entry: Entry, data: np.ndarray, config: dict[str, Any], said: str | None) -> tuple[Any, Any, Any] | None:
    """Shape, format and array of a matrix of chunks; None of 4-bit chunks that could be either of two. CheckpointError says what is
    wrong with it."""
    format = chunks.format_of(entry.dtype, entry.shape)
    shape = shape_of(entry.name, config)
    if shape is None:
        raise CheckpointError("is a matrix of chunks, and config.json does not say of what shape.")
    chunks.check_shape(format, entry.dtype, entry.shape, shape)
    if len(data) != format.nbytes(shape):
        raise CheckpointError(f"is {format.nbytes(shape)} bytes by its shape; its place has {len(data)}.")
    if format is chunks.Q4NX:
        cut = data.reshape(-1, chunks.FOUR_BITS)
        chunks.check_bytes(cut)
        if said is None:
            return None
        format = chunks.signed_or_not(cut, said)
    return shape, format, PackedArray(data, shape, format)
