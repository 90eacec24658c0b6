"""`VisionTower`: an image's patches as soft tokens, which stand among a text's."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_embedding_gemma2.bounds import BOUNDS
from iron_embedding_gemma2.config import TextConfig, VisionConfig
from iron_embedding_gemma2.vision_layer import vision_layer
from iron_lm.blocks.image_patches import SIDE, ImagePatches, ImagePatchesConfig
from iron_lm.checkpoints.sources import Names, Source
from iron_lm.parts.axial_rotary import AxialRotary, AxialRotaryConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.run import Run
from iron_ops_aie import Copy, ElementwiseAdd, RowwiseAdd, RowwiseMul, Scale

#: Half of the largest number of a pixel.
_MIDDLE = 127.5


@attrs.frozen(eq=False)
class Places:
    """A row for each column that a patch may stand in, and for each row; behind the last of either, a row of zeros."""

    columns: Any
    rows: Any


class VisionTower(Part):
    """patches (n, 3 x patch x patch), numbers from 0 to 1, and positions int32 (2, n), as `ImagePatches` gives them: the patches of a
    token one after the other -> (tokens, text_size), of a call's first `tokens`.

    2 p - 1 of each patch is projected and told its column and row; layers of attention and a gated feed-forward follow, each between
    norms; the patches of a token are averaged, and standardised where the config says so; what comes out is normed without a weight
    and projected to what texts are made of.
    """

    patch: Any
    positions: Any
    matrix: Any
    bias: Any
    scale: Any

    def __init__(self, config: VisionConfig, text_size: int, run: Run) -> None:
        c = self.config = config
        self.run = run
        numbers = 3 * c.patch**2
        self.entry = Projection(self, run, patch=(c.hidden_size, numbers))
        self.needs(positions=(2, c.positions, c.hidden_size))
        self.minus_middle = iron.weight(np.full(numbers, -_MIDDLE, as_dtype(run.dtype)))
        self.rotary = AxialRotary(AxialRotaryConfig(c.head_dim, c.positions + 1, c.rotary_base), run)
        self.layers = [vision_layer(c, self.rotary, run) for _ in range(c.num_layers)]
        # What is normed is the sum of a token's patches, which the model divides by their number and multiplies by the root of a row's
        # size; but what is standardised is that.
        self.factor = c.hidden_size**0.5 / c.pool**2
        self.norm = Norm(NormConfig(c.hidden_size, c.norm_epsilon / (1 if c.standardize else self.factor**2), weight=False))
        if c.standardize:
            self.needs(bias=(c.hidden_size,), scale=(c.hidden_size,))
        self.projected = Projection(self, run, matrix=(text_size, c.hidden_size))

    def held(self, name: str, array: Any) -> Any:
        if name in ("bias", "scale"):
            factor = {"bias": -1.0, "scale": 1.0}[name]
            return iron.weight(widen(array) * np.float32(factor))
        if name != "positions":
            return super().held(name, array)
        none = np.zeros((1, self.config.hidden_size), array.dtype)
        return Places(*(iron.weight(np.concatenate([axis, none])) for axis in array))

    def body(self, patches: Any, positions: Any, *, tokens: iron.Scratchpad[np.int32]) -> Any:
        window, dtype = self.config.pool**2, as_dtype(self.run.dtype)
        rows = tokens * window
        x = self.entry(self.centred(patches[:rows]))
        across, down = (
            Copy(table[positions[axis]], Y=dtype)[:rows] for axis, table in enumerate((self.positions.columns, self.positions.rows))
        )
        x = ElementwiseAdd(x, ElementwiseAdd(across, down))
        angles = self.rotary(Copy(positions.T))[:rows]
        for layer in self.layers:
            x = layer(x, angles, rows=rows)
        return self.projected(self.norm(self._pooled(x)))

    def centred(self, patches: Any) -> Any:
        """2 p - 1 of numbers that are pixels / 255, rounded once: bfloat16 keeps apart 256 levels, and is exact to their middle; 2 p - 1 of
        what is rounded is off by as much where it is small as where it is large."""
        levels = Scale(patches, factor=2 * _MIDDLE)
        return Scale(RowwiseAdd(levels, self.minus_middle), factor=1 / _MIDDLE)

    def _pooled(self, x: Any) -> Any:
        """The sum of each token's patches, (tokens, hidden_size), or what is standardised of them."""
        window, size = self.config.pool**2, self.config.hidden_size
        each = x.reshape(x.shape[0] // window, window, size)
        total, *others = (Copy(each[:, i], Y=np.float32 if self.config.standardize else x.dtype) for i in range(window))
        for other in others:
            total = ElementwiseAdd(total, other)
        if not self.config.standardize:
            return total
        # In float32: what is taken away is large.
        total = RowwiseAdd(Scale(total, factor=self.factor), self.bias)
        return Copy(RowwiseMul(total, self.scale), Y=x.dtype)

    def twin(self, weights: Weights, patches: Any, positions: Any) -> np.ndarray:
        """float32 (tokens, text_size); positions (n, 2): the column and the row of each patch."""
        c, positions = self.config, np.asarray(positions)
        columns, rows = (widen(axis) for axis in weights["positions"])
        x = (2 * np.asarray(patches, np.float32) - 1) @ widen(weights["patch"]).T + columns[positions[:, 0]] + rows[positions[:, 1]]
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x, positions)
        mean = x.reshape(-1, c.pool**2, c.hidden_size).mean(1) * np.float32(c.hidden_size**0.5)
        if c.standardize:
            mean = (mean - widen(weights["bias"])) * widen(weights["scale"])
        normed = mean / np.sqrt(np.mean(mean.astype(np.float64) ** 2, -1, keepdims=True) + c.norm_epsilon)
        return np.asarray(normed.astype(np.float32) @ widen(weights["matrix"]).T)


