"""The targets: each writes a damaged file and reads it as the product does, and says how that ended."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz import seeds
from fuzz.containers import matrices, q4nx_in_memory, safetensors_in_memory
from fuzz.images import control_packets, npu_instructions, npu_parameters, npu_xclbin
from fuzz.mutation import Mutator
from fuzz.rule import Fault, damaged, told
from iron_core.errors import LONGEST, CheckpointError, IronError, ParamError, UsageError

TEXTS = ("", "a", "hello the word he ab", "é漢𝄞\n\t  <s>x</s><|im_end|>", "\0\x1b[2J<0x41>▁", "1234567 abc " * 40)


def used(tokenizer: Any, rng: Any) -> None:
    """What a command line does with a tokenizer."""
    if tokenizer is None:
        return
    for text in rng.sample(TEXTS, 2):
        ids = tokenizer.encode(text)
        if not all(type(id) is int and id >= 0 for id in ids):
            raise Fault(f"ids {ids[:20]}")
        tokenizer.decode(ids).encode()
    stream = tokenizer.stream()
    size = min(tokenizer.vocab_size, 1 << 20)
    for id in (0, size - 1, size, 1 << 31, *(rng.randrange(size + 2) for _ in range(8))):
        stream(id).encode()
        tokenizer.token(id)
    stream.rest().encode()
    tokenizer.token(-1)


def _llama(path: Path, **options: Any) -> Any:
    from iron_llama.model import Llama
    from iron_lm import loading

    return loading.load(Llama, str(path), **options)


def _attempt(
    mutator: Mutator,
    folder: Path,
    open: Callable[[], Any],
    legal: tuple[type[BaseException], ...] = (CheckpointError,),
    whole: bool = False,
) -> str:
    """Open a file and use what it holds. whole: a checkpoint is the folder, whose name does where two of its files disagree."""
    names = [path.name for path in folder.rglob("*")] + [str(folder)] * whole
    try:
        found = open()
        used(getattr(found, "tokenizer", found), mutator.rng)
    except Fault:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return told(error, names, legal)
    return "taken"


# -- device configurations ------------------------------------------------------------------------


def xclbin(mutator: Mutator, folder: Path) -> str:
    """A binary for an NPU."""
    from iron_core import Xclbin

    (folder / "mm.xclbin").write_bytes(mutator.raw(seeds.xclbin()))

    def opened() -> None:
        Xclbin(folder / "mm.xclbin")

    return _attempt(mutator, folder, opened, (ParamError,))


# -- checkpoints ----------------------------------------------------------------------------------


def gguf(mutator: Mutator, folder: Path) -> str:
    """A GGUF of a llama with a vocabulary."""
    rng = mutator.rng
    model = seeds.gguf_model(rng.choice((seeds.byte_vocabulary, seeds.spaced_vocabulary))(), rng.choice((0, 8)))
    (folder / "model.gguf").write_bytes(damaged(mutator, model, seeds.gguf_bytes))
    return _attempt(mutator, folder, lambda: _llama(folder / "model.gguf"))


def gguf_vocabulary(mutator: Mutator, folder: Path) -> str:
    """The vocabulary of a GGUF alone is damaged."""
    rng = mutator.rng
    vocabulary = rng.choice((seeds.byte_vocabulary, seeds.spaced_vocabulary))()
    if "scores" in vocabulary and rng.random() < 0.2:
        vocabulary["model"] = "gemma4"
        vocabulary["merges"] = ["a b"]
    model = seeds.gguf_model(vocabulary)
    for _ in range(rng.randint(1, 2)):
        key = "tokenizer.ggml." + rng.choice([*vocabulary, "merges", "eot_token_id"])
        model["metadata"][key] = (mutator.tree([model["metadata"].get(key, 0)]) or [0])[0]
    (folder / "model.gguf").write_bytes(seeds.gguf_bytes(model))
    return _attempt(mutator, folder, lambda: _llama(folder / "model.gguf"))


def safetensors(mutator: Mutator, folder: Path) -> str:
    """A safetensors file with a config.json beside it."""
    (folder / "model.safetensors").write_bytes(damaged(mutator, seeds.safetensors_model(), seeds.safetensors_bytes))
    (folder / "config.json").write_bytes(seeds.dumped(seeds.CONFIG))
    return _attempt(mutator, folder, lambda: _llama(folder / "model.safetensors"))


def q4nx(mutator: Mutator, folder: Path) -> str:
    """model.q4nx of FastFlowLM with config.json beside it, and either of them damaged."""
    from iron_q4nx.reader import Q4NXFolder

    model, config = seeds.q4nx_model(mutator.rng), mutator.rng.random() < 0.3
    (folder / "model.q4nx").write_bytes(damaged(mutator, model, seeds.q4nx_bytes, 1.0 if config else 0.05))
    (folder / "config.json").write_bytes(damaged(mutator, seeds.Q4NX_CONFIG, seeds.dumped, 0.05 if config else 1.0))
    return _attempt(mutator, folder, lambda: matrices(Q4NXFolder.open(folder, "Q4_1").tensors), whole=True)


def packed(mutator: Mutator, folder: Path) -> str:
    """A safetensors file of GPTQ's or AWQ's matrices with a config.json that says so, and either of them damaged."""
    from iron_lm.checkpoints.checkpoint import Checkpoint

    rng = mutator.rng
    model, said = seeds.packed_model(rng)
    config, damages = seeds.CONFIG | {"quantization_config": said}, rng.random() < 0.5
    (folder / "model.safetensors").write_bytes(damaged(mutator, model, seeds.q4nx_bytes, 1.0 if damages else 0.05))
    (folder / "config.json").write_bytes(damaged(mutator, config, seeds.dumped, 0.05 if damages else 1.0))
    return _attempt(mutator, folder, lambda: matrices(Checkpoint.open(folder).tensors), whole=True)


def adapter(mutator: Mutator, folder: Path) -> str:
    """PEFT's adapter of a llama, weights and config, and either of them damaged."""
    base, own = folder / "base", folder / "adapter"
    base.mkdir(), own.mkdir()
    (base / "model.safetensors").write_bytes(seeds.safetensors_bytes(seeds.safetensors_model()))
    (base / "config.json").write_bytes(seeds.dumped(seeds.CONFIG))
    config = mutator.rng.random() < 0.5
    weights = damaged(mutator, seeds.adapter_model(), seeds.safetensors_bytes, 1.0 if config else 0.05)
    (own / "adapter_model.safetensors").write_bytes(weights)
    (own / "adapter_config.json").write_bytes(damaged(mutator, seeds.ADAPTER, seeds.dumped, 0.05 if config else 1.0))
    return _attempt(mutator, own, lambda: _filled(base, own), whole=True)


