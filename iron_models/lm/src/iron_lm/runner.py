"""`Runner`: one command line of a language model: its options, then load, compile, and the task they ask for."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import iron_core as iron
from iron_core import Backend
from iron_core.aside import aside
from iron_core.backends.choose import choose
from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.compiled.graph import CompiledGraph
from iron_core.devices import device
from iron_core.errors import OutOfMemory, UsageError, printable
from iron_core.plugins.registry import registry
from iron_lm import adapters, arithmetic, loading, quantizing
from iron_lm.architecture import Architecture
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.figures import Figures
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded
from iron_lm.options import command, invoke
from iron_lm.parts.fused_product import products_of
from iron_lm.running import Running
from iron_lm.tasks.prompt import at_terminal
from iron_lm.tasks.task import Task
from iron_lm.tunables import tuned

#: Where each is, by the option that asks for it; without one of these a model continues a text. A start imports its own alone.
TASKS = {
    "check_accuracy": "check:AccuracyTask",
    "check_determinism": "check:DeterminismTask",
    "chat": "chat_task:ChatTask",
    "bench": "bench:BenchTask",
    "embed": "embed:EmbedTask",
    "parallel": "parallel:ParallelTask",
}
_CONTINUES = "generate:GenerateTask"
#: Options of a text that goes on, and of no conversation: without one there is somebody to talk to.
_OF_A_TEXT = ("prompt", "prompt_len", "random_weights", "state", "keep", "profile", "profile_trace", "json")


def main(family: type[Architecture], argv: list[str]) -> int:
    """Run a command line of a family's; the exit status. IronError and click's errors come through to the caller."""
    with streams.in_order():
        return int(invoke(command(family.name, family.summary, lambda **options: Runner(family, options).run()), argv) or 0)


def compiled(family: type[Architecture], argv: list[str], **options: Any) -> CompiledGraph:
    """The graph that this command line would run: compiled, and not loaded. options: of `Graph.compile`, beside those that the
    line gives. IronError and click's errors come through to the caller."""
    line = command(family.name, family.summary, lambda **given: Runner(family, given).compiled(**options))
    graph: CompiledGraph = invoke(line, argv)
    return graph


def task_of(options: Mapping[str, Any]) -> Task:
    """The task that a command line asks for: without a prompt, at a terminal, a conversation, where its options are of one. UsageError
    where it asks for two, or its task refuses its options."""
    asked = [option for option in TASKS if options[option]]
    if not asked and not any(options[option] not in (None, False) for option in _OF_A_TEXT) and at_terminal():
        asked = ["chat"]
    if options["system"] and asked != ["chat"]:
        raise UsageError("--system is for --chat.")
    if len(asked) > 1:
        doing = " and ".join(f"--{option.replace('_', '-')}" for option in asked)
        raise UsageError(f"{doing} exclude each other; run one after the other.")
    module, _, name = (TASKS[asked[0]] if asked else _CONTINUES).partition(":")
    found: type[Task] = getattr(import_module(f"iron_lm.tasks.{module}"), name)
    return found(options)


