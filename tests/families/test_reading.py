"""What the families' files say of a model: every way to write it, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError, ParamError
from iron_gemma3.model import Gemma3
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.checkpoints import gguf_metadata, huggingface
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig, every_nth_is_full
from iron_lm.parts.rotary import inverse_frequencies
from iron_mistral.model import Mistral
from tests.lm import pth


def test_gemma_as_it_was_published_before_transformers_5(gemma3: Any) -> None:
    """rope_theta, rope_local_base_freq and sliding_window_pattern say what the nested objects do; tied unless denied."""
    old = dict(
        rope_parameters=None, rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 4.0},
        layer_types=None, sliding_window_pattern=3, tie_word_embeddings=None,
    )  # fmt: skip
    new, before = gemma3.load(), gemma3.load(gemma3.write(**old))
    assert before.config == new.config


def test_every_sixth_layer_sees_everything_where_nothing_says_which() -> None:
    """The architecture's own pattern."""
    assert every_nth_is_full(7, 6) == (True,) * 5 + (False, True)


def test_what_a_family_leaves_out_is_as_its_own_class_has_it(gemma3: Any) -> None:
    """And what was taken so is noted."""
    loaded = gemma3.load(gemma3.write(query_pre_attn_scalar=None, sliding_window=None))
    assert (loaded.config.score_scale, loaded.config.window) == (256**-0.5, 4096)
    assert loaded.assumed == {"query_pre_attn_scalar": 256, "sliding_window": 4096}


def test_linear_scaling_divides_every_frequency_of_the_layers_that_see_everything(gemma3: Any) -> None:
    """And none of those that slide, which have a base of their own."""
    c = gemma3.load().config
    plain = attrs.evolve(c.rotary, scaling=None)
    np.testing.assert_allclose(inverse_frequencies(c.rotary)[0] * 4, inverse_frequencies(plain)[0], rtol=1e-6)
    np.testing.assert_allclose(inverse_frequencies(c.local_rotary)[0], 1e4 ** (-np.arange(0, 16, 2) / 16), rtol=1e-6)


@pytest.mark.parametrize("name", ("qwen2", "qwen3"))
def test_qwen_slides_only_where_it_is_told_to(name: str, request: pytest.FixtureRequest) -> None:
    """A window that is not in use is none; one in use starts at max_window_layers where layer_types does not say."""
    qwen = request.getfixturevalue(name)
    idle = qwen.load(qwen.write(layer_types=None, sliding_window=64)).config
    assert not any(idle.sliding) and idle.window is None
    used = dict(layer_types=None, use_sliding_window=True, sliding_window=64)
    assert qwen.load(qwen.write(**used, max_window_layers=1)).config.sliding == (False, True)
    assert qwen.load(qwen.write(**used, max_window_layers=0)).config.sliding == (True, True)


def test_mistral_slides_unless_its_window_is_null(mistral: Any) -> None:
    """Every layer; a config.json that does not name a window has its class's, and a GGUF that does not has none."""
    assert mistral.load().config.sliding == (True, True)
    entries = {key: value for key, value in mistral.json.items() if key != "sliding_window"}
    absent = Mistral.from_huggingface(huggingface.entries_of(entries, Mistral.absent))
    null = Mistral.from_huggingface(huggingface.entries_of(entries | {"sliding_window": None}, Mistral.absent))
    assert (absent.window, absent.sliding) == (4096, (True, True))
    none = mistral.load(mistral.gguf(attention__sliding_window=None)).config
    for config in (null, none):
        assert (config.window, config.sliding) == (None, ())