def adapter_gguf(mutator: Mutator, folder: Path) -> str:
    """llama.cpp's adapter of a llama."""
    (folder / "model.gguf").write_bytes(seeds.gguf_bytes(seeds.gguf_model(seeds.byte_vocabulary())))
    file = folder / "adapter.gguf"
    file.write_bytes(damaged(mutator, seeds.gguf_adapter(), seeds.gguf_bytes))
    return _attempt(mutator, folder, lambda: _filled(folder / "model.gguf", file))


def _filled(model: Path, adapter: Path) -> None:
    """The graph of a llama with an adapter, all weights in it."""
    _llama(model, lora=adapter).model()


def onnx(mutator: Mutator, folder: Path) -> str:
    """model.onnx of a dequantised matrix, of a product of n bits and of a vector, whose tensors lie in a file beside it."""
    from iron_lm.checkpoints.checkpoint import Checkpoint

    graph, data = seeds.onnx_model(mutator.rng)
    (folder / "model.onnx").write_bytes(damaged(mutator, graph, seeds.proto_bytes))
    (folder / "model.onnx.data").write_bytes(mutator.raw(data) if mutator.rng.random() < 0.2 else data)
    return _attempt(mutator, folder, lambda: matrices(Checkpoint.open(folder).tensors), whole=True)


