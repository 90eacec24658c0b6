"""Every part alone against the module of transformers of the same name, live. Needs torch."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_gemma3.model import Gemma3
from iron_llama.model import Llama
from iron_lm import testing
from iron_lm.checkpoints import huggingface, names
from iron_lm.checkpoints.sources import Interleaved, PlusOne, Source, source_of
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.axial_rotary import AxialRotary, AxialRotaryConfig
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.part import Part
from iron_lm.parts.rotary import Rotary, angles, inverse_frequencies
from iron_lm.run import Run
from iron_olmo2.model import Olmo2
from iron_qwen2.model import Qwen2
from iron_qwen3.model import Qwen3

torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")

RUN = Run(64, 8, dtype="float32", cache_dtype="float32")
#: Tokens of a sequence, and of them the prompt's.
ROWS, PROMPT = 40, 29
SIZES: dict[str, Any] = dict(
    vocab_size=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=256,
)  # fmt: skip


def rope(kind: str, **numbers: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **numbers}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
#: Name -> (family, transformers' config).
MODELS: dict[str, tuple[type[Family], Callable[[], Any]]] = {
    "Llama": (Llama, lambda: transformers.LlamaConfig(**SIZES, **LLAMA3)),
    "Qwen3": (Qwen3, lambda: transformers.Qwen3Config(**SIZES, **rope("default"))),
    "Qwen2": (Qwen2, lambda: transformers.Qwen2Config(**SIZES | dict(head_dim=8), **rope("default"))),
    "Gemma3": (Gemma3, lambda: transformers.Gemma3TextConfig(
        **SIZES, query_pre_attn_scalar=20, sliding_window=7, layer_types=["sliding_attention", "full_attention"],
    )),
    "Olmo2": (Olmo2, lambda: transformers.Olmo2Config(**SIZES | dict(head_dim=8), **rope("default"))),
}  # fmt: skip


def seen(window: int = ROWS) -> Any:
    """What is added to scores: 0 where a query sees a key, else a large negative number."""
    back = torch.arange(ROWS)[:, None] - torch.arange(ROWS)[None]
    return torch.where((back >= 0) & (back < window), 0.0, torch.finfo(torch.float32).min)[None, None]


def turns(module: Any, rows: int = ROWS, **kind: Any) -> Any:
    """Cosine and sine of each position."""
    return module(torch.zeros(1, rows, 1), torch.arange(rows)[None], **kind)


def draw(module: Any) -> None:
    """Every number of a module anew; norms' weights away from their start, which hides mistakes."""
    for p in module.parameters():
        p.copy_(p + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)


class Stored:
    """Their tensors, read as a checkpoint's are."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = {key: tensor.numpy() for key, tensor in state.items()}

    def tensor(self, name: str, shape: tuple[int, ...]) -> Any:
        """As a checkpoint's reading gives one to a source."""
        assert self.state[name].shape == shape, name
        return self.state[name]


class Theirs(Stored):
    """A model of transformers with every number drawn, and its config read as ours."""

    def __init__(self, name: str) -> None:
        self.family, config = MODELS[name]
        torch.manual_seed(7)
        self.config = config()
        self.config._attn_implementation = "eager"
        self.model = transformers.AutoModel.from_config(self.config, dtype=torch.float32).eval()
        draw(self.model)
        super().__init__({f"model.{key}": tensor for key, tensor in self.model.state_dict().items()})
        entries = huggingface.entries_of(self.config.to_dict() | {"tie_word_embeddings": True}, self.family.absent)
        self.ours = self.family.from_huggingface(entries)

    def filled(self, path: str) -> Part:
        """The part of ours at this path, with the weights from where the family's names say they are."""
        held = dict(self.family.build(self.ours, RUN).walk())[path]
        found = self.family.names("safetensors", self.ours)
        return held.fill({at: source_of(found, f"{path}.{at}").read(self, shape) for at, shape in held.tensors().items()})

    def seen(self, layer: int) -> Any:
        kinds = getattr(self.config, "layer_types", None) or ["full_attention"] * 2
        return seen(self.config.sliding_window if kinds[layer] == "sliding_attention" else ROWS)

    def turns(self, layer: int) -> Any:
        return turns(self.model.rotary_emb, **{} if self.family is not Gemma3 else {"layer_type": self.config.layer_types[layer]})


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    transformers.logging.set_verbosity_error()  # it warns of numbers that no published model has
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=list(MODELS))
def theirs(request: pytest.FixtureRequest) -> Theirs:
    with torch.no_grad():
        return Theirs(request.param)


