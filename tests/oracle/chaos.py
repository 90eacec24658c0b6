"""How much EmbeddingGemma 2's text tower, 24 layers as wide as released, makes of float32's last bits: with weights whose scores are about
1 ("mild"), and with norms of queries and keys about 1 ("sharp").

    python -m tests.oracle.chaos [TOKENS]

Needs torch and transformers 5.24 or later, at the root of the repository; 3 GB of memory and a minute or two. It prints, of the states of
a text (128 tokens unless told), the norm of the difference from transformers in float64 over the states' own, layer by layer: of
transformers in float32, of the same with the embeddings of one word in 512 moved by one unit of their last bit, and behind the last
layer of ours. Where the first two are as large as the third, the third says nothing of either program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import attrs
import numpy as np

from iron_embedding_gemma2 import described, names
from iron_embedding_gemma2.text import TextTower
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.sources import sources_of
from iron_lm.run import Run
from tests.embedding_gemma2 import weights

#: The released vocabulary takes memory, and no part in it.
VOCABULARY = 512
DRAWN: dict[str, Callable[..., Any]] = {
    "mild": lambda name, shape: weights.mild(name, weights.numbers(name, shape)),
    "sharp": weights.numbers,
}


class _Drawing:
    """A checkpoint that has everything."""

    def __init__(self, numbers: Callable[..., Any]) -> None:
        self.numbers = numbers

    def has(self, name: str) -> bool:
        return True

    def tensor(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        found: np.ndarray = self.numbers(name.removeprefix("language_model."), shape)
        return found


def off(a: np.ndarray, b: np.ndarray) -> float:
    """The norm of the difference over that of b."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def states(model: Any, ids: np.ndarray) -> list[np.ndarray]:
    """float64, behind the embedding and behind each layer, the last norm and the head: of transformers' model."""
    import torch

    row = torch.from_numpy(ids.astype(np.int64))[None]
    said = model(input_ids=row, attention_mask=torch.ones_like(row), output_hidden_states=True)
    return [state[0].double().numpy() for state in (*said.hidden_states, said.last_hidden_state)]


def ours(config: Any, numbers: Callable[..., Any], ids: np.ndarray) -> np.ndarray:
    """float64 (tokens, output_size): what our tower says of each token, in float32 on the CPU."""
    read = attrs.evolve(described.config_of(huggingface.entries_of(json.loads(json.dumps(config.to_dict())))), pooling=None)
    part = TextTower(read, Run(len(ids), len(ids), dtype="float32", cache_dtype="float32"))
    shapes = part.tensors()
    part.fill({path: source.read(_Drawing(numbers), shapes[path]) for path, source in sources_of(names.text(read), shapes).items()})
    return np.asarray(part.compile(ids=(ids.shape, np.int32), backend="host")(ids, rows=len(ids))).astype(np.float64)


def found(numbers: Callable[..., Any], tokens: int) -> tuple[list[float], list[float], float]:
    """Of transformers in float32 and of the same with one word moved, layer by layer; of ours."""
    import torch
    import transformers as T

    torch.set_grad_enabled(False)
    config = T.EmbeddingGemma2TextConfig(vocab_size=VOCABULARY)
    with torch.device("meta"):
        model = T.EmbeddingGemma2TextModel(config).eval()
    drawn = {name: torch.from_numpy(np.asarray(numbers(name, tuple(t.shape)))) for name, t in model.state_dict().items()}
    model = T.EmbeddingGemma2TextModel(config).eval()
    model.load_state_dict(drawn)
    ids = np.random.default_rng(5).permutation(VOCABULARY)[:tokens].astype(np.int32)
    plain = states(model, ids)
    table = model.get_input_embeddings().weight
    table[ids[0]] = torch.nextafter(table[ids[0]], torch.full_like(table[ids[0]], torch.inf))
    moved = states(model, ids)
    model.load_state_dict(drawn)
    model = model.double()
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):  # norms and angles are of float32 where nothing stops them
        exact = states(model, ids)
    del model
    return *([off(a, b) for a, b in zip(each, exact, strict=True)] for each in (plain, moved)), off(ours(config, numbers, ids), exact[-1])


def main(tokens: int = 128) -> None:
    for name, numbers in DRAWN.items():
        plain, moved, own = found(numbers, tokens)
        print(f"{name}, {tokens} tokens: ours {own:.1e} behind the last layer; transformers in float32, then with a word moved:")
        for where, pair in enumerate(zip(plain, moved, strict=True)):
            if where % 4 == 0 or where >= len(plain) - 2:
                print("  layer" if where < len(plain) - 1 else "  head ", f"{where:2}", *(f"{each:.1e}" for each in pair), flush=True)


if __name__ == "__main__":
    main(*(int(given) for given in sys.argv[1:2]))
