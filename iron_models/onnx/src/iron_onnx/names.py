"""The names of weights: what exporters and quantisers make of a module's, and back."""

from __future__ import annotations

import re

#: What quantisers put behind an initialiser's name, and exporters into it.
_BEHIND = re.compile(r"(_DQ)?_Q\d+$|_quantized$|_quant$|_q?weight_quantized$")
_WEIGHT = re.compile(r"^[A-Za-z_][\w.]*\.(weight|bias)$")


def weight_name(initializer: str, product: str) -> str:
    """The name of a module's weight, of an initialiser and of the product that multiplies by it ("" of none).

    An initialiser that is called as modules' weights are keeps its name. Another, as torch's exporter leaves matrices that it has
    turned (`onnx::MatMul_12`), is called by the product's path: `/model/layers.0/mlp/up_proj/MatMul` is of
    `model.layers.0.mlp.up_proj.weight`. Where neither says it, the initialiser's name.
    """
    plain = _BEHIND.sub("", initializer).replace(".MatMul.weight", ".weight")
    if _WEIGHT.match(plain):
        return plain
    path = [part for part in product.split("/") if part]
    if len(path) > 1 and path[-1].startswith(("MatMul", "Gemm")):
        return f"{'.'.join(path[:-1])}.weight"
    return plain or initializer
