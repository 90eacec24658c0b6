"""`Runner`: one command line of a language model, from its options to an exit status."""

from __future__ import annotations

import errno
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core import Backend
from iron_core.aside import aside
from iron_core.backends.choose import choose
from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.errors import OutOfMemory, UsageError
from iron_lm import loading, process, profile
from iron_lm.architecture import Architecture
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.options import command, invoke
from iron_lm.tasks import bench, gates
from iron_lm.text.stopping import StopStrings
from iron_lm.text.template import ChatTemplate, find_template

DEFAULT_PROMPT = "The capital of France is"


@attrs.define
class Figures:
    """What a run took. Seconds are wall time; rates are tokens per second; memory is what is the process's own."""

    load_s: float = 0.0
    compile_s: float = 0.0
    first_token_s: float = 0.0
    first_token_cpu_s: float = 0.0
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    peak_memory_mb: float = 0.0

    def sample_memory(self) -> None:
        """Note the memory in use now if it is the most yet."""
        self.peak_memory_mb = max(self.peak_memory_mb, process.own_bytes() / 1e6)

    def as_dict(self) -> dict[str, float]:
        """For `--json`, with the rates."""
        rates = dict(prompt_tok_s=_rate(self.prompt_tokens, self.prompt_s), decode_tok_s=_rate(self.decode_tokens, self.decode_s))
        return attrs.asdict(self) | rates

    def line(self) -> str:
        """For people."""
        decode = f"decode {self.decode_tokens} tok at {_rate(self.decode_tokens, self.decode_s):.1f} tok/s · " if self.decode_tokens else ""
        return (
            f"prompt {self.prompt_tokens} tok in {self.prompt_s * 1e3:.0f} ms ({_rate(self.prompt_tokens, self.prompt_s):.1f} tok/s) · "
            f"{decode}first token {self.first_token_s:.2f} s after start ({self.first_token_cpu_s:.2f} s of CPU) · "
            f"peak {self.peak_memory_mb:.0f} MB of its own"
        )


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise UsageError(f"--logit-bias {text}: give ID=B, a token id and a number, as in 13=-inf.") from None


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0


def main(family: type[Architecture], argv: list[str]) -> int:
    """Run a command line of a family's; the exit status. IronError and click's errors come through to the caller."""
    with streams.in_order():
        return int(invoke(command(family.name, family.summary, lambda **options: Runner(family, **options).run()), argv) or 0)


