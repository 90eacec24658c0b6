"""sentence-transformers as a worker: its model as it loads, on torch."""

from __future__ import annotations

from typing import Any

import sentence_transformers
import serve
import torch


class SentenceTransformers:
    """settings: checkpoint, threads, dtype."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = sentence_transformers.__version__
        torch.set_num_threads(settings["threads"])
        model = sentence_transformers.SentenceTransformer(settings["checkpoint"], device="cpu")
        self.model = model.to(getattr(torch, settings["dtype"])).eval()

    def vectors(self, ids: list[list[int]], batch: int, count: int) -> dict[str, Any]:
        def run(texts: list[list[int]]) -> Any:
            given, mask = (torch.tensor(rows) for rows in serve.padded(texts))
            with torch.inference_mode():
                return self.model({"input_ids": given, "attention_mask": mask})["sentence_embedding"].float().numpy()

        return serve.vectors(ids, batch, count, run)


if __name__ == "__main__":
    serve.serve(SentenceTransformers)