def safetensors_index(mutator: Mutator, folder: Path) -> str:
    """An index of two files."""
    (folder / "a.safetensors").write_bytes(seeds.safetensors_bytes(seeds.safetensors_model()))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(seeds.shapes(), "a.safetensors")}
    (folder / "model.safetensors.index.json").write_bytes(damaged(mutator, index, seeds.dumped))
    (folder / "config.json").write_bytes(seeds.dumped(seeds.CONFIG))
    return _attempt(mutator, folder, lambda: _llama(folder), whole=True)


def config(mutator: Mutator, folder: Path) -> str:
    """config.json and generation_config.json of each family, but for the one whose config is several towers'."""
    import attrs

    from iron_core.plugins.registry import registry
    from iron_lm import loading
    from iron_lm.architecture import Architecture
    from iron_lm.checkpoints.sources import Reading, source_of
    from iron_lm.parts.rotary import RotaryConfig
    from iron_lm.run import Run

    models = [registry().load("models", name) for name in registry().names("models")]
    families = [model for model in models if issubclass(model, Architecture) and model.name != "embedding_gemma2"]
    family = mutator.rng.choice(families)
    entries = seeds.CONFIG | {"model_type": family.architectures[0]}
    if family.name == "gemma3":
        entries.pop("hidden_act")
        entries |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 16,
            "sliding_window": 32,
            "layer_types": ["sliding_attention"],
            "rope_local_base_freq": 1e4,
        }
    elif family.name == "phi3":
        factors = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
        entries |= {"sliding_window": 32, "original_max_position_embeddings": 32, "rope_scaling": factors}
    elif family.name == "gpt2":
        entries |= {"n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 64, "n_inner": 32, "activation_function": "gelu_new"}
    elif family.name == "bert":
        entries |= {"hidden_act": "gelu"}
    elif family.name == "qwen3_5":
        entries |= {"layer_types": ["linear_attention"], "linear_num_key_heads": 1, "linear_num_value_heads": 2}
        entries |= {"linear_key_head_dim": 8, "linear_value_head_dim": 16}
    elif family.name in ("qwen2_moe", "qwen3_moe"):
        entries |= {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32}
    sizes = dict(
        vocab_size=32, hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16, intermediate_size=32, max_positions=64,
    )  # fmt: skip
    sizes |= {"num_kv_heads": 2} if family.name == "bert" else {}  # each head has keys of its own
    if family.name == "qwen3_5":
        sizes |= dict(attends=(False,), key_heads=1, value_heads=2, key_dim=8, value_dim=16)
    if family.name in ("qwen2_moe", "qwen3_moe"):
        shared = {"shared_size": 32} if family.name == "qwen2_moe" else {}
        sizes |= dict(num_experts=2, chosen=1, expert_size=16, renormalise=False, **shared)
    config = attrs.evolve(family.full_size(), **sizes, sliding=(), rotary=RotaryConfig(16), tied=False)
    names = family.names("safetensors", config)
    shapes = family.build(config, Run(64)).tensors()
    tensors: dict[str, list[int]] = {}

    class Asked(Reading):
        """Notes what tensors are asked for, and has none."""

        def has(self, name: str) -> bool:
            return False

        def tensor(self, name: str, shape: tuple[int, ...]) -> None:
            tensors[name] = list(shape)

    for path, shape in shapes.items():
        source_of(names, path).read(Asked(), shape)
    (folder / "model.safetensors").write_bytes(seeds.safetensors_bytes(seeds.safetensors_model(tensors)))
    (folder / "config.json").write_bytes(damaged(mutator, entries, seeds.dumped))
    if mutator.rng.random() < 0.3:
        (folder / "generation_config.json").write_bytes(damaged(mutator, seeds.GENERATION, seeds.dumped, 0.7))
        (folder / "tokenizer.json").write_bytes(
            seeds.dumped(seeds.tokenizer_json("WordLevel") | {"added_tokens": [], "post_processor": None})
        )
    return _attempt(mutator, folder, lambda: loading.load(family, str(folder)), whole=True)


def meta(mutator: Mutator, folder: Path) -> str:
    """params.json and consolidated.00.pth."""
    which = mutator.rng.random()
    (folder / "consolidated.00.pth").write_bytes(_saved(mutator, seeds.meta_shapes(), which))
    (folder / "params.json").write_bytes(damaged(mutator, seeds.PARAMS, seeds.dumped, 0.0 if which >= 0.8 else 0.9))
    return _attempt(mutator, folder, lambda: _llama(folder), whole=True)


def pytorch(mutator: Mutator, folder: Path) -> str:
    """pytorch_model.bin in two parts, with an index of them and without, and config.json."""
    which = mutator.rng.random()
    rows = list(seeds.shapes().items())
    places: dict[str, str] = {}
    for i, part in enumerate((rows[:5], rows[5:])):
        name = f"pytorch_model-{i + 1:05d}-of-00002.bin"
        (folder / name).write_bytes(_saved(mutator, dict(part), which if i else 1.0))
        places |= dict.fromkeys(dict(part), name)
    if which >= 0.4:
        index = damaged(mutator, {"metadata": {"total_size": 1}, "weight_map": places}, seeds.dumped, 0.0 if which >= 0.8 else 0.9)
        (folder / "pytorch_model.bin.index.json").write_bytes(index)
    (folder / "config.json").write_bytes(seeds.dumped(seeds.CONFIG))
    return _attempt(mutator, folder, lambda: _llama(folder), whole=True)


def _saved(mutator: Mutator, rows: dict[str, list[int]], which: float) -> bytes:
    """A file as torch.save writes it, of tensors of these shapes. which: 0 to 0.5 damages what is saved, up to 0.65 the pickle, up
    to 0.8 the archive."""
    model = seeds.pth_model(rows)
    model = mutator.tree(model) if which < 0.5 else model
    pickled = seeds.pickle_bytes(model)
    if 0.5 <= which < 0.65:
        pickled = mutator.raw(pickled)
    data = seeds.pth_bytes(model, pickled)
    return mutator.raw(data) if 0.65 <= which < 0.8 else data


# -- tokenizers -----------------------------------------------------------------------------------


def tokenizer_json(mutator: Mutator, folder: Path) -> str:
    """tokenizer.json of each kind of model."""
    from iron_lm.text.opening import open_tokenizer

    model = seeds.tokenizer_json(mutator.rng.choice(("BPE", "BPE", "Unigram", "WordPiece", "WordLevel")))
    (folder / "tokenizer.json").write_bytes(damaged(mutator, model, seeds.dumped))
    return _attempt(mutator, folder, lambda: open_tokenizer(folder / "tokenizer.json"))


def sentencepiece(mutator: Mutator, folder: Path) -> str:
    """tokenizer.model of sentencepiece."""
    from iron_lm.text.opening import open_tokenizer

    model = seeds.sentencepiece_model(mutator.rng.choice((1, 2)))
    (folder / "tokenizer.model").write_bytes(damaged(mutator, model, seeds.proto_bytes))
    return _attempt(mutator, folder, lambda: open_tokenizer(folder / "tokenizer.model"))


def ranks(mutator: Mutator, folder: Path) -> str:
    """tokenizer.model of tiktoken; as small as a Llama 3 of 300 ranks would have it."""
    import base64

    from iron_lm.text import vocabulary
    from iron_lm.text.opening import open_tokenizer

    words = [bytes([b]) for b in range(256)] + [b"th", b"the", *(b"a" * n for n in range(2, 44))]
    lines = [base64.b64encode(word) + b" %d" % i for i, word in enumerate(words)]
    if mutator.rng.random() < 0.3:
        lines[mutator.rng.randrange(300)] = str(mutator.odd())[:5000].encode("utf-8", "replace")
    data = b"\n".join(lines) + b"\n"
    (folder / "tokenizer.model").write_bytes(mutator.raw(data) if mutator.rng.random() < 0.7 else data)
    before, vocabulary.LLAMA3_RANKS = vocabulary.LLAMA3_RANKS, len(words)
    try:
        return _attempt(mutator, folder, lambda: open_tokenizer(folder / "tokenizer.model"))
    finally:
        vocabulary.LLAMA3_RANKS = before


def companions(mutator: Mutator, folder: Path) -> str:
    """What lies beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json."""
    from iron_lm.text.opening import open_tokenizer

    rng = mutator.rng
    if rng.random() < 0.7:
        file = folder / "tokenizer.json"
        file.write_bytes(seeds.dumped(seeds.tokenizer_json("BPE")))
    else:
        file = folder / "tokenizer.model"
        file.write_bytes(seeds.proto_bytes(seeds.sentencepiece_model(2)))
    files = {"tokenizer_config.json": seeds.TOKENIZER_CONFIG, "special_tokens_map.json": seeds.SPECIAL_TOKENS}
    files |= {"added_tokens.json": seeds.ADDED_TOKENS, "generation_config.json": seeds.GENERATION}
    for name, value in files.items():
        if rng.random() < 0.5:
            (folder / name).write_bytes(damaged(mutator, value, seeds.dumped, 0.4))
    return _attempt(mutator, folder, lambda: open_tokenizer(file))


# -- chat templates -------------------------------------------------------------------------------

_PARTS = (
    "{% for m in messages %}", "{% endfor %}", "{% if m.role == 'user' %}", "{% else %}", "{% endif %}", "{{ m.content }}", "{{ m }}",
    "{{ messages }}", "{% set ns = namespace(l=['a'], s='ab', n=7) %}", "{% set ns.l = [ns.l, ns.l] %}", "{% set ns.s = ns.s ~ ns.s %}",
    "{% set ns.n = ns.n * ns.n %}", "{{ ns.l }}", "{{ ns.s }}", "{{ ns.n }}", "{{ ns.l|tojson }}", "{% for i in range(99999) %}",
    "{% for j in ns.l recursive %}", "{{ loop(j) }}", "{{ loop.changed(ns.s) }}", "{{ range(9999)|map('string')|join(ns.s) }}",
    "{{ ns.s|replace('a', ns.s) }}", "{{ ns.s.split('a') }}", "{{ 'a' * 4000000 }}", "{% macro f(n) %}", "{% endmacro %}", "{{ f(ns.n) }}",
    "{% call f(1) %}", "{% endcall %}", "{{ caller() }}", "{{ raise_exception(ns.s) }}", "{{ strftime_now('%c' * 99) }}", "{{ ns.l|sort }}",
    "{{ ns.l == [ns.l] }}", "{{ ns.s|title|upper }}", "{{ 1.5|round(300) }}", "{{ [1]|batch(900, ns.s)|list }}", "{{ ns.s.__class__ }}",
    "{{ self }}", "{{ ns.n ** ns.n }}", "{{ '%s' % ns.s }}", "{% generation %}", "{% endgeneration %}", "{% break %}", "{% raw %}",
    "{% endraw %}", "{#", "#}", "{{ '\\x1b[2J' }}", "{{ ns.s[::-1] }}", "{% autoescape ns.s %}", "{% endautoescape %}", "{{", "%}", "|",
    "(", "é漢\ud800",
)  # fmt: skip


def template(mutator: Mutator, folder: Path) -> str:
    """A chat template put together of pieces, in a GGUF, in a folder's JSON, or as a file."""
    from iron_lm.text import template as templates

    rng = mutator.rng
    source = seeds.TEMPLATE if rng.random() < 0.3 else "".join(rng.choice(_PARTS) for _ in range(rng.randint(1, 12)))
    source = mutator.text(source) if rng.random() < 0.5 else source
    if rng.random() < 0.5:
        file, value = folder / "tokenizer_config.json", seeds.TOKENIZER_CONFIG | {"chat_template": source}
        file.write_bytes(damaged(mutator, value, seeds.dumped, 0.8))
    else:
        file = folder / "chat_template.jinja"
        file.write_bytes(source.encode("utf-8", "surrogatepass"))
    made = type("Folder", (), {"kind": "safetensors", "path": folder})
    before, templates.CPU_SECONDS = templates.CPU_SECONDS, 0.3

    def render() -> None:
        found = templates.find_template(made, None)
        if found is not None:
            text = found.render([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}])
            if len(text) > 4_000_000:
                raise Fault(f"{len(text)} characters")

    try:
        return _attempt(mutator, folder, render, (CheckpointError, UsageError))
    finally:
        templates.CPU_SECONDS = before


