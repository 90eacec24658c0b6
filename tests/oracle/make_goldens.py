"""Make the numbers stored under tests/data from programs that are not Iron.

    python make_goldens.py transformers GGUF   # ids and logits of SmolLM2 in float32, and the tiny Llama
    python make_goldens.py families [NAME...]  # a tiny model of each family, or of these
    python make_goldens.py torch               # small files of torch.save: readable, and not
    python make_goldens.py resize              # pictures, and what torch's antialiased bicubic makes of them
    python make_goldens.py blocks              # convolutions, log-mel frames, digests of images' patches
    python make_goldens.py vision              # soft tokens of a tiny vision tower
    python make_goldens.py peft LLAMA_CPP      # adapters of the tiny Llama, in GGUF too by that source tree's converter, and its logits
    python make_goldens.py llama.cpp GGUF      # how far llama.cpp's default settings are from float32

The first needs torch, transformers, gguf and accelerate, `peft` that package too, the last llama-cpp-python. Run them by
hand when a stored file must change; the tests only read what is stored.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent.parent / "data"
SHIPPED = Path(__file__).parents[2] / "iron_models/lm/src/iron_lm/data"  # what --check-accuracy reads
PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"
POSITIONS = 256
STRIDE = 61  # every 61st logit of each greedy step is stored


def passage(tokenizer) -> list[int]:
    """The stored text's first ids: one more than the positions judged."""
    return tokenizer.encode((SHIPPED / "passage.txt").read_text())[: POSITIONS + 1]


def load(gguf: Path):
    """SmolLM2, dequantised to float32, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    return model.eval(), tokenizer


def forced_logits(model, ids: list[int]) -> np.ndarray:
    import torch

    return model(torch.tensor([ids[:POSITIONS]])).logits[0].numpy()


def smollm2(gguf: Path) -> None:
    import torch

    model, tokenizer = load(gguf)
    ids, steps = list(PROMPT), []
    for _ in range(48):
        logits = model(torch.tensor([ids])).logits[0, -1].numpy()
        steps.append(logits)
        ids.append(int(logits.argmax()))
    text = passage(tokenizer)
    forced = forced_logits(model, text)
    np.savez_compressed(
        DATA / "smollm2_float32.npz",
        prompt=np.array(PROMPT, np.int32),
        greedy=np.array(ids[len(PROMPT) :], np.int32),
        stride=STRIDE,
        logits=np.stack(steps)[:, ::STRIDE].astype(np.float32),
        first=steps[0].astype(np.float32),
        passage=np.array(text, np.int32),
        passage_top1=forced.argmax(-1).astype(np.int32),
    )
    print("greedy", ids[len(PROMPT) :][:10])


def tiny_llama() -> None:
    """llama3 RoPE scaling, 4 query heads per KV head, an untied head, norm weights that are not ones."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=False,
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for name, p in model.named_parameters():
        p.copy_(1 + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)
        assert p.isfinite().all(), name
    folder = DATA / "tiny_llama"
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(json.loads(config.to_json_string()), indent=1, sort_keys=True))
    ids = torch.randint(0, 256, (1, 96))
    prefill = model(ids).logits[0].numpy()
    out = model(ids[:, :1], use_cache=True)
    steps, cache = [out.logits[0, -1].numpy()], out.cache if "cache" in out else out.past_key_values
    for t in range(1, ids.shape[1]):
        key = "cache" if "cache" in out else "past_key_values"
        out = model(ids[:, t : t + 1], use_cache=True, **{key: cache})
        cache = out[key]
        steps.append(out.logits[0, -1].numpy())
    print("prefill against token by token:", np.abs(prefill - np.stack(steps)).max())
    np.savez_compressed(folder / "outputs.npz", ids=ids[0].numpy().astype(np.int32), logits=prefill)


def tiny_qwen3():
    """Heads wider than hidden / heads, two query heads per KV head, a tied head."""
    import transformers

    return transformers.Qwen3Config(
        vocab_size=96,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )


def tiny_gemma3():
    """A window of 5 on two of three layers, two rotary bases, one of them scaled, scores scaled by no head's size, a cap."""
    import transformers

    return transformers.Gemma3TextConfig(
        vocab_size=96,
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        query_pre_attn_scalar=24,
        sliding_window=5,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        final_logit_softcapping=3.0,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    )


def tiny_qwen2():
    """Two query heads per KV head, a tied head."""
    import transformers

    return transformers.Qwen2Config(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )


def tiny_mistral():
    """A window of 5 on each of two layers, heads wider than hidden / heads, a head of its own."""
    import transformers

    return transformers.MistralConfig(
        vocab_size=96,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        sliding_window=5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )


def tiny_olmo2():
    """Fewer keys than queries, so their norms are of two sizes; a head of its own."""
    import transformers

    return transformers.Olmo2Config(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        eos_token_id=None,
        pad_token_id=None,
    )