def test_a_mistral_without_a_window_is_a_llama_in_a_gguf(mistral: Any) -> None:
    """Either family runs it, with equal bits; one with a window is none of Llama's, and a Llama's folder none of Mistral's."""
    windowless = mistral.gguf(attention__sliding_window=None)
    one, other = (loading.load(family, str(windowless), dtype="float32", max_seq_len=64) for family in (Mistral, Llama))
    np.testing.assert_array_equal(one.twin(mistral.ids[:20]), other.twin(mistral.ids[:20]))
    with pytest.raises(CheckpointError, match=r"llama\.attention\.sliding_window is 5; this model runs without it"):
        loading.load(Llama, str(mistral.gguf()))
    with pytest.raises(CheckpointError, match="model_type is 'llama'; this model runs mistral"):
        mistral.load(mistral.write(model_type="llama"))


@pytest.mark.parametrize("name", ["olmo2", "qwen3"])
def test_a_window_that_a_family_does_not_have_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    """An OLMo 3 is called an OLMo 2 in a GGUF; a window of 0 is none."""
    family = request.getfixturevalue(name)
    with pytest.raises(CheckpointError, match=rf"{name}\.attention\.sliding_window is 8; this model runs without it"):
        family.load(family.gguf(attention__sliding_window=8))
    assert family.load(family.gguf(attention__sliding_window=0)).config.sliding == ()


def test_norm_weights_are_whole_whatever_the_file(gemma3: Any) -> None:
    """A folder stores them less 1, and a bfloat16 folder's keep every digit of the sum; a GGUF's are taken as they are."""
    folder, gguf = gemma3.load(), gemma3.load(gemma3.gguf())
    stored = gemma3.weights["model.layers.1.self_attn.q_norm.weight"]
    for loaded in (folder, gguf):
        np.testing.assert_array_equal(loaded.weights["layers.1.mixer.q_norm.weight"], stored + np.float32(1))
    import ml_dtypes

    narrow = gemma3.load(gemma3.write(ml_dtypes.bfloat16), dtype=None)
    assert narrow.run.dtype == "bfloat16" and narrow.weights["layers.0.mixer.q"].dtype == ml_dtypes.bfloat16
    want = stored.astype(ml_dtypes.bfloat16).astype(np.float32) + np.float32(1)
    np.testing.assert_array_equal(narrow.weights["layers.1.mixer.q_norm.weight"], want)


def test_scores_of_the_27b_are_scaled_by_width_over_heads() -> None:
    """A GGUF does not say it; every other size divides by the root of its heads' size."""

    def read(layers: int) -> Any:
        said = dict(
            vocab_size=64, embedding_length=5376, block_count=layers, feed_forward_length=64, context_length=64,
            **{"attention.head_count": 32, "attention.key_length": 128, "attention.sliding_window": 1024},
            **{"attention.layer_norm_rms_epsilon": 1e-6},
        )  # fmt: skip
        entries = {f"gemma3.{key}": value for key, value in said.items()}
        return Gemma3.from_gguf(Entries(entries, "GGUF metadata", "gemma3.", {"rope.freq_base": 1e6}), {})

    assert read(62).score_scale == pytest.approx(168**-0.5)
    config = read(34)
    assert config.score_scale == 128**-0.5 and config.window == 1024 and config.local_rotary.base == 10000.0
    assert config.sliding == every_nth_is_full(34, 6)


