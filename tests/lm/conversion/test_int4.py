"""`iron checkpoints convert --int4`: matrices of some parts of a model in 4 bits, and everything else as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from iron_core.cli import main
from iron_core.declare.formats import grouped
from iron_core.errors import CheckpointError, UsageError
from iron_llama.model import Llama
from iron_lm import families
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.conversion import gptq_folder, unfinished
from iron_lm.conversion.conversion import Conversion
from tests.families.conftest import DATA, FAMILIES, Family
from tests.lm import pth
from tests.lm.checkpoints.packers import folder as packed_folder
from tests.lm.checkpoints.packers import words
from tests.lm.conversion.rounded_models import Source, check_numbers, check_run, raw, tiny_of
from tests.q4nx.folders import container

SAFETENSORS = (
    "qwen2_moe", "qwen3_moe", "qwen3_5_moe", "qwen3_next", "qwen2", "qwen3", "gemma3", "mistral", "olmo2", "phi3", "qwen3_5", "llama",
)  # fmt: skip
#: What of a path's last name belongs to a role, of those that are converted here.
ROLES = {
    "attention": {"q", "k", "v", "o", "gate"},
    "shared expert": {"gate", "up", "down"},
    "experts": {"gate", "up", "down"},
    "feed-forward": {"gate", "up", "down"},
    "delta rule": {"qkv", "z", "o"},
}


@pytest.fixture(params=SAFETENSORS)
def source(request: pytest.FixtureRequest, tiny: Any, tmp_path: Path) -> Source:
    if request.param == "llama":
        return Source(tiny.checkpoint.path, Llama)
    return Source(tiny_of(request.param, tmp_path).write(), FAMILIES[request.param])


@pytest.fixture
def moe(tmp_path: Path) -> Source:
    return Source(tiny_of("qwen2_moe", tmp_path).write(ml_dtypes.bfloat16), FAMILIES["qwen2_moe"])


@pytest.mark.parametrize("which", ["one", "all"])
def test_a_role_is_rounded_and_nothing_else(source: Source, tmp_path: Path, which: str) -> None:
    """Of each role, and of all at once: the numbers of its matrices are the format's, others bit for bit; and it runs so."""
    roles = source.roles
    for role in roles if which == "one" else [",".join(roles)]:
        out = tmp_path / f"out {role}"
        Conversion(source.path, out, int4=[role], int4_block=32).run()
        paths = {path for one in role.split(",") for path in roles[one]}
        after = check_numbers(source, out, paths, grouped(4, 32, zeros=True))
        if which == "all":
            check_run(source, out, after)


def test_roles_are_those_that_a_profile_prints(source: Source) -> None:
    """And of each the matrices that make it up: no router, no norm, no gate of few rows, no head."""
    found = source.roles
    assert {"attention"} <= set(found) <= set(ROLES)
    for role, paths in found.items():
        assert {path.rpartition(".")[2] for path in paths} <= ROLES[role]
    names = {path.rpartition(".")[2] for paths in found.values() for path in paths}
    assert not names & {"router", "opening", "matrix", "table", "weight", "a", "b", "conv"}


def test_what_is_not_rounded_stays_as_it_lies(moe: Source, tmp_path: Path) -> None:
    """dtype, shape and bytes of every other tensor; the rounded ones are replaced by GPTQ's four, and no name is left over."""
    Conversion(moe.path, tmp_path / "out", int4=["attention", "shared-expert"]).run()
    before, after = raw(moe.path), raw(tmp_path / "out")
    of_role = re.compile(r"(.*\.(?:self_attn\.[qkvo]_proj|shared_expert\.\w+_proj))\.weight")
    gone = {name for name in before if of_role.fullmatch(name)}
    modules = {name.removesuffix(".weight") for name in gone}
    assert len(modules) == 2 * 7
    assert set(after) == (set(before) - gone) | {f"{m}.{x}" for m in modules for x in ("qweight", "qzeros", "scales", "g_idx")}
    assert all(after[name] == before[name] for name in set(before) - gone)