def tiny_phi3():
    """A window of 40 on every layer, two query heads per KV head, an untied head, factors for contexts of more than 64 tokens."""
    import transformers

    return transformers.Phi3Config(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        original_max_position_embeddings=64,
        sliding_window=40,
        pad_token_id=0,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1 + i / 16 for i in range(16)],
            "long_factor": [1 + i / 2 for i in range(16)],
            "attention_factor": 1.25,
            "original_max_position_embeddings": 64,
        },
    )


def tiny_gpt2():
    """A feed-forward that is not four times as wide, 130 positions, which are not whole chunks."""
    import transformers

    return transformers.GPT2Config(vocab_size=96, n_embd=48, n_inner=80, n_layer=2, n_head=4, n_positions=130, eos_token_id=0)


#: Of layers that mix by the gated delta rule: two value heads for a key head.
LINEAR = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=32, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, vocab_size=96, hidden_size=48, max_position_embeddings=4096,
)  # fmt: skip
#: A quarter of each head turns.
QUARTER = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}


def tiny_qwen3_5():
    """Three layers of the gated delta rule and one that attends, a dense feed-forward, a head of its own."""
    import transformers

    return transformers.Qwen3_5TextConfig(**LINEAR, intermediate_size=80, num_hidden_layers=4, rope_parameters=QUARTER)


def tiny_qwen3_5_moe():
    """Five experts of which two are chosen, and one for all; every second layer attends."""
    import transformers

    kinds = ["linear_attention", "full_attention"]
    return transformers.Qwen3_5MoeTextConfig(
        **LINEAR, num_hidden_layers=2, layer_types=kinds, rope_parameters=QUARTER, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=32, shared_expert_intermediate_size=64,
    )  # fmt: skip


def tiny_qwen3_next():
    """The same with projections that lie by key head."""
    import transformers

    kinds = ["linear_attention", "full_attention"]
    return transformers.Qwen3NextConfig(
        **LINEAR, num_hidden_layers=2, layer_types=kinds, rope_parameters=QUARTER, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=32, shared_expert_intermediate_size=64,
    )  # fmt: skip


def tiny_qwen2_moe():
    """Raw shares of six experts, two chosen, beside a shared one; every head has keys of its own."""
    import transformers

    return transformers.Qwen2MoeConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        num_experts=6,
        num_experts_per_tok=2,
        norm_topk_prob=False,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )


def tiny_qwen3_moe():
    """Shares that add up to 1 of eight experts, three chosen; heads wider than hidden / heads."""
    import transformers

    return transformers.Qwen3MoeConfig(
        vocab_size=96,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        moe_intermediate_size=40,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )


#: tests/data/tiny_NAME.npz: transformers' config of it.
FAMILIES = {
    "qwen2": tiny_qwen2, "qwen3": tiny_qwen3, "mistral": tiny_mistral, "gemma3": tiny_gemma3, "olmo2": tiny_olmo2,
    "phi3": tiny_phi3, "gpt2": tiny_gpt2, "qwen3_5": tiny_qwen3_5, "qwen3_5_moe": tiny_qwen3_5_moe, "qwen3_next": tiny_qwen3_next,
    "qwen2_moe": tiny_qwen2_moe, "qwen3_moe": tiny_qwen3_moe,
}  # fmt: skip


def tiny_family(name: str) -> None:
    """One file: config.json, weights as float16 (which they are exactly), ids, and the logits float32 gives."""
    import torch
    import transformers

    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    config = FAMILIES[name]()
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for p in model.parameters():
        drawn = p + 0.2 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[-1] ** 0.5
        p.copy_(drawn.half().float())
    ids = torch.randint(0, config.vocab_size, (1, 80))
    stored = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight" or not config.tie_word_embeddings}
    weights = {f"w/{key}": value.numpy().astype(np.float16) for key, value in stored.items()}
    logits = model(ids).logits[0].numpy()
    print(name, "logits", logits.std(), "parameters", sum(p.numel() for p in model.parameters()))
    described = json.dumps(json.loads(config.to_json_string()), sort_keys=True)
    np.savez_compressed(DATA / f"tiny_{name}.npz", config=described, ids=ids[0].numpy().astype(np.int32), logits=logits, **weights)


