"""transformers as a worker that makes vectors of a text, a clip and an image, of features that are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import serve
import torch
import transformers


class Transformers:
    """settings: checkpoint, threads, dtype."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = transformers.__version__
        torch.set_num_threads(settings["threads"])
        folder, dtype = Path(settings["checkpoint"]), getattr(torch, settings["dtype"])
        self.model = transformers.EmbeddingGemma2Model.from_pretrained(folder, dtype=dtype).eval()
        found = {name: torch.from_numpy(array) for name, array in np.load(folder / "inputs.npz").items()}
        self.given: dict[str, dict[str, Any]] = {
            "text": {"input_ids": found["ids"][None]},
            "clip": {
                "input_ids": found["clip_ids"][None],
                "input_features": found["features"].to(dtype),
                "input_features_mask": found["mask"],
            },
            "image": {
                "input_ids": found["image_ids"][None],
                "pixel_values": found["patches"].to(dtype),
                "image_position_ids": found["positions"],
            },
        }

    def vectors(self, what: str, count: int) -> dict[str, Any]:
        given = self.given[what]

        def run(_: Any) -> Any:
            with torch.inference_mode():
                states = self.model(attention_mask=torch.ones_like(given["input_ids"]), **given).last_hidden_state[0].float()
                return torch.nn.functional.normalize(states.mean(0, keepdim=True)).numpy()

        return serve.vectors([[]], 1, count, run)


if __name__ == "__main__":
    serve.serve(Transformers)
