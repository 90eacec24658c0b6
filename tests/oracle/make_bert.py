"""Make the vectors of encoders stored under tests/data: python make_bert.py MODEL_FOLDER (all-MiniLM-L6-v2's). Needs torch.

Run by hand when a stored file must change; the tests only read what is stored.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

DATA = Path(__file__).parent.parent / "data"
TEXTS = (
    "a cat", "a kitten", "a car", "x", "Charged particles from the sun cause the northern lights.",
    "Die Hauptstadt von Frankreich ist Paris.",
    "La ville où je suis né est très petite, et personne n'y va.", "¿Qué causa la aurora boreal?",
    "猫が好きです。", "UPPER case, déjà-vu; 3.14 [SEP] ok",
    "word " * 120,
)  # fmt: skip


def tiny() -> None:
    """Two layers, four heads, learned places of 40, weights that are nobody's default; hidden states of 33 tokens."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40,
        type_vocab_size=3, layer_norm_eps=1e-12,
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    for p in model.parameters():
        p.copy_(1 + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)
    ids = torch.randint(0, 96, (1, 33))
    weights = {f"w/{name}": value.numpy() for name, value in model.state_dict().items()}
    states = model(ids).last_hidden_state[0].numpy()
    np.savez_compressed(DATA / "tiny_bert.npz", config=config.to_json_string(), ids=ids[0].numpy(), states=states, **weights)


def minilm(folder: Path) -> None:
    """Means of the last hidden states, of length 1: what sentence-transformers makes of these texts."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    found = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    vectors = torch.nn.functional.normalize(torch.stack(found)).numpy()
    np.savez_compressed(DATA / "minilm.npz", texts=np.array(TEXTS), vectors=vectors)
    print("cat, kitten and cat, car:", vectors[0] @ vectors[1], vectors[0] @ vectors[2])


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    tiny()
    minilm(Path(sys.argv[1]))
