"""The names that the weights of mixtures of experts have in use: Hugging Face's, of experts one by one or together, and llama.cpp's."""

from __future__ import annotations

from iron_lm.checkpoints.sources import FirstOf, Names, Reshaped, Source, Split, Stack

_HUGGINGFACE = "model.layers.{i}.mlp."
_GGUF = "blk.{i}.ffn_"


def huggingface(count: int, rows: int, prefix: str = _HUGGINGFACE) -> Names:
    """Of the `Experts` of every layer, `count` experts with `rows` rows of a gate each: stored one by one, or all of a layer in one
    tensor, where each one's gate is followed by its other matrix. prefix: what the names of a layer's feed-forward begin with."""

    def stacked(matrix: str) -> Source:
        return Stack(tuple(f"{prefix}experts.{n}.{matrix}_proj.weight" for n in range(count)))

    both = f"{prefix}experts.gate_up_proj"
    return {
        "layers.{i}.ffn.router": f"{prefix}gate.weight",
        "layers.{i}.ffn.gate": FirstOf(Split(both, (rows, rows), 0, axis=1), stacked("gate")),
        "layers.{i}.ffn.up": FirstOf(Split(both, (rows, rows), 1, axis=1), stacked("up")),
        "layers.{i}.ffn.down": FirstOf(f"{prefix}experts.down_proj", stacked("down")),
        **{f"layers.{{i}}.ffn.shared.{x}": f"{prefix}shared_expert.{x}_proj.weight" for x in ("gate", "up", "down")},
        "layers.{i}.ffn.opening": f"{prefix}shared_expert_gate.weight",
    }


def gguf() -> Names:
    """Of the same in a GGUF, where all experts of a layer are one tensor for each matrix. Its gate of the shared expert is a vector."""
    return {
        "layers.{i}.ffn.router": f"{_GGUF}gate_inp.weight",
        **{f"layers.{{i}}.ffn.{x}": f"{_GGUF}{x}_exps.weight" for x in ("gate", "up", "down")},
        **{f"layers.{{i}}.ffn.shared.{x}": f"{_GGUF}{x}_shexp.weight" for x in ("gate", "up", "down")},
        "layers.{i}.ffn.opening": Reshaped(f"{_GGUF}gate_inp_shexp.weight", (-1,)),
    }