def torch_files() -> None:
    """State dicts and their numbers: plain, odd, a module's with a tied head and buffers. A whole module, and the old format,
    which are refused."""
    import torch

    torch.manual_seed(0)
    out = DATA / "torch"
    out.mkdir(exist_ok=True)
    linear = torch.nn.Linear(4, 4)
    state = linear.state_dict()
    torch.save(state, out / "linear.pth")
    (out / "linear.json").write_text(json.dumps({name: values.tolist() for name, values in state.items()}))
    odd = {"a": torch.nn.Parameter(torch.ones(3)), "h": torch.ones(5).half(), "t": torch.arange(12.0).reshape(3, 4).t()}
    torch.save(odd, out / "odd.pth")
    torch.save(linear, out / "module.pth")
    torch.save(state, out / "legacy.pth", _use_new_zipfile_serialization=False)
    tied = torch.nn.Module()
    tied.embed, tied.head = torch.nn.Embedding(6, 4, dtype=torch.bfloat16), torch.nn.Linear(4, 6, bias=False)
    tied.head.weight = tied.embed.weight
    tied.conv = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).t().half())
    buffers = {
        "position_ids": torch.arange(6)[None],
        "mask": torch.ones(4, 4, dtype=torch.bool).tril(),
        "masked_bias": torch.tensor(-1e4),
        "inv_freq": 1 / 1e4 ** (torch.arange(0, 4, 2) / 4),
        "float64": torch.ones(2, dtype=torch.float64),
        "columns": torch.arange(12.0).reshape(3, 4)[:, 1:3],
        "twice": torch.ones(1, 4).expand(3, 4),
        "empty": torch.ones(0, 4),
        "codes": torch.arange(4).to(torch.uint16),
        "float8": torch.ones(4).to(torch.float8_e4m3fn),
    }
    for name, values in buffers.items():
        tied.register_buffer(name, values)
    state = tied.state_dict()
    torch.save(state, out / "tied.bin")
    (out / "tied.json").write_text(json.dumps({name: values.float().tolist() for name, values in state.items()}))


#: (height, width) of a picture and of what is made of it: larger, smaller, one way each, odd, as it is, of and to one pixel.
RESIZES = (
    ((37, 53), (48, 32)), ((9, 7), (5, 11)), ((100, 3), (1, 16)), ((31, 150), (64, 16)), ((24, 24), (24, 24)), ((24, 17), (24, 40)),
    ((1, 1), (16, 16)), ((60, 60), (1, 1)), ((11, 13), (80, 112)),
)  # fmt: skip


def resizes() -> None:
    """Noise, in half of the rows black and white, which overshoots."""
    import torch

    rng = np.random.default_rng(5)
    stored = {}
    for at, ((height, width), size) in enumerate(RESIZES):
        picture = rng.integers(0, 256, (height, width, 3))
        picture[::2] = picture[::2] // 128 * 255
        planes = torch.from_numpy(picture.astype(np.uint8)).permute(2, 0, 1)[None]
        made = torch.nn.functional.interpolate(planes, size=size, mode="bicubic", antialias=True)[0].permute(1, 2, 0)
        stored |= {f"{at}/picture": picture.astype(np.uint8), f"{at}/resized": made.numpy()}
    np.savez_compressed(DATA / "resized.npz", **stored)


def blocks() -> None:
    """torch's convolutions and pooling of small planes; transformers' log-mel frames of a few clips; of images, digests of torch's
    patches and how many tokens transformers makes of them."""
    import torch
    from torch.nn import functional as F

    from tests.clips import clip
    from tests.oracle.peers import patches_of, spectrogram, tokens_of
    from tests.resizes import IMAGES, digest, image_of

    torch.manual_seed(5)
    stored = {}
    x, kernel, bias = torch.randn(7, 10, 3), torch.randn(5, 3, 3, 3), torch.randn(5)
    y = F.conv2d(x.permute(2, 0, 1)[None], kernel, bias, (2, 1), (1, 1))[0].permute(1, 2, 0)
    stored["conv2d"] = dict(x=x, kernel=kernel, bias=bias, y=y)
    x, kernel = torch.randn(13, 3), torch.randn(5, 3, 4)
    stored["conv1d"] = dict(x=x, kernel=kernel, bias=bias, y=F.conv1d(x.T[None], kernel, bias, 2, 2)[0].T)
    x = torch.randn(7, 10, 3)
    stored["max_pool2d"] = dict(x=x, y=F.max_pool2d(x.permute(2, 0, 1)[None], (3, 2), (2, 2), (1, 1))[0].permute(1, 2, 0))
    stored["log_mel"] = {name: spectrogram(clip(name)) for name in ("odd", "short", "speech")}
    stored["patches"] = dict(
        digests=np.array([digest(patches_of(image_of(h, w), budget)) for h, w, budget in IMAGES]),
        tokens=np.array([tokens_of(h, w, budget) for h, w, budget in IMAGES]),
    )
    flat = {f"{name}/{key}": np.asarray(value) for name, held in stored.items() for key, value in held.items()}
    np.savez_compressed(DATA / "blocks.npz", **flat)