class Runner:
    """Loads and compiles a model of the family, then does what the options ask for."""

    def __init__(self, family: type[Architecture], **options: Any) -> None:
        self.family = family
        options["num_tokens"] = options["num_tokens"] or (512 if options["chat"] else 40)
        self.options = options
        self.figures = Figures()
        self.sampler = Sampler(
            logit_bias=tuple(map(_bias, options["logit_bias"])),
            **{name: options[name] for name in ("temperature", "top_k", "seed", "top_p", "min_p", "repetition_penalty", "repeat_last_n")},
        )
        if options["chat"] and (options["json"] or options["profile"]):
            raise UsageError("--chat is a conversation; leave out --json and --profile.")
        if options["system"] and not options["chat"]:
            raise UsageError("--system is for --chat.")
        doing = [f"--{name.replace('_', '-')}" for name in ("check_accuracy", "check_determinism", "chat", "bench") if options[name]]
        if len(doing) > 1:
            raise UsageError(f"{' and '.join(doing)} exclude each other; run one after the other.")
        self.profiling = bool(options["profile"] or options["profile_trace"])
        if self.profiling and (options["check_accuracy"] or options["check_determinism"]):
            raise UsageError("--profile shows a run that generates; leave out --check-accuracy and --check-determinism.")

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Load, compile, then check or generate. OutOfMemory says what was wanted, and what takes less."""
        try:
            return self._run()
        except (MemoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                raise
            raise self._too_little(error) from error

    def _too_little(self, error: BaseException) -> OutOfMemory:
        wanted, nbytes = getattr(error, "what", ""), getattr(error, "nbytes", 0)
        asked = f" for {wanted}" if wanted else ""
        size = f" ({nbytes} bytes)" if nbytes else ""
        advice = "A smaller model takes less"
        if hasattr(self, "loaded"):
            caches = sum(cache.nbytes for cache in self.loaded.build().caches)
            taken = f"The caches of --max-seq-len {self.loaded.context} take {caches} bytes"
            advice = f"{taken}; a smaller --max-seq-len takes less"
        return OutOfMemory(f"not enough memory{asked}{size}. {advice}.", wanted, nbytes)

    def _run(self) -> int:
        o = self.options
        if o["json"]:
            streams.reserve()
        start = time.perf_counter()
        with working("drawing weights" if o["checkpoint"] is None else "loading"):
            self.loaded = self._load()
        self.figures.load_s = time.perf_counter() - start
        self.sampler.check(self.loaded.config.vocab_size)
        ids = [] if o["check_accuracy"] or o["chat"] or o["bench"] else self._prompt()  # accuracy has a text of its own
        template = self._template() if o["chat"] else None
        start = time.perf_counter()
        with working("compiling"):
            self.session = Session(
                self.loaded.model(),
                backend=self._backend(),
                dev=o["dev"],
                boundaries=iron.each_step if o["each_step"] else None,
                cache_key=self.loaded.cache_key,
            )
            self.session.compiled.load()
            self.session.sample(self.sampler)
        self.figures.compile_s = time.perf_counter() - start
        self.figures.sample_memory()
        if o["verbose"]:
            aside(self.session.compiled.explain())
        if not o["json"]:
            self._say(self._header())
        if template is not None:
            return self._chat(template)
        if o["bench"]:
            return self._bench()
        if not (o["check_accuracy"] or o["check_determinism"]):
            return self._generate(ids)
        with working("checking"):
            if o["check_accuracy"]:
                report = self._accuracy()
            else:
                report = gates.check_determinism(self.session, [ids, ids[: max(1, len(ids) // 2)]], o["check_determinism"])
        return self._report(report)

    def _backend(self) -> str | Backend | None:
        """The backend by name, or with the options given on the line; CallError for one it does not have."""
        o = self.options
        return choose(o["backend"], o["dev"], threads=o["threads"]).backend if o["threads"] is not None else o["backend"]

    def _load(self) -> loading.Loaded:
        o = self.options
        common = {k: o[k] for k in ("tokenizer", "dtype", "max_seq_len")}
        if o["random_weights"] is not None:
            if o["checkpoint"]:
                raise UsageError("--random-weights takes no --checkpoint; leave one out.")
            if o["activations"] == "int8_block":
                raise UsageError("--activations int8_block needs block-quantised weights; random ones are dense. Legal: exact.")
            return loading.random(self.family, self.family.full_size(), o["random_weights"], **common)
        if not o["checkpoint"]:
            raise UsageError("--checkpoint FILE is needed (or --random-weights SEED for a run without weights).")
        return loading.load(self.family, o["checkpoint"], activations=o["activations"], **common)

    def _prompt(self) -> list[int]:
        """The prompt's ids: the text's, cut or made to --prompt-len tokens. UsageError if the caches have no room for them."""
        o, tokenizer, length = self.options, self.loaded.tokenizer, self.options["prompt_len"]
        if length is not None:
            self._room(length)  # before a prompt of that length is made
        if tokenizer is None:
            if o["prompt"] is not None:
                raise UsageError("--prompt needs a tokenizer; give --tokenizer FILE, or --prompt-len N for random tokens.")
            rng = np.random.default_rng(o["seed"])
            ids = [int(i) for i in rng.integers(0, self.loaded.config.vocab_size, length or 5)]
        elif o["prompt"] is not None or length is None:
            ids = tokenizer.encode(DEFAULT_PROMPT if o["prompt"] is None else o["prompt"])
            if not o["prompt"] and o["prompt"] is not None:
                raise UsageError("--prompt is empty; give some text.")
            if length is not None and length > len(ids):
                raise UsageError(f"--prompt-len {length} is longer than the prompt, {len(ids)} tokens; leave one of them out.")
            ids = ids[:length]
        else:
            text = tokenizer.encode(gates.passage())
            ids = (text * (length // len(text) + 1))[:length]
        self._room(len(ids))
        return ids

    def _room(self, prompt: int) -> None:
        """UsageError unless the caches hold a prompt of this many tokens and what is asked after it."""
        o, context = self.options, self.loaded.context
        wanted = 0 if o["check_determinism"] else o["num_tokens"]
        if prompt + wanted <= context:
            return
        legal = [f"a prompt of up to {context - wanted} tokens"] if context > wanted else []
        legal += [f"--num-tokens up to {context - prompt}"] if context > prompt else []
        raise UsageError(
            f"--max-seq-len {context} has no room for a prompt of {prompt} tokens{f' and --num-tokens {wanted}' if wanted else ''}. "
            f"Legal: {', or '.join([*legal, 'a larger --max-seq-len'])}."
        )

    def _shown(self, text: str) -> str:
        """The prompt, whose ids spell `text`, as it is printed before the answer; nothing for one this program made up."""
        o, tokenizer = self.options, self.loaded.tokenizer
        if tokenizer is None or (o["prompt"] is None and o["prompt_len"] is not None):
            return ""
        return (o["prompt"] or DEFAULT_PROMPT) if o["prompt_len"] is None else text

    def _template(self) -> ChatTemplate:
        """The chat template; UsageError where a conversation is not possible."""
        loaded = self.loaded
        if loaded.tokenizer is None:
            raise UsageError("--chat needs a tokenizer; give --tokenizer FILE.")
        beside = Path(self.options["tokenizer"]) if self.options["tokenizer"] else None
        found = find_template(loaded.checkpoint, loaded.tokenizer, beside)
        if found is None:
            raise UsageError("--chat needs a chat template, and this checkpoint has none; --prompt TEXT continues a text.")
        return found

    def _chat(self, template: ChatTemplate) -> int:
        from iron_lm.tasks.chat import Chat, lines

        o = self.options

        def write(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        assert self.loaded.tokenizer is not None  # _template() saw to it
        chat = Chat(
            self.session, self.loaded.tokenizer, template, self.sampler,
            answer=o["num_tokens"], context=self.loaded.context, stop=o["stop"], system=o["system"], write=write, say=self._say,
        )  # fmt: skip
        self._say("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves")
        if o["prompt"]:
            self._say(f"> {o['prompt']}")
            chat.turn(o["prompt"])
        for line in lines():
            try:
                if not chat.take(line):
                    break
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise  # at a terminal, one too many
        return 0

    def _bench(self) -> int:
        with working("measuring"):
            rates = list(bench.measure(self.session))
        if self.options["json"]:
            print_json({"rates": [rate.as_dict() for rate in rates]} | self._facts(), indent=None)
        else:
            print_table(bench.HEADERS, [rate.cells() for rate in rates])
        return 0

    def _generate(self, ids: list[int]) -> int:
        o, tokenizer, figures = self.options, self.loaded.tokenizer, self.figures
        recording = profile.profiled(self.session) if self.profiling else nullcontext()
        stream = tokenizer.stream() if tokenizer else None
        before = stream.take(ids) if stream else ""  # the answer goes on where the prompt ends, not at a text's start
        stops = StopStrings(o["stop"])
        text: list[str] = []
        stamps: list[float] = []

        def show(token: int) -> bool:
            if not stamps:
                figures.first_token_s, figures.first_token_cpu_s = process.since_start(), time.process_time()
            stamps.append(time.perf_counter())
            text.append(stops.feed(stream(token) if stream else f"{token} "))
            if not o["json"]:
                sys.stdout.write(text[-1])
                sys.stdout.flush()
            if len(stamps) % 16 == 1:
                figures.sample_memory()
            return stops.ended

        if not o["json"]:
            sys.stdout.write(self._shown(before))
            sys.stdout.flush()
        start = time.perf_counter()
        try:
            with recording as measured:
                start = time.perf_counter()  # the limits are measured on the way in
                answer = self.session.generate(ids, o["num_tokens"], self.sampler, show, tokenizer.stop if tokenizer else ())
        finally:
            text.append(stops.feed(stream.rest() if stream else "") + stops.rest())
            if not o["json"]:
                sys.stdout.write(text[-1] + "\n")
                sys.stdout.flush()
        end = time.perf_counter()
        figures.prompt_tokens, figures.prompt_s = len(ids), (stamps[0] if stamps else end) - start
        if len(stamps) > 1:
            figures.decode_tokens, figures.decode_s = len(stamps) - 1, stamps[-1] - stamps[0]
        figures.sample_memory()
        if o["json"]:
            found = {"model": self.family.name, "prompt_ids": ids, "ids": answer, "text": "".join(text)} | self._facts() | figures.as_dict()
            print_json(found | ({"profile": measured.as_dict()} if measured is not None else {}), indent=None)
        else:
            self._say(figures.line())
            if measured is not None:
                self._say("\n".join(profile.lines(measured)))
        if o["profile_trace"]:
            self._write_trace(measured, o["profile_trace"])
        return 0

    @staticmethod
    def _write_trace(measured: Any, path: str) -> None:
        try:
            measured.write_trace(path)
        except OSError as error:
            raise UsageError(f"--profile-trace {path}: {error.strerror}.") from None

    # -- checks -----------------------------------------------------------------------------------

    def _accuracy(self) -> gates.Report:
        loaded = self.loaded
        if loaded.tokenizer is not None:
            ids = loaded.tokenizer.encode(gates.passage())
        else:
            ids = [int(i) for i in np.random.default_rng(0).integers(0, loaded.config.vocab_size, gates.POSITIONS)]
        peer = gates.llama_cpp_figures(loaded.checkpoint.path) if loaded.checkpoint else None
        return gates.check_accuracy(self.session, loaded.twin, ids, peer)

    def _report(self, report: gates.Report) -> int:
        if self.options["json"]:
            print_json(report.as_dict() | self._facts(), indent=None)
        else:
            print("\n".join(report.lines()))
        return 0 if report.passed else 1

    # -- words ------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        run = self.loaded.run
        return {
            "checkpoint": self.loaded.recognised,
            **({"assumed": self.loaded.assumed} if self.loaded.assumed else {}),
            "weights": self.loaded.stored,
            "backend": self.session.compiled.backend.name,
            "dev": self.session.compiled.dev,
            "dtype": run.dtype,
            "cache_dtype": run.cache_dtype,
            "activations": run.activations,
            "max_seq_len": self.loaded.context,
        }

    def _header(self) -> str:
        c, run, f = self.loaded.config, self.loaded.run, self.figures
        summary = getattr(self.session.compiled.backend.probe(), "summary", "")
        engine = f"{self.session.compiled.backend.name} ({summary})"
        name = f"{self.family.name} · {c.name} · " if c.name else f"{self.family.name} · "
        assumed = ", ".join(f"{key} {value:g}" for key, value in self.loaded.assumed.items())
        lines = [self.loaded.recognised] if self.loaded.recognised else []
        lines += [f"the files do not say, so as the format has it: {assumed}"] if assumed else []
        return "".join(f"{line}\n" for line in lines) + (
            f"{name}{self.loaded.stored} · {run.dtype} activations, {run.cache_dtype} cache, {run.activations} · {engine}\n"
            f"load {f.load_s:.2f} s · compile {f.compile_s:.2f} s"
        )

    @staticmethod
    def _say(text: str) -> None:
        """Words about the run go to stderr; standard output is the model's text alone."""
        aside(text)
