"""OpenVINO as a worker, on an ONNX file from ids to vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import serve


class OpenVINO:
    """settings: checkpoint (the file), threads, dtype: of its own accord it takes bfloat16 where the processor has it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = openvino.__version__
        precision = {"float32": "f32", "bfloat16": "bf16"}[settings["dtype"]]
        options = {"INFERENCE_NUM_THREADS": settings["threads"], "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
        self.model = openvino.Core().compile_model(settings["checkpoint"], "CPU", options)
        self.request = self.model.create_infer_request()

    def vectors(self, ids: list[list[int]], batch: int, count: int) -> dict[str, Any]:
        def run(texts: list[list[int]]) -> Any:
            given, mask = (np.array(rows, np.int64) for rows in serve.padded(texts))
            return self.request.infer({"input_ids": given, "attention_mask": mask})[self.model.output(0)]

        return serve.vectors(ids, batch, count, run)


if __name__ == "__main__":
    serve.serve(OpenVINO)