def test_a_matrix_is_packed_as_the_public_packers_do(moe: Source, tmp_path: Path) -> None:
    """Word by word: integers down the inputs, zero points as they are across the outputs, scales in float16, groups in order."""
    Conversion(moe.path, tmp_path / "out", int4=["attention"], int4_block=32).run()
    name, format = "model.layers.1.self_attn.o_proj", grouped(4, 32, zeros=True)
    stored = Checkpoint.open(moe.path).tensors[f"{name}.weight"][2].astype(np.float32)
    want = format.quantize(stored)
    planes = {plane.role: format.numbers(plane, want.data, want.shape) for plane in format.planes}
    found = raw(tmp_path / "out")
    (n, k), got = stored.shape, {x: found[f"{name}.{x}"] for x in ("qweight", "qzeros", "scales", "g_idx")}
    assert [(got[x][0], got[x][1]) for x in got] == [("I32", (k // 8, n)), ("I32", (k // 32, n // 8)), ("F16", (k // 32, n)), ("I32", (k,))]
    assert got["qweight"][2] == np.ascontiguousarray(words(format.integers(want.data, want.shape), 4).T).tobytes()
    assert got["qzeros"][2] == words(np.ascontiguousarray(planes["zeros"].T).astype(int), 4).tobytes()
    assert got["scales"][2] == np.ascontiguousarray(planes["scales"].T).tobytes()
    assert got["g_idx"][2] == (np.arange(k) // 32).astype(np.int32).tobytes()


def test_config_json_says_which_modules_are_packed(moe: Source, tmp_path: Path) -> None:
    """What was there is as it was; modules that are packed, and patterns of those that are not, which match no others."""
    Conversion(moe.path, tmp_path / "out", int4=["shared expert", "experts"]).run()
    before, after = (json.loads((path / "config.json").read_text()) for path in (moe.path, tmp_path / "out"))
    said = after.pop("quantization_config")
    assert after == before
    assert {key: said[key] for key in ("quant_method", "bits", "desc_act", "sym", "lm_head", "checkpoint_format", "pack_dtype")} == {
        "quant_method": "gptq", "bits": 4, "desc_act": False, "sym": False, "lm_head": False, "checkpoint_format": "gptq_v2",
        "pack_dtype": "int32",
    }  # fmt: skip
    names = raw(tmp_path / "out")
    packed = {name.removesuffix(".qweight") for name in names if name.endswith(".qweight")}
    ((*inside,),) = said["modules_in_block_to_quantize"]
    assert {module.partition("layers.")[2].partition(".")[2] for module in packed} == set(inside)
    patterns = [pattern.removeprefix("-:") for pattern in said["dynamic"]]
    assert not any(re.match(pattern, module) for pattern in patterns for module in packed)
    left = [name.removesuffix(".weight") for name, (_, shape, _) in names.items() if len(shape) == 2 and name.endswith(".weight")]
    assert left and all(any(re.match(pattern, module) for pattern in patterns) for module in left)
    assert r"^model\.layers\.\d+\.self_attn\.q_proj$" in patterns and "^lm_head$" in patterns and r"^model\.norm$" not in patterns
    Conversion(moe.path, tmp_path / "attention", int4=["attention"]).run()
    patterns = list(json.loads((tmp_path / "attention" / "config.json").read_text())["quantization_config"]["dynamic"])
    experts = r"-:^model\.layers\.\d+\.mlp\.experts(\..*)?$"
    assert experts in patterns and re.match(experts.removeprefix("-:"), "model.layers.1.mlp.experts.3.up_proj")
    assert not any(re.match(pattern.removeprefix("-:"), "model.layers.0.self_attn.q_proj") for pattern in patterns)


def test_experts_that_lie_together_are_written_one_by_one(tmp_path: Path) -> None:
    """Gates and others of one tensor apart, as public packers name them; the numbers are the same."""
    family = tiny_of("qwen3_moe", tmp_path)
    together = Source(family.write(), FAMILIES["qwen3_moe"])
    for layer in range(family.json["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts"
        gates, ups = np.split(family.weights.pop(f"{at}.gate_up_proj"), 2, 1)
        for name, stack in (("gate", gates), ("up", ups), ("down", family.weights.pop(f"{at}.down_proj"))):
            family.weights |= {f"{at}.{n}.{name}_proj.weight": one for n, one in enumerate(stack)}
    apart = Source(family.write(), FAMILIES["qwen3_moe"])
    for one, name in ((apart, "a"), (together, "b")):
        Conversion(one.path, tmp_path / name, int4=["experts"]).run()
    assert raw(tmp_path / "a") == raw(tmp_path / "b")


def test_shards_stay_as_they_are(moe: Source, tmp_path: Path) -> None:
    """A tensor stays in its file, what a matrix becomes too; the index says where everything is, and how much."""
    tensors = {name: array for name, (_, _, array) in Checkpoint.open(moe.path).tensors.items()}
    source = packed_folder(tmp_path / "sharded", tensors, None, json.loads((moe.path / "config.json").read_text()), shards=3)
    done = Conversion(source, tmp_path / "out", int4=["attention"]).run()
    files = sorted(path.name for path in source.iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files and len(files) == 5
    before, after = (json.loads((path / "model.safetensors.index.json").read_text()) for path in (source, tmp_path / "out"))
    stored = raw(tmp_path / "out")
    assert after["weight_map"].keys() == stored.keys() and done.tensors == len(stored)
    assert after["metadata"]["total_size"] == sum(len(data) for _, _, data in stored.values())
    for name, file in before["weight_map"].items():
        now = name if name in stored else name.replace(".weight", ".qweight")
        assert after["weight_map"][now] == file
    Conversion(moe.path, tmp_path / "whole", int4=["attention"]).run()
    assert raw(tmp_path / "whole") == stored


def test_it_goes_on_within_the_shard_where_it_was_cut_short(moe: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are whole are kept, and what comes out is what an undisturbed conversion writes."""
    tensors = {name: array for name, (_, _, array) in Checkpoint.open(moe.path).tensors.items()}
    source = packed_folder(tmp_path / "sharded", tensors, None, json.loads((moe.path / "config.json").read_text()), shards=3)
    append, made = unfinished.Unfinished._append, []

    def interrupted(self: Any, piece: Any, *rest: Any) -> str:
        if len(made) == 50:
            raise KeyboardInterrupt
        made.append(piece.name)
        return append(self, piece, *rest)

    one = Conversion(source, tmp_path / "out", int4=["attention"])
    assert len(one.output.containers[0].pieces) < 50 < len(one.output.every)
    monkeypatch.setattr(unfinished.Unfinished, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert not (tmp_path / "out").exists() and "has 50 of" in one.left_over
    monkeypatch.setattr(unfinished.Unfinished, "_append", append)
    assert Conversion(source, tmp_path / "out", int4=["attention"]).run().kept == 50
    Conversion(source, tmp_path / "other", int4=["attention"]).run()
    both = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("out", "other")]
    assert both[0] == both[1]


def test_one_matrix_at_a_time_is_in_memory(moe: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is rounded once, when its first array is written, and let go with its last."""
    rounding, pack = [], gptq_folder.Matrix.packed
    monkeypatch.setattr(gptq_folder.Matrix, "packed", lambda self, block: (rounding.append(self.module), pack(self, block))[1])
    one = Conversion(moe.path, tmp_path / "out", int4=["attention"])
    assert not rounding
    one.run()
    assert len(rounding) == len(set(rounding)) == 8


def test_mistakes_are_one_line_each(moe: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A role that the model lacks, with those it has; a block that rows are not whole of; options that do not go together."""
    gguf = tiny_of("qwen2_moe", tmp_path).gguf("F16")
    there = "Legal: attention, experts, shared expert."
    for says, path, options in (
        (rf"--int4 'delta rule': this model has no such matrices. {there}", moe.path, ["--int4", "delta rule"]),
        (rf"--int4 'router': this model has no such matrices. {there}", gguf, ["--int4", "attention,router"]),
        (r"--int4-block 48. Legal: 32, 64, 128.", moe.path, ["--int4", "attention", "--int4-block", "48"]),
        (r"--int4-block 128: \S+proj.weight has rows of \d+, which are no whole blocks. Legal: 32", moe.path,
         ["--int4", "attention", "--int4-block", "128"]),
        (r"--int4-block 64. Legal: 32.", gguf, ["--int4", "attention", "--int4-block", "64"]),
        (r"--format is missing. Legal: --format, or --int4, one of them.", moe.path, []),
        (r"--format with --int4. Legal: --format, or --int4, one of them.", moe.path, ["--int4", "experts", "--format", "q4nx"]),
        (r"--int4-block says how --int4 rounds", moe.path, ["--format", "q4nx", "--int4-block", "32"]),
    ):  # fmt: skip
        assert main(["checkpoints", "convert", str(path), str(tmp_path / "out"), *options]) == 2
        told = capsys.readouterr()
        assert told.out == "" and re.fullmatch(rf"error: [^\n]*{says}[^\n]*\n", told.err), told.err
        assert not (tmp_path / "out").exists()


def test_weights_that_are_packed_are_not_packed_again(moe: Source, tmp_path: Path) -> None:
    """Not what this wrote, nor blocks of a GGUF; other tensors of a GGUF may be blocks."""
    Conversion(moe.path, tmp_path / "out", int4=["attention"]).run()
    with pytest.raises(CheckpointError, match=r"its weights are packed already\. Legal: a checkpoint of floats\."):
        Conversion(tmp_path / "out", tmp_path / "again", int4=["experts"])
    family = tiny_of("qwen2_moe", tmp_path)
    path = family.gguf("F16")
    Conversion(path, tmp_path / "q", int4=["attention"]).run()
    with pytest.raises(CheckpointError, match=r"attn_q\.weight is q4_1 already\. Legal: floats\."):
        Conversion(tmp_path / "q", tmp_path / "again", int4=["attention"])
    Conversion(tmp_path / "q", tmp_path / "both", int4=["experts"]).run()
    Conversion(path, tmp_path / "at once", int4=["attention,experts"]).run()
    assert (tmp_path / "both" / path.name).read_bytes() == (tmp_path / "at once" / path.name).read_bytes()


def test_matrices_that_lie_otherwise_are_refused_by_name(tmp_path: Path, tiny_gguf: Any) -> None:
    """GPT-2's are stored the other way round; kinds of files that are not written are told, and a role of mixtures of a dense model."""
    with pytest.raises(CheckpointError, match=r"is \S+ turned or scaled, which has no blocks of a row"):
        Conversion(Family("gpt2", tmp_path).write(), tmp_path / "out", int4=["attention"])
    with pytest.raises(UsageError, match=r"--int4 'experts': this model has no such matrices\. Legal: attention, feed-forward\."):
        Conversion(tiny_gguf(), tmp_path / "out", int4=["experts"])
    family = Family("qwen3", tmp_path)
    (tmp_path / "torch").mkdir()
    pth.save(tmp_path / "torch" / "pytorch_model.bin", family.weights)
    (tmp_path / "torch" / "config.json").write_text(json.dumps(family.json))
    with pytest.raises(CheckpointError, match=r"--int4 of pytorch is not written\. Legal: safetensors, gguf\."):
        Conversion(tmp_path / "torch", tmp_path / "out", int4=["attention"])


def test_encoders_are_refused(tmp_path: Path) -> None:
    """They run from the folder that they are in."""
    stored = np.load(DATA / "tiny_bert.npz")
    weights = {key[2:]: stored[key].astype(np.float32) for key in stored if key.startswith("w/")}
    path = packed_folder(tmp_path / "bert", weights, None, json.loads(str(stored["config"])))
    with pytest.raises(CheckpointError, match=r"bert encodes texts\. Legal: a model that continues them\."):
        Conversion(path, tmp_path / "out", int4=["attention"])


def test_a_tensor_of_two_parts_is_rounded_with_both(moe: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of them alone is asked for the tensor and the other part are named."""
    names = moe.family.names

    def joined(kind: str, config: Any) -> Any:
        return {**names(kind, config), "layers.{i}.mixer.o": "model.layers.{i}.mlp.shared_expert.down_proj.weight"}

    monkeypatch.setattr(moe.family, "names", joined)
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.shared_expert\.down_proj\.weight holds layers\.\d\.mixer\.o too"):
        Conversion(moe.path, tmp_path / "out", int4=["shared expert"])


def test_a_matrix_that_is_not_read_is_not_rounded(moe: Source, tmp_path: Path) -> None:
    """Of a dtype that Iron does not take, or missing; one of another part is taken over as it lies."""
    name, stored = "model.layers.0.self_attn.k_proj.weight", raw(moe.path)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text((moe.path / "config.json").read_text())
    _, shape, data = stored[name]
    odd = ("F8_E4M3", shape, data[: len(data) // 2])
    container(tmp_path / "odd" / "model.safetensors", stored | {name: odd})
    with pytest.raises(CheckpointError, match=r"k_proj\.weight is 'F8_E4M3'\. Legal: F32, F16, BF16"):
        Conversion(tmp_path / "odd", tmp_path / "out", int4=["attention"])
    Conversion(tmp_path / "odd", tmp_path / "out", int4=["experts"]).run()
    assert raw(tmp_path / "out")[name] == odd
    container(tmp_path / "odd" / "model.safetensors", {key: value for key, value in stored.items() if key != name})
    with pytest.raises(CheckpointError, match=r"k_proj\.weight is missing"):
        Conversion(tmp_path / "odd", tmp_path / "gone", int4=["attention"])


def test_experts_that_are_missing_or_without_names_are_told(moe: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is that of one by one, as most files have them; a family that names them together alone has none to write."""
    together, stored = "model.layers.0.mlp.experts.down_proj", raw(moe.path)
    (tmp_path / "less").mkdir()
    (tmp_path / "less" / "config.json").write_text((moe.path / "config.json").read_text())
    container(tmp_path / "less" / "model.safetensors", {key: value for key, value in stored.items() if key != together})
    with pytest.raises(CheckpointError, match=r"mlp\.experts\.0\.down_proj\.weight is missing"):
        Conversion(tmp_path / "less", tmp_path / "out", int4=["experts"])
    names = moe.family.names
    alone = {"layers.{i}.ffn.down": "model.layers.{i}.mlp.experts.down_proj"}
    monkeypatch.setattr(moe.family, "names", lambda kind, config: {**names(kind, config), **alone})
    with pytest.raises(CheckpointError, match=r"experts\.down_proj is \[\d+, \d+, \d+\], which has no name for each matrix"):
        Conversion(moe.path, tmp_path / "out", int4=["experts"])


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e6])
@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_numbers_that_no_scale_holds_are_refused(kind: str, value: float, tmp_path: Path) -> None:
    """NaN, infinite ones, and more than float16 has; the matrix is named, and nothing is there."""
    family = tiny_of("qwen2_moe", tmp_path)
    family.weights["model.layers.1.self_attn.k_proj.weight"][3, 5] = value
    path = family.write() if kind == "safetensors" else family.gguf("F32")
    named = r"model\.layers\.1\.self_attn\.k_proj" if kind == "safetensors" else r"blk\.1\.attn_k\.weight"
    says = "numbers too large for scales of float16" if value == 3e6 else "numbers that are NaN or infinite"
    with pytest.raises(CheckpointError, match=rf"{path.name}: {named} has {says}\."):
        Conversion(path, tmp_path / "out", int4=["attention"]).run()
    assert not (tmp_path / "out").exists()


def test_progress_and_the_answer_are_told(moe: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of any conversion; repeated options and commas are alike."""
    line = ["checkpoints", "convert", str(moe.path)]
    assert main([*line, str(tmp_path / "a"), "--int4", "attention", "--int4", "shared_expert", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["format"] == "safetensors" and facts["tensors"] == len(raw(tmp_path / "a"))
    assert main([*line, str(tmp_path / "b"), "--int4", "Shared Expert,attention"]) == 0
    assert raw(tmp_path / "a") == raw(tmp_path / "b")
    assert families.of(Checkpoint.open(tmp_path / "a")) is FAMILIES["qwen2_moe"]