def test_caps_of_scores_and_of_logits_are_read() -> None:
    """Of a config.json and of a GGUF, as Gemma 2's have them."""
    caps = dict(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    said = dict(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
        tie_word_embeddings=True,
    )  # fmt: skip
    gguf = dict(
        vocab_size=64, embedding_length=32, block_count=2, feed_forward_length=64, context_length=64,
        **{"attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-6},
    )  # fmt: skip
    entries = Entries({f"gemma2.{key}": value for key, value in (gguf | caps).items()}, "GGUF metadata", "gemma2.", {"rope.freq_base": 1e4})
    for found in (huggingface.decoder(huggingface.entries_of(said | caps)), gguf_metadata.decoder(entries, {})):
        config = DecoderConfig(**found)
        assert (config.score_cap, config.logit_cap) == (50.0, 30.0) and config.attention(1).cap == 50.0
    assert huggingface.decoder(huggingface.entries_of(said))["score_cap"] is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(sliding_window=1), "window=1 of layers that slide; legal: 2 or more"),
        (dict(attn_logit_softcapping=50.0), "attn_logit_softcapping is 50.0; this model runs without it"),
        (dict(use_bidirectional_attention="no"), "use_bidirectional_attention is 'no'; legal: true, false"),
        (dict(final_logit_softcapping=-1.0), "final_logit_softcapping is -1.0; legal: a positive number"),
        (dict(hidden_activation="gelu"), "hidden_activation is 'gelu'; this model runs"),
        (dict(hidden_activation="silu"), "hidden_activation is 'silu'; this model runs gelu_pytorch_tanh"),
        (dict(layer_types=["full_attention"]), "layer_types is .*for each of 3 layers"),
        (dict(layer_types=["full_attention", "chunked_attention", "full_attention"]), "layer_types is"),
        (dict(layer_types="sliding_attention"), "layer_types is sliding_attention"),
        (dict(rope_parameters={"full_attention": [1]}), "rope_parameters is a list"),
        (
            dict(rope_parameters={"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_type": "linear", "factor": 2.0}}),
            "slide is scaled",
        ),
        (dict(text_config={}), "among other parts .text_config."),
        (dict(num_hidden_layers=2, layer_types=["sliding_attention"] * 2), "is none this model has"),
        (dict(model_type="gemma2"), "architecture 'gemma2'. This model runs: gemma3, gemma3_text"),
    ],
)
def test_a_config_json_that_cannot_be_is_named(gemma3: Any, changes: dict[str, Any], says: str) -> None:
    """Each entry that is missing, of another kind, or asks for what the decoder does not have is one line that names it."""
    with pytest.raises(CheckpointError, match=says) as caught:
        gemma3.load(gemma3.write(**changes))
    assert "\n" not in str(caught.value)