@pytest.fixture
def x() -> Any:
    return torch.randn(1, ROWS, SIZES["hidden_size"], generator=torch.Generator().manual_seed(3))


def near(part: Part, x: Any, want: Any) -> None:
    """Ours over a prompt's chunks and then steps is within 1e-4 of theirs over all rows at once."""
    got = testing.alone(part, RUN, x[0].numpy(), PROMPT, backend="host")
    assert np.abs(got - want[0].numpy()).max() < 1e-4


def test_norms(theirs: Theirs, x: Any) -> None:
    """LlamaRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, Olmo2RMSNorm; Gemma3RMSNorm, whose weights are stored less one."""
    module = theirs.model.norm
    assert type(module).__name__.endswith("RMSNorm")
    near(theirs.filled("norm"), 3 * x, module(3 * x))


@pytest.mark.parametrize("layer", (0, 1))
def test_attentions(theirs: Theirs, layer: int, x: Any) -> None:
    """LlamaAttention; Qwen2Attention, with biases; Qwen3Attention, with norms; Olmo2Attention, with norms of all heads together;
    Gemma3Attention, with a window and without."""
    module = theirs.model.layers[layer].self_attn
    want = module(x, position_embeddings=theirs.turns(layer), attention_mask=theirs.seen(layer))[0]
    near(theirs.filled(f"layers.{layer}.mixer"), x, want)


def test_feed_forwards(theirs: Theirs, x: Any) -> None:
    """LlamaMLP, Qwen2MLP, Qwen3MLP, Olmo2MLP; Gemma3MLP, with its GELU."""
    near(theirs.filled("layers.1.ffn"), x, theirs.model.layers[1].mlp(x))


@pytest.mark.parametrize("layer", (0, 1))
def test_layers(theirs: Theirs, layer: int, x: Any) -> None:
    """LlamaDecoderLayer, Qwen2DecoderLayer, Qwen3DecoderLayer; Olmo2DecoderLayer, with norms after; Gemma3DecoderLayer, with four."""
    module = theirs.model.layers[layer]
    where = dict(position_ids=torch.arange(ROWS)[None], position_embeddings=theirs.turns(layer))
    near(theirs.filled(f"layers.{layer}"), x, module(x, attention_mask=theirs.seen(layer), **where))


def test_embeddings(theirs: Theirs) -> None:
    """Embedding; Gemma3TextScaledWordEmbedding."""
    ids = torch.arange(ROWS)[None]
    near(theirs.filled("embedding"), ids.int(), theirs.model.embed_tokens(ids))