class Runner:
    """Loads and compiles a model of the family for the task that the options ask for, and runs it."""

    def __init__(self, family: type[Architecture], options: Mapping[str, Any]) -> None:
        self.family, self.options = family, options
        self.figures = Figures()
        self.task = task_of(options)

    def run(self) -> int:
        """The exit status. OutOfMemory says what was wanted, and what takes less."""
        try:
            return self._run()
        except (MemoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                raise
            raise self._too_little(error) from error

    def _run(self) -> int:
        o, figures = self.options, self.figures
        if o["json"]:
            streams.reserve()
        start = time.perf_counter()
        with working("drawing weights" if o["checkpoint"] is None else "loading"):
            self.loaded = self._load()
        figures.load_s = time.perf_counter() - start
        self.task.prepare(self.loaded)
        start = time.perf_counter()
        with working("compiling"):
            boundaries = iron.each_step if o["each_step"] else None
            model = self.task.compiled(backend=self._backend(), dev=o["dev"], boundaries=boundaries, **self._tuner())
        figures.compile_s = time.perf_counter() - start
        figures.sample_memory()
        if o["verbose"]:
            aside(model.compiled.explain())
        if not o["json"]:
            aside(_header(model, figures))
        return self.task.run(model, figures)

    def compiled(self, unread: bool = False, **options: Any) -> CompiledGraph:
        """The graph, whatever the task: a version for a token, and one for a chunk of a prompt; of an encoder its only one.

        unread: with `--random-weights`, of weights that are there for their shapes alone, unless they are made blocks or integers."""
        o = self.options
        dense = o["random_weights"] is not None and not (o["checkpoint"] or o["quantize"] or o["dtype"] in loading.RANDOM_BLOCKS)
        loaded = self._unread() if unread and dense else self._load()
        boundaries = iron.each_step if o["each_step"] else None
        given = dict(backend=self._backend(), dev=self.options["dev"], boundaries=boundaries) | self._tuner() | options
        if loaded.config.encodes:
            from iron_lm import encoding

            encoder: CompiledGraph = encoding.compiled(loaded, **given)
            return encoder
        with tuned(loaded.family, given["backend"], given["dev"]):
            return Session(loaded.model(), cache_key=loaded.cache_key, **given).compiled

    def _unread(self) -> Loaded:
        from iron_lm.unread import unread as unread_model

        o, dtype = self.options, self.options["dtype"] or arithmetic.dtype_on(self.options["backend"], self.options["dev"])
        sizes = dict(max_seq_len=o["max_seq_len"], prefill_chunk=o["prefill_chunk"])
        return unread_model(self.family, self.family.full_size(), dtype=dtype or "bfloat16", **sizes)

    def _load(self) -> Loaded:
        o = self.options
        quantizing.asked(o["quantize"], o["activation_scale"], o["activations"])
        common = {k: o[k] for k in ("tokenizer", "max_seq_len", "prefill_chunk", "quantize", "activation_scale")}
        common["dtype"] = o["dtype"] or arithmetic.dtype_on(o["backend"], o["dev"])
        if o["quantize"]:
            common["activation_scale"] = arithmetic.scale_on(o["backend"], o["dev"], o["activation_scale"])
        if o["random_weights"] is not None:
            for name in ("checkpoint", "lora"):
                if o[name]:
                    raise UsageError(f"--random-weights takes no --{name}; leave one out.")
            if o["activations"] == "int8_block" and o["dtype"] not in loading.RANDOM_BLOCKS:
                raise UsageError("--activations int8_block needs block-quantised weights; random ones are dense. Legal: exact.")
            return loading.random(self.family, self.family.full_size(), o["random_weights"], **common)
        if not o["checkpoint"]:
            raise UsageError("a checkpoint is needed: a file or folder of weights, or --random-weights SEED for a run without one.")
        checkpoint = o["checkpoint"]
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint.open(
                checkpoint, reader=o["reader"], quantized_from=o["quantized_from"], gptq_zeros=o["gptq_zeros"]
            )
        lora = list(map(adapters.named, o["lora"]))
        return loading.load(self.family, checkpoint, activations=o["activations"], lora=lora, **common)

    def _backend(self) -> str | Backend | None:
        """The backend by name, or with the options given on the line; CallError for one it does not have."""
        o = self.options
        given = ({} if o["threads"] is None else {"threads": o["threads"]}) | ({"tiles": False} if o["no_tiles"] else {})
        return choose(o["backend"], o["dev"], **given).backend if given else o["backend"]

    def _tuner(self) -> dict[str, Any]:
        """What a cost table says is decided by the tuner that is installed. UsageError for a file that cannot be read."""
        path = self.options["cost_table"]
        if path is None:
            return {}
        try:
            return {"coresident": registry().load("tuners", "narrowing").load(path)}
        except OSError as error:
            raise UsageError(f"--cost-table {printable(path)}: {error.strerror}.") from None

    def _too_little(self, error: BaseException) -> OutOfMemory:
        wanted, nbytes = getattr(error, "what", ""), getattr(error, "nbytes", 0)
        asked = f" for {wanted}" if wanted else ""
        size = f" ({nbytes} bytes)" if nbytes else ""
        advice = "A smaller model takes less"
        if hasattr(self, "loaded"):
            advice = "A smaller --max-seq-len takes less"
            if not self.loaded.config.encodes:
                caches = sum(cache.nbytes for cache in self.loaded.build().caches)
                advice = f"The caches of --max-seq-len {self.loaded.context} take {caches} bytes; a smaller --max-seq-len takes less"
        return OutOfMemory(f"not enough memory{asked}{size}. {advice}.", wanted, nbytes)


def _header(model: Running, figures: Figures) -> str:
    """What runs, and how long it took to start, for people."""
    loaded, run = model.loaded, model.loaded.run
    place = f" on {model.compiled.dev}" if device(model.compiled.dev).is_npu else ""
    engine = f"{model.backend.name}{place} ({getattr(model.backend.probe(), 'summary', '')})"
    name = " · ".join(dict.fromkeys(filter(None, (model.family.name, model.config.name))))  # a folder may call it the same
    assumed = ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in loaded.assumed.items())
    lines = [loaded.recognised] if loaded.recognised else []
    lines += [f"the files do not say, so as the format has it: {assumed}"] if assumed else []
    cache = "" if loaded.config.encodes else f" {run.cache_dtype} cache,"
    lines += [f"{name} · {loaded.stored} · {run.dtype} activations,{cache} {run.arithmetic} · {engine}"]
    if place:
        counted, why = products_of(model.compiled)
        by = ", ".join(f"{count} by {name}" for name, count in sorted(counted.items(), reverse=True))
        lines += [f"products of prompts: {by}{f' ({why})' if why else ''}"] if counted else []
    return "\n".join([*lines, f"load {figures.load_s:.2f} s · compile {figures.compile_s:.2f} s"])