# -- Iron's own files -----------------------------------------------------------------------------


class _Distribution:
    """An installed distribution whose entry_points.txt is this."""

    def __init__(self, text: str | bytes) -> None:
        self.text = text
        self.metadata = {"Name": "fuzzed", "Version": "1"}

    def read_text(self, name: str) -> str:
        if name != "entry_points.txt":
            return "Metadata-Version: 2.1\nName: fuzzed\nVersion: 1\n"
        return self.text if isinstance(self.text, str) else self.text.decode("utf-8")


def entry_points(mutator: Mutator, folder: Path) -> str:
    """entry_points.txt of a distribution: records, each with one printable line for what is wrong."""
    from iron_core.plugins import entry_points as reader

    text = seeds.ENTRY_POINTS
    for _ in range(mutator.rng.randint(1, 4)):
        text = mutator.text(text)
    raw = text.encode("utf-8", "surrogatepass")
    records = reader.scan([_Distribution(mutator.raw(raw) if mutator.rng.random() < 0.4 else text)])
    for record in records:
        line = f"{record.group} {record.name} {record.owner} {record.detail}"
        if not line.isprintable() or len(record.detail) > LONGEST:
            raise Fault(f"a record says {line[:300]!r}")
    return "refused" if any(record.detail for record in records) else "taken"