def test_what_torch_saved_is_the_same_model(family: Any) -> None:
    """Its config and its weights, whatever a family makes of them, are those of the safetensors."""
    folder = family.write()
    saved = family.folder / f"{family.name}-saved"
    saved.mkdir()
    shutil.copy(folder / "config.json", saved)
    pth.save(saved / "pytorch_model.bin", family.weights)
    found, want = family.load(saved), family.load(folder)
    assert found.recognised.startswith("PyTorch folder") and found.config == want.config
    assert found.weights.keys() == want.weights.keys()
    for path, array in want.weights.items():
        np.testing.assert_array_equal(found.weights[path], array)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (dict(attention__sliding_window=None), "lacks gemma3.attention.sliding_window"),
        (dict(attn_logit_softcapping=50.0), "gemma3.attn_logit_softcapping is 50.0"),
        (dict(rope__scaling__type="yarn"), "gemma3.rope.scaling.type is 'yarn'"),
        (dict(rope__scaling__factor=None), "lacks gemma3.rope.scaling.factor"),
        (dict(attention__key_length=8), r"is \[64, 40\], not \[32, 40\]"),
    ],
)
def test_metadata_that_cannot_be_is_named(gemma3: Any, metadata: dict[str, Any], says: str) -> None:
    """The same of a GGUF."""
    with pytest.raises(CheckpointError, match=says) as caught:
        gemma3.load(gemma3.gguf(**metadata))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(activation="relu"), "activation='relu'; legal: gelu, gelu_tanh, silu"),
        (dict(sliding=(True,)), "sliding speaks of 1 layers; legal: num_layers=2"),
        (dict(sliding=(True, False)), "window=None of layers that slide"),
        (dict(logit_cap=0.0), "logit_cap=0.0; legal: a positive number"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    """Each names the field, its value and the rule."""
    sizes = dict(vocab_size=64, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64,
                 intermediate_size=64, max_positions=64)
    with pytest.raises(ParamError, match=says):
        DecoderConfig(**sizes, **changes)


def test_the_command_line_runs_it(family: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`iron-run FAMILY` continues ids on either kind of file, and passes its own accuracy gate."""
    name = family.family.name
    answers = []
    for path in (family.write(), family.gguf()):
        line = ["--checkpoint", str(path), "--backend", "host", "--dtype", "float32", "--max-seq-len", "64", "--json"]
        assert family.family.main([*line, "--prompt-len", "20", "--num-tokens", "6"]) == 0
        found = json.loads(capsys.readouterr().out)
        answers.append(found["ids"])
        assert found["model"] == name and len(found["prompt_ids"]) == 20 and len(found["ids"]) == 6
    assert answers[0] == answers[1]
    assert family.family.main([*line, "--check-accuracy"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True


def test_buffers_that_were_saved_with_the_weights_are_ignored(qwen3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older folders hold inverse frequencies, and numbers of positions in int64: the model is the same."""
    plain = qwen3.load()
    for name, buffer in {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32),
        "model.embeddings.position_ids": np.arange(8, dtype=np.int64),
    }.items():
        monkeypatch.setitem(qwen3.weights, name, buffer)
        loaded = qwen3.load(qwen3.write())
        assert all(np.array_equal(loaded.weights[path], array) for path, array in plain.weights.items())
        monkeypatch.delitem(qwen3.weights, name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(decoder_sparse_step=2), "decoder_sparse_step is 2; this model runs 1"),
        (dict(mlp_only_layers=[1]), "mlp_only_layers is a list; this model runs"),
        (dict(hidden_act="gelu_pytorch_tanh"), "hidden_act is 'gelu_pytorch_tanh'; this model runs silu, swish"),
        (dict(qkv_bias=False), "qkv_bias is False; this model runs True"),
        (dict(num_experts_per_tok=7), "config.json: num_experts_per_tok=7 of num_experts=6; legal: at most 6"),
        (dict(num_experts=5), r"mlp.gate.weight is \[6, 64\], not \[5, 64\]"),
        (dict(norm_topk_prob="no"), "norm_topk_prob is 'no'; legal: true, false"),
    ],
)
def test_a_mixture_that_cannot_be_is_named(qwen2_moe: Any, changes: dict[str, Any], says: str) -> None:
    """Layers without experts, other gates, and what its tensors are not."""
    with pytest.raises(CheckpointError, match=says):
        qwen2_moe.load(qwen2_moe.write(**changes))


#: By key, what no value of it may be, beside words and lists.
NUMBERS = (0, -1, 1.5, 1 << 40)
#: Keys whose numbers need not be whole.
MEASURES = {"query_pre_attn_scalar", "original_max_position_embeddings"}


def test_an_entry_that_cannot_be_is_named_as_the_file_has_it(family: Any) -> None:
    """Of every size in a config.json: none, less than none, a part, more than any model's, a word, a list. And one that is missing is
    named, or taken from the format; never by a name that the file does not have."""
    path, entries = family.write(), family.json
    asked = family.family.described(Checkpoint.open(path))[1].asked
    sizes = [key for key, value in entries.items() if type(value) is int and key in asked - {"max_window_layers"}]
    assert len(sizes) >= 6
    file = path / "config.json"

    def read(**changes: Any) -> str:
        found = {key: value for key, value in (entries | changes).items() if value is not None}
        file.write_text(json.dumps(found))
        try:
            loading.load(family.family, path, max_seq_len=16)
        except CheckpointError as error:
            return str(error)
        return ""

    for key in sizes:
        for value in (*NUMBERS, "8", [8], {"a": 8}, True):
            said = read(**{key: value})
            assert not said or (said.count("\n") == 0 and len(said) < 400 and ": " in said and "Config" not in said), (key, value, said)
            assert f"{key} is " in said or (key in MEASURES and type(value) in (int, float) and value > 0), (key, value, said)
        missing = read(**{key: None})
        assert "\n" not in missing and "Config" not in missing and len(missing) < 700, (key, missing)
    if "num_key_value_heads" in sizes:
        heads = entries["num_attention_heads"]
        said = read(num_key_value_heads=heads + 1)
        assert said.endswith(f"config.json: num_key_value_heads={heads + 1} does not divide num_attention_heads={heads}."), said
    if "linear_num_key_heads" in sizes:
        said = read(linear_num_key_heads=3, linear_num_value_heads=4)
        assert said.endswith("linear_num_key_heads=3 does not divide linear_num_value_heads=4. Legal: a divisor of it."), said



