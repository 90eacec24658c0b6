"""onnxruntime as a worker, on an ONNX file from ids to vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import serve


class OnnxRuntime:
    """settings: checkpoint (the file), threads."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = onnxruntime.__version__
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = settings["threads"], 1
        self.session = onnxruntime.InferenceSession(settings["checkpoint"], options, providers=["CPUExecutionProvider"])

    def vectors(self, ids: list[list[int]], batch: int, count: int) -> dict[str, Any]:
        def run(texts: list[list[int]]) -> Any:
            given, mask = (np.array(rows, np.int64) for rows in serve.padded(texts))
            return self.session.run(None, {"input_ids": given, "attention_mask": mask})[0]

        return serve.vectors(ids, batch, count, run)


if __name__ == "__main__":
    serve.serve(OnnxRuntime)