GLM: dict[str, Any] = dict(attention_bias=True, pad_token_id=0, eos_token_id=0)
#: Module -> (transformers' config, fields of ours): the first half of a head turns, or a quarter.
PARTIAL: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "phi.PhiAttention": (lambda: transformers.PhiConfig(
        **SIZES | dict(head_dim=8), **rope("default", partial_rotary_factor=0.5),
    ), dict(bias=True, output_bias=True)),
    "glm4_moe.Glm4MoeAttention": (lambda: transformers.Glm4MoeConfig(
        **SIZES, **GLM, **rope("default", partial_rotary_factor=0.25), use_qk_norm=True, rms_norm_eps=1e-5,
    ), dict(bias=True, q_norm=NormConfig(16), k_norm=NormConfig(16))),
    "glm.GlmAttention": (lambda: transformers.GlmConfig(**SIZES, **GLM, **rope("default", partial_rotary_factor=0.5)), dict(bias=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTIAL)
def test_attentions_in_which_a_part_of_a_head_turns(name: str, x: Any) -> None:
    """Of halves, with biases, or with norms; of neighbours."""
    make, fields = PARTIAL[name]
    config = make()
    config._attn_implementation = "eager"
    family, _, kind = name.partition(".")
    models = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    module = getattr(models, kind)(config, layer_idx=0).eval()
    torch.manual_seed(5)
    draw(module)
    rotary = huggingface.rotary(huggingface.entries_of(config.to_dict()), module.head_dim)
    assert rotary.turning < module.head_dim
    rotary = attrs.evolve(rotary, neighbours=family == "glm")
    part = Attention(AttentionConfig(48, 6, 2, module.head_dim, **fields), RUN, Rotary(rotary, RUN))
    state = {key.replace("dense", "o_proj"): tensor.numpy() for key, tensor in module.state_dict().items()}
    named = {at: names.HUGGINGFACE[f"layers.{{i}}.mixer.{at}"] for at in part.tensors()}
    weights = {at: state[name.removeprefix("model.layers.{i}.self_attn.")] for at, name in named.items()}
    part.fill(weights)
    where = turns(getattr(models, kind.replace("Attention", "RotaryEmbedding"))(config))
    want = module(x, position_embeddings=where, attention_mask=seen())[0]
    near(part, x, want)
    assert np.abs(part.twin(weights, x[0].numpy(), np.arange(ROWS)) - want[0].numpy()).max() < 1e-4


@pytest.mark.parametrize("layer", (0, 1))
def test_attentions_whose_scores_are_capped(layer: int, x: Any) -> None:
    """Gemma2Attention, with a window and without, as its config.json describes it; scores reach far beyond the cap."""
    config = transformers.Gemma2Config(**SIZES, query_pre_attn_scalar=20, sliding_window=7, attn_logit_softcapping=0.6)
    config._attn_implementation = "eager"
    models = transformers.models.gemma2.modeling_gemma2
    module = models.Gemma2Attention(config, layer_idx=layer).eval()
    torch.manual_seed(5)
    draw(module)
    found = huggingface.decoder(huggingface.entries_of(config.to_dict() | {"tie_word_embeddings": True}))
    ours = DecoderConfig(**found)
    part = Attention(ours.attention(layer), RUN, Rotary(found["rotary"], RUN))
    assert ours.slides(layer) == (layer == 0) and part.config.cap == 0.6
    part.fill({at: module.state_dict()[f"{at}_proj.weight"].numpy() for at in "qkvo"})
    want = module(3 * x, turns(models.Gemma2RotaryEmbedding(config)), attention_mask=seen(7 if layer == 0 else ROWS))[0]
    near(part, 3 * x, want)


def test_attentions_with_a_gate(x: Any) -> None:
    """Qwen3NextAttention: each head's gates stand below its queries in one matrix, norms' weights are stored less one."""
    config = transformers.Qwen3NextConfig(**SIZES, **rope("default", partial_rotary_factor=0.5), layer_types=["full_attention"] * 2)
    config._attn_implementation = "eager"
    models = transformers.models.qwen3_next.modeling_qwen3_next
    module = models.Qwen3NextAttention(config, layer_idx=0).eval()
    torch.manual_seed(5)
    draw(module)
    norm, rotary = NormConfig(16, config.rms_norm_eps), huggingface.rotary(huggingface.entries_of(config.to_dict()), 16)
    part = Attention(AttentionConfig(48, 6, 2, 16, q_norm=norm, k_norm=norm, gate=True), RUN, Rotary(rotary, RUN))
    found: dict[str, Source | str] = {f"{name}_norm.weight": PlusOne(f"{name}_norm.weight") for name in "qk"}
    found |= {name: f"{name}_proj.weight" for name in "kvo"}
    found |= {name: Interleaved("q_proj.weight", (16, 16), number) for number, name in enumerate(("q", "gate"))}
    stored = Stored(module.state_dict())
    part.fill({at: source_of(found, at).read(stored, shape) for at, shape in part.tensors().items()})
    want = module(x, turns(models.Qwen3NextRotaryEmbedding(config)), attention_mask=seen())[0]
    near(part, x, want)


YARN: dict[str, Any] = dict(factor=4.0, original_max_position_embeddings=64)
ROTARIES = {
    "default": rope("default"),
    "linear": rope("linear", factor=8.0),
    "llama3": LLAMA3,
    "yarn": rope("yarn", **YARN),
    "yarn, factor 32": rope("yarn", **YARN | dict(factor=32.0)),
    "yarn, attention_factor": rope("yarn", **YARN, attention_factor=1.7),
    "yarn, mscale": rope("yarn", **YARN, mscale=0.7, mscale_all_dim=1.3),
    "yarn, not truncated": rope("yarn", **YARN, truncate=False),
    "proportional": rope("proportional", partial_rotary_factor=0.25),
    "yarn, its own turns": rope("yarn", **YARN, beta_fast=16.0, beta_slow=2.0),
}


@pytest.mark.parametrize("kind", ROTARIES)
def test_rotary_embeddings(kind: str) -> None:
    """LlamaRotaryEmbedding: cosine and sine of 300 positions, within 1e-4."""
    config = transformers.LlamaConfig(**SIZES, **ROTARIES[kind])
    ours = huggingface.rotary(huggingface.entries_of(config.to_dict()), 16)
    module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    cos, sin = (t[0, :, :8].numpy() for t in turns(module, 300))
    table = angles(ours, np.arange(300))
    assert np.abs(table[:, 0::2] - cos).max() < 1e-4 and np.abs(table[:, 1::2] - sin).max() < 1e-4


@pytest.mark.parametrize("rows", (60, 200))
def test_longrope(rows: int) -> None:
    """Phi3RotaryEmbedding: in a context that ends with the sequence, shorter than the original one or longer."""
    long, short = ([1 + n * i for i in range(4)] for n in (0.5, 0.1))
    parameters = rope("longrope", short_factor=short, long_factor=long, partial_rotary_factor=0.5)
    config = transformers.Phi3Config(
        **SIZES | dict(hidden_size=96, max_position_embeddings=512), **parameters, original_max_position_embeddings=64, pad_token_id=0
    )
    ours = huggingface.rotary(huggingface.entries_of(config.to_dict()), 16)
    cos, sin = (t[0, :, :4].numpy() for t in turns(transformers.models.phi3.modeling_phi3.Phi3RotaryEmbedding(config), rows))
    table = angles(ours, np.arange(rows), rows)
    assert np.abs(table[:, 0:8:2] - cos).max() < 1e-4 and np.abs(table[:, 1:8:2] - sin).max() < 1e-4
    np.testing.assert_array_equal(table[:, 8:], np.tile(np.array([1, 0], np.float32), (rows, 4)))


def test_angles_of_columns_and_rows() -> None:
    """Gemma4VisionRotaryEmbedding and apply_multidimensional_rope: of heads of 24 numbers, at columns and rows of a wide image."""
    models = transformers.models.gemma4.modeling_gemma4
    config = transformers.Gemma4VisionConfig(hidden_size=48, num_attention_heads=2, head_dim=24)
    positions = torch.stack(torch.meshgrid(torch.arange(20), torch.arange(9), indexing="xy"), -1).reshape(1, -1, 2)
    q = torch.randn(1, positions.shape[1], 2, 24, generator=torch.Generator().manual_seed(3))
    cos, sin = models.Gemma4VisionRotaryEmbedding(config)(q, positions)
    want = models.apply_multidimensional_rope(q, cos, sin, positions)
    base = config.rope_parameters["rope_theta"]
    rotary = AxialRotary(AxialRotaryConfig(24, config.position_embedding_size, base), RUN)
    assert base == 100 and np.abs(rotary.twin({}, q[0].numpy(), positions[0].numpy()) - want[0].numpy()).max() < 1e-5


def same_frequencies(head_dim: int, base: float, **given: Any) -> None:
    """Of transformers' modeling_rope_utils and ours, to 1e-5 of each, and the factor of cosine and sine."""
    parameters = {"rope_theta": base, **given}
    config = transformers.LlamaConfig(**SIZES | dict(head_dim=head_dim), rope_parameters=parameters)
    want, scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu")
    got, factor = inverse_frequencies(huggingface.rotary(huggingface.entries_of(config.to_dict()), head_dim))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5)
    assert math.isclose(factor, scale, rel_tol=1e-6)