def test_a_mixture_does_without_the_size_of_a_dense_layer(qwen2_moe: Any, qwen3_moe: Any) -> None:
    """Its experts have sizes of their own."""
    for family in (qwen2_moe, qwen3_moe):
        want, loaded = family.load(), family.load(family.write(intermediate_size=None))
        assert loaded.config == attrs.evolve(want.config, intermediate_size=want.config.expert_size)


def test_experts_one_by_one_are_those_that_are_stacked(qwen2_moe: Any, qwen3_moe: Any) -> None:
    """A folder as it is published has each expert's matrices as tensors of their own."""
    for family in (qwen2_moe, qwen3_moe):
        want = family.load()
        stacked = {key: value for key, value in family.weights.items() if ".experts." in key}
        alone = {key: value for key, value in family.weights.items() if key not in stacked}
        for key, value in stacked.items():
            layer = key.partition(".experts.")[0]
            for n, matrix in enumerate(value):
                parts = zip(("gate", "up"), np.split(matrix, 2), strict=True) if "gate_up" in key else [("down", matrix)]
                alone |= {f"{layer}.experts.{n}.{name}_proj.weight": part for name, part in parts}
        other = object.__new__(type(family))
        vars(other).update(vars(family), weights=alone)
        found = other.load()
        for path, array in want.weights.items():
            np.testing.assert_array_equal(found.weights[path], array)
        with pytest.raises(CheckpointError, match=r"layers.1.mlp.experts.2.up_proj.weight \[.*\] is missing"):
            alone.pop("model.layers.1.mlp.experts.2.up_proj.weight")
            other.load()


def test_what_says_how_experts_are_weighted_matters(qwen2_moe: Any, qwen3_moe: Any) -> None:
    """Raw shares and those that add up to 1 give other logits."""
    for family in (qwen2_moe, qwen3_moe):
        loaded = family.load()
        for change in (dict(renormalise=not loaded.config.renormalise), dict(chosen=1)):
            other = attrs.evolve(loaded, config=attrs.evolve(loaded.config, **change)).twin(family.ids[:20])[-1]
            assert np.abs(other - family.logits[19]).max() > 1e-3


@pytest.mark.parametrize("name", ["qwen2_moe", "qwen3_moe", "qwen3_next"])
def test_a_gguf_may_say_how_experts_are_weighted(name: str, request: pytest.FixtureRequest) -> None:
    """It goes before what its architecture has; gates that are no softmax, and factors, are refused."""
    family = request.getfixturevalue(name)
    usual = family.load(family.gguf()).config.renormalise
    assert usual == (name != "qwen2_moe")
    for said in (True, False):
        assert family.load(family.gguf(expert_weights_norm=said, expert_gating_func=1)).config.renormalise == said
    for entries, says in (
        (dict(expert_gating_func=2), r"expert_gating_func is 2; this model runs 1\."),
        (dict(expert_weights_scale=2.5), r"expert_weights_scale is 2\.5; this model runs 1\.0\."),
        (dict(expert_weights_norm=1), r"expert_weights_norm is 1; legal: true, false\."),
    ):
        with pytest.raises(CheckpointError, match=says):
            family.load(family.gguf(**entries))