_FFN = ("gate", "up", "down")


def names(config: VisionConfig) -> Names:
    """What the weights of a `VisionTower` are called in a checkpoint of all towers."""
    layer = "vision_tower.encoder.layers.{i}."
    products = {f"mixer.{x}": f"{layer}self_attn.{x}_proj" for x in "qkvo"} | {f"ffn.{x}": f"{layer}mlp.{x}_proj" for x in _FFN}
    bounds: dict[str, Source | str] = {}
    for path, product in products.items() if config.clipped else ():
        part, name = path.split(".")
        bounds |= {f"layers.{{i}}.{part}.bounds.{name}.{bound}": f"{product}.{bound}" for bound in BOUNDS}
    return bounds | {
        "patch": "vision_tower.patch_embedder.input_proj.weight",
        "positions": "vision_tower.patch_embedder.position_embedding_table",
        "matrix": "embed_vision.embedding_projection.weight",
        "bias": "vision_tower.std_bias",
        "scale": "vision_tower.std_scale",
        **{f"layers.{{i}}.{path}": f"{product}.linear.weight" for path, product in products.items()},
        **{f"layers.{{i}}.mixer.{x}_norm.weight": f"{layer}self_attn.{x}_norm.weight" for x in "qk"},
        "layers.{i}.mixer_norm.weight": f"{layer}input_layernorm.weight",
        "layers.{i}.mixer_norm_after.weight": f"{layer}post_attention_layernorm.weight",
        "layers.{i}.ffn_norm.weight": f"{layer}pre_feedforward_layernorm.weight",
        "layers.{i}.ffn_norm_after.weight": f"{layer}post_feedforward_layernorm.weight",
    }


class ImageTower(Part):
    """A picture as soft tokens, (tokens, text_size): `ImagePatches`, whose inputs and per-call values it takes, then a `VisionTower`."""

    def __init__(self, patches: ImagePatches, tower: VisionTower) -> None:
        made, read = (SIDE, patches.config.pool), (tower.config.patch, tower.config.pool)
        if made != read or patches.config.positions != tower.config.positions + 1:
            known = f"patches of {made[0]}, {made[1]} to a side, in a table of {patches.config.positions}"
            raise ParamError(f"ImageTower: {known}; legal: {read[0]}, {read[1]}, {tower.config.positions + 1}, as the tower has them.")
        self.patches, self.tower = patches, tower

    def body(
        self,
        picture: Any,
        *,
        height: iron.Scratchpad[np.int32],
        width: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        columns: iron.Scratchpad[np.int32],
        tokens: iron.Scratchpad[np.int32],
    ) -> Any:
        return self.tower(*self.patches(picture, height=height, width=width, rows=rows, columns=columns), tokens=tokens)

    def twin(self, weights: Weights, image: Any) -> np.ndarray:
        """float32 (tokens, text_size) of an image, uint8 (height, width, 3)."""
        return self.tower.twin(self.inside(weights, "tower"), *self.patches.twin({}, image))


def image_tower(config: TextConfig, patches: ImagePatchesConfig, run: Run) -> ImageTower:
    """What makes soft tokens of a picture for a model of this config, which has a vision tower."""
    assert config.vision is not None
    return ImageTower(ImagePatches(patches, run), VisionTower(config.vision, config.hidden_size, run))
