"""all-MiniLM-L6-v2 against sentence-transformers, live; BERTs that transformers draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_bert.model import BERT
from iron_lm import loading

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")

#: By language, what a sentence is made of: who, what they do, and where or when.
WORDS = {
    "English": (("The cat", "My neighbour", "A physicist", "Nobody"),
        ("sleeps", "counts the stars", "won't answer", "paid 3.50 for it", "sings"),
        ("in the garden.", "at 7 o'clock!")),
    "German": (("Die Katze", "Mein Nachbar", "Eine Ärztin", "Niemand"),
        ("schläft", "zählt Sterne", "grüßt höflich", "liest Goethe", "lügt"),
        ("im Garten.", "um Mitternacht.")),
    "French": (("Le chat", "Ma sœur", "L'élève", "Personne"), ("n'a rien vu", "mange une crêpe", "rêve", "compte les étoiles", "s'en va"),
        ("dans le jardin.", "à midi.")),
    "Spanish": (("El gato", "La niña", "Mi vecino", "¿Quién"), ("duerme", "canta", "no contestó", "cuenta estrellas", "come piñones"),
        ("en el jardín.", "mañana?")),
    "Japanese": (("猫は", "私の友達は", "先生が", "誰も"),
        ("寝ている", "星を数える", "答えない", "歌を歌う", "本を読む"), ("庭で。", "東京で。")),
}  # fmt: skip
SENTENCES = [f"{who} {does} {where}" for whos, doing, places in WORDS.values() for who in whos for does in doing for where in places]


def test_200_sentences_of_five_languages(minilm: Path) -> None:
    """Cosine at least 0.99999 with each of sentence-transformers' vectors; the figures of pairs are the same."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed; `nox -s oracle` installs it")
    theirs, ours = library.SentenceTransformer(str(minilm), device="cpu"), iron_lm.load_encoder(minilm, backend="host")
    assert len(SENTENCES) == len(set(SENTENCES)) == 200
    got, want = ours.embed(SENTENCES), theirs.encode(SENTENCES, normalize_embeddings=True)
    assert (got * want).sum(1).min() >= 0.99999
    for model in (ours.embed, theirs.encode):
        cat, kitten, car = model(["a cat", "a kitten", "a car"])
        assert (round(float(cat @ kitten), 3), round(float(cat @ car), 3)) == (0.766, 0.352)


@pytest.mark.parametrize("changes", (
    dict(), dict(hidden_act="gelu_new", type_vocab_size=1), dict(num_attention_heads=2, max_position_embeddings=70, layer_norm_eps=1e-3),
))  # fmt: skip
def test_hidden_states_of_drawn_models(tmp_path: Path, changes: dict[str, Any]) -> None:
    """As transformers saves them; of every length around whole blocks."""
    torch.manual_seed(1)
    sizes = dict(vocab_size=200, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    model = transformers.BertModel(transformers.BertConfig(**sizes | dict(max_position_embeddings=66) | changes)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(1 + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)
        model.save_pretrained(tmp_path)
        ours = iron_lm.EncoderModel(loading.load(BERT, tmp_path), backend="host")
        for n in (1, 2, 63, 64, 65, ours.loaded.context):
            ids = torch.randint(0, 200, (1, n))
            want = model(ids).last_hidden_state[0].mean(0).numpy()
            assert np.abs(ours.vector(ids[0].tolist()) - want).max() < 1e-4, n