@settings(max_examples=150)
@given(
    head_dim=st.integers(1, 32).map(lambda n: 8 * n),
    base=st.sampled_from((1e4, 5e5, 1e6)),
    factor=st.floats(1, 64),
    original=st.integers(64, 65536),
    more=st.fixed_dictionaries({}, optional=dict(
        attention_factor=st.floats(0.5, 2), mscale=st.floats(0.1, 2), mscale_all_dim=st.floats(0.1, 2), truncate=st.booleans(),
        beta_fast=st.floats(8, 64), beta_slow=st.floats(0.5, 4), partial_rotary_factor=st.sampled_from((0.25, 0.5, 1.0)),
    )),
)  # fmt: skip
def test_yarn_of_any_numbers(head_dim: int, base: float, factor: float, original: int, more: dict[str, Any]) -> None:
    """Wherever the pairs lie where interpolation begins and ends, the first of them before the last."""
    same_frequencies(head_dim, base, rope_type="yarn", factor=factor, original_max_position_embeddings=original, **more)


@settings(max_examples=50)
@given(
    head_dim=st.integers(1, 32).map(lambda n: 8 * n),
    share=st.sampled_from((0.25, 0.5, 1.0)),
    base=st.sampled_from((100.0, 1e4, 5e5, 1e6)),
    factor=st.floats(1, 64),
    original=st.integers(16, 65536),
    low=st.floats(0.5, 2),
    high=st.floats(2.5, 8),
)
def test_the_others_of_any_numbers(
    head_dim: int, share: float, base: float, factor: float, original: int, low: float, high: float
) -> None:
    """Wherever the wavelengths lie, of a whole head and of a part."""
    for kind in ("linear", "proportional"):
        same_frequencies(head_dim, base, rope_type=kind, factor=factor, partial_rotary_factor=share)
    llama3 = dict(factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=original)
    same_frequencies(head_dim, base, rope_type="llama3", **llama3, partial_rotary_factor=share)
