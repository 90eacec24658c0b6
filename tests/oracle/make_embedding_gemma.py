"""Make the tiny EmbeddingGemma stored under tests/data: python make_embedding_gemma.py. Needs torch and transformers.

Run by hand when the stored file must change; the tests only read it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers

if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(
        vocab_size=96, hidden_size=40, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        query_pre_attn_scalar=20, sliding_window=8, max_position_embeddings=64, use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )  # fmt: skip
    model = transformers.Gemma3TextModel(config).eval()
    for p in model.parameters():
        p.copy_(0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)
    ids = torch.randint(0, 96, (1, 33))
    weights = {f"w/{name}": value.numpy() for name, value in model.state_dict().items()}
    np.savez_compressed(
        Path(__file__).parent.parent / "data" / "tiny_embedding_gemma.npz",
        config=config.to_json_string(use_diff=False), ids=ids[0].numpy(), states=model(ids).last_hidden_state[0].numpy(), **weights,
    )  # fmt: skip
    print(config.to_dict()["sliding_window"], config.sliding_window)