def vision_tower() -> None:
    """Soft tokens of transformers' Gemma 4 vision tower with drawn weights, of two images; plain, with bounds, and standardised."""
    from iron_embedding_gemma2.vision import VisionTower
    from iron_lm.run import Run
    from tests.embedding_gemma2.conftest import drawn
    from tests.embedding_gemma2.test_vision import CONFIGS, GRID, image
    from tests.oracle.peers import soft_tokens

    stored = {}
    for name, config in CONFIGS.items():
        weights = drawn(VisionTower(config, 40, Run(24, 24)))
        for rows, columns in (GRID, (2, 4)):
            stored[f"{name}/{rows}x{columns}"] = soft_tokens(config, weights, *image(rows, columns, 2, 48))
    np.savez_compressed(DATA / "vision_tower.npz", **stored)


def peft_adapters(converter: Path) -> None:
    """Two adapters of the tiny Llama, drawn: all projections, and some by patterns with scales by roots; the first in GGUF too."""
    import os
    import subprocess
    import tempfile

    import peft
    import torch
    import transformers

    torch.set_grad_enabled(False)
    torch.manual_seed(3)
    os.chdir(DATA)  # PEFT writes down where the model was
    folder = Path("peft")
    model = transformers.AutoModelForCausalLM.from_pretrained("tiny_llama", dtype=torch.float32).eval()
    ids = torch.tensor(np.load("tiny_llama/outputs.npz")["ids"].astype(np.int64))[None, :40]
    every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    some = dict(rank_pattern={"v_proj": 2}, alpha_pattern={"layers.0.self_attn.v_proj": 3}, use_rslora=True)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=every, task_type="CAUSAL_LM"), "first")
    adapted.add_adapter("second", peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **some))
    for name, p in adapted.named_parameters():
        if "lora_" in name:
            p.copy_(torch.randn_like(p) * (0.1 if "lora_B" in name else p.shape[1] ** -0.5))
    stored = {}
    for scales in ({"first": 1.0}, {"second": 1.0}, {"first": 0.5, "second": -1.5}):
        adapted.base_model.set_adapter(list(scales))
        for module in adapted.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                for name, scale in scales.items():
                    if name in module.scaling:
                        module.set_scale(name, scale)
        stored["+".join(scales)] = adapted(ids).logits[0].numpy()
    adapted.save_pretrained(folder)
    for extra in list(folder.rglob("README.md")):
        extra.unlink()
    with tempfile.TemporaryDirectory() as base:
        config = json.loads(Path("tiny_llama/config.json").read_text()) | {"architectures": ["LlamaForCausalLM"]}
        (Path(base) / "config.json").write_text(json.dumps(config))
        file = Path(base) / "first.gguf"
        given = ["--base", base, "--outfile", file, folder / "first"]
        subprocess.run([sys.executable, converter / "convert_lora_to_gguf.py", *given], check=True)
        stored["first.gguf"] = np.fromfile(file, np.uint8)
    np.savez_compressed(folder / "outputs.npz", ids=ids[0].numpy().astype(np.int32), **stored)


def llama_cpp(gguf: Path) -> None:
    import llama_cpp

    model, tokenizer = load(gguf)
    ids = passage(tokenizer)
    exact = forced_logits(model, ids)
    llm = llama_cpp.Llama(str(gguf), n_ctx=512, n_threads=2, n_threads_batch=2, logits_all=True, verbose=False)
    llm.eval(ids[:POSITIONS])
    got = np.array(llm.scores[:POSITIONS])
    figures = {
        "program": f"llama-cpp-python {llama_cpp.__version__}, default settings, n_ctx 512, 2 threads, one batch",
        "file": gguf.name,
        "text": f"passage.txt, the first {POSITIONS} positions, teacher-forced",
        "against": "transformers float32 on the dequantised weights",
        "made_by": "tests/oracle/make_goldens.py llama.cpp",
        "logit_rms": float(np.sqrt(np.mean((got - exact).astype(np.float64) ** 2))),
        "top1_agreement": int((got.argmax(-1) == exact.argmax(-1)).sum()),
        "positions": POSITIONS,
    }
    store = SHIPPED / "llama_cpp.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    known[hashlib.sha256(gguf.read_bytes()).hexdigest()] = figures
    store.write_text(json.dumps(known, indent=1) + "\n")
    print(figures)


if __name__ == "__main__":
    what, path = sys.argv[1], Path(sys.argv[-1])
    if what == "families":
        for family in sys.argv[2:] or FAMILIES:
            tiny_family(family)
    elif what == "torch":
        torch_files()
    elif what == "resize":
        resizes()
    elif what == "blocks":
        blocks()
    elif what == "vision":
        vision_tower()
    elif what == "peft":
        peft_adapters(path.absolute())
    elif what == "transformers":
        smollm2(path)
        tiny_llama()
    else:
        llama_cpp(path)