def profile(mutator: Mutator, folder: Path) -> str:
    """A profile of tunables."""
    from iron_core.declare.profile import Profile

    (folder / "profile.json").write_bytes(damaged(mutator, seeds.PROFILE, seeds.dumped))
    try:
        Profile.load(folder / "profile.json")
    except BaseException as error:
        return told(error, ["profile.json"], (IronError,))
    return "taken"


def cache(mutator: Mutator, folder: Path) -> str:
    """The manifest of a cache entry: the entry is given out whole, or built again."""
    from iron_core.cache.store import Cache

    store = Cache("fuzz", folder / "cache")

    def build(place: Path) -> None:
        (place / "file").write_bytes(b"content")

    path = store.entry("key", build)
    manifest = path / "entry.json"
    import json

    manifest.write_bytes(damaged(mutator, json.loads(manifest.read_bytes()), seeds.dumped, 0))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again = store.entry("key", build)
    if (again / "file").read_bytes() != b"content":
        raise Fault("another content")
    for warning in said:
        if not str(warning.message).isprintable() or len(str(warning.message)) > 2 * LONGEST:
            raise Fault(f"a warning says {str(warning.message)[:300]!r}")
    return "refused" if said else "taken"


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


TARGETS: dict[str, Callable[[Mutator, Path], str]] = {
    target.__name__: target
    for target in (
        gguf, gguf_vocabulary, safetensors, safetensors_in_memory, safetensors_index, packed, adapter, adapter_gguf, q4nx, q4nx_in_memory,
        config, meta, pytorch, tokenizer_json, sentencepiece, ranks, companions, template, entry_points, profile, cache, xclbin,
        npu_xclbin, npu_instructions, npu_parameters, control_packets,
    )
}  # fmt: skip
if _installed("onnx", "iron_onnx"):
    TARGETS["onnx"] = onnx
