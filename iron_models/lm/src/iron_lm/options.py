"""The command line every language model has, on click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from iron_core.cli.encoding import as_utf8
from iron_core.errors import UsageError
from iron_lm.generation.sampler import Sampler
from iron_lm.loading import RANDOM_BLOCKS
from iron_lm.run import DRAFT_TOKENS, DRAFTED, DTYPES

#: Options of `Sampler`, by their names there.
_SAMPLING = ("temperature", "top_k", "seed", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
             "repeat_last_n")  # fmt: skip


def command(name: str, summary: str, run: Callable[..., Any]) -> click.Command:
    """The click command `iron-run NAME`; its options are the keywords of `run`."""
    option = click.Option
    whole, seed = click.IntRange(min=1), click.IntRange(min=0)
    params: list[click.Parameter] = [
        option(
            ["--checkpoint"],
            metavar="FILE",
            help="Weights: a .safetensors or pytorch_model.bin file, its folder or index, a .gguf file, or Meta's folder (params.json).",
        ),
        option(
            ["--tokenizer"],
            metavar="FILE",
            help="A tokenizer.json, tokenizer.model or GGUF, or the folder of one of the first two. Default: the checkpoint's own.",
        ),
        option(["--reader"], metavar="NAME",
            help="The reader of weight files that shall read it, whatever others recognise it: `iron plugins list --group checkpoints`."),
        option(["--quantized-from"], metavar="KIND",
            help="What the 4-bit weights of a Q4NX file were made from, which it does not say: Q4_1, Q4_0, or minima (Q4_0 where a "
            "matrix has none)."),
        option(["--gptq-zeros"], metavar="KIND",
            help="How a file of GPTQ's stores zero points, where nothing tells: v1 (less one) or v2 (as they are)."),
        option(["--lora"], multiple=True, metavar="PATH[=SCALE]",
            help="A LoRA adapter: PEFT's folder, or a GGUF for a GGUF; may be repeated. SCALE multiplies what it adds."),
        option(["--prompt"], multiple=True, help="The text to continue; with --parallel it may be repeated."),
        option(["--prompts"], metavar="FILE", help="With --parallel: more prompts, one a line."),
        option(["--parallel"], type=whole, metavar="N",
            help="Answer several prompts, up to N side by side; each answer is the one that its prompt has alone."),
        option(["--prompt-len"], type=whole, metavar="N", help="Cut the prompt to N tokens; without --prompt, make one of N."),
        option(["--num-tokens"], type=whole, metavar="N", help="Tokens to generate. Default: 40; with --chat, 512 at most an answer."),
        option(["--max-seq-len"], type=whole, metavar="N", help="Tokens the caches hold. Default: the model's, at most 32768."),
        option(["--prefill-chunk"], type=whole, metavar="N",
            help="Tokens of a prompt taken at once. Default: 64, or the context. Arrays of iron-ops-flm multiply chunks of whole 256s."),
        option(["--dtype"], type=click.Choice([*DTYPES, *RANDOM_BLOCKS]),
            help="Widen the weights, and compute and cache, in this dtype; of --random-weights also blocks."),
        option(["--activations"], type=click.Choice(["exact", "int8_block"]),
            help="Arithmetic with block-quantised weights. Default: int8_block."),
        option(["--quantize"], type=click.Choice(["int8"]),
            help="Multiply integers: projections become int8, of one scale each, when they are loaded."),
        option(["--activation-scale"], type=click.Choice(["fixed", "dynamic"]),
            help="With --quantize: one scale for all that is multiplied, or each row's own. Default: dynamic; on an NPU, fixed."),
        option(["--temperature"], type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="T", help="0 is greedy."),
        option(["--top-k"], type=whole, default=50, show_default=True, metavar="K", help="Draw from the K most likely tokens."),
        option(["--top-p"], type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True, metavar="P",
            help="... from the fewest that have probability P together."),
        option(["--min-p"], type=click.FloatRange(0, 1), default=0.0, show_default=True, metavar="P",
            help="... from those at least P times as likely as the most likely."),
        option(["--typical-p"], type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True, metavar="P",
            help="... from those nearest to the usual surprise that have probability P together."),
        option(["--repetition-penalty"], type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, metavar="R",
            help="Make tokens seen lately less likely (over 1)."),
        option(["--presence-penalty"], type=float, default=0.0, show_default=True, metavar="B",
            help="Take B off the logit of a token seen lately."),
        option(["--frequency-penalty"], type=float, default=0.0, show_default=True, metavar="B",
            help="Take B off for each time it was seen."),
        option(["--repeat-last-n"], type=seed, default=64, show_default=True, metavar="N", help="How many tokens back these look."),
        option(["--logit-bias"], multiple=True, metavar="ID=B", help="Add B to a token's logit (-inf forbids it); may be repeated."),
        option(["--json-schema"], metavar="FILE", help="Answer with JSON of this schema; where it is cut it is the beginning of some."),
        option(["--grammar"], metavar="FILE", help="Answer with a text of this grammar: GBNF, as llama.cpp has it, or Lark."),
        option(["--regex"], metavar="TEXT", help="Answer with a text that this regular expression matches whole."),
        option(["--stop"], multiple=True, metavar="TEXT", help="End the answer before this text; may be repeated."),
        option(["--seed"], type=seed, default=0, show_default=True, metavar="S", help="Fixes every draw."),
        option(["--shift"], is_flag=True,
            help="Where prompt and answer fill the context, leave out the older half of what is not kept, and go on."),
        option(["--keep"], type=click.IntRange(min=-1), metavar="N",
            help="With --shift: tokens of the prompt that stay; -1: all. Default: the one that begins every text, if any."),
        option(["--state"], metavar="FILE",
            help="Go on from what FILE holds of the prompt, and write there what is held at the end."),
        option(["--lookup"], is_flag=True,
            help="Guess that what followed the same tokens before follows again, and read the guesses together; the answer is the same."),
        option(["--draft"], metavar="FILE|FOLDER", help="... what this smaller model of the same vocabulary says."),
        option(["--draft-tokens"], type=click.IntRange(1, DRAFTED - 1), metavar="N",
            help=f"With either: tokens guessed at once, at most. Default: {DRAFT_TOKENS}."),
        option(["--chat"], is_flag=True, help="A conversation; /help lists its commands."),
        option(["--system"], metavar="TEXT", help="With --chat: what the model is told first."),
        option(["--random-weights"], type=seed, metavar="SEED",
            help="Run the full-size model on weights drawn at SEED; needs no checkpoint."),
        option(["--check-accuracy"], is_flag=True,
            help="Compare logits, or an encoder's vectors, with the float32 oracle; exit 1 if a gate fails."),
        option(["--check-determinism"], type=click.IntRange(min=2), metavar="N",
            help="Run N rounds and compare bit for bit; exit 1 if any differs."),
        option(["--bench"], is_flag=True, help="Prompt and decode rates over a grid of lengths."),
        option(["--embed"], multiple=True, metavar="TEXT", help="Print the vector of a text; may be repeated."),
        option(["--pooling"], type=click.Choice(["cls", "last", "mean"]),
            help="With --embed: the tokens a vector is made of. Default: the last."),
        option(["--dims"], type=whole, metavar="N", help="With --embed: the first N numbers of a vector."),
        option(["--truncate"], is_flag=True, help="With --embed: cut texts that are too long, instead of refusing them."),
        option(["--each-step"], is_flag=True, help="One dispatch per step instead of one per call."),
        option(["--backend"], metavar="NAME", help="Default: $IRON_BACKEND, else the first available."),
        option(["--dev"], metavar="NAME", help="The backend's device."),
        option(["--cost-table"], metavar="FILE", help="What `iron tune` measured: settings, folds and packs are chosen by it."),
        option(["--threads"], type=whole, metavar="N", help="Default: $IRON_THREADS, else every CPU."),
        option(["--no-tiles"], is_flag=True,
            help="Multiply weights as the file has them, and keep no other copy. Default: $IRON_TILES=0."),
        option(["--profile"], is_flag=True, help="Print where the time goes, by kind of step, beside the machine's limits."),
        option(["--profile-trace"], metavar="FILE", help="Write every step as JSON for ui.perfetto.dev; implies --profile."),
        option(["--json"], is_flag=True, help="One JSON object on standard output instead of text."),
        option(["--verbose"], is_flag=True, help="Print the packaging decision, every step and how each value lowers."),
    ]  # fmt: skip
    given = [
        click.Argument(["given"], required=False, metavar="[FOLDER|FILE]"),
        click.Argument(["given_tokenizer"], required=False, metavar="[TOKENIZER]"),
    ]
    help = f"{summary}\n\nFOLDER|FILE is the same as --checkpoint, TOKENIZER as --tokenizer."
    return click.Command(f"iron-run {name}", params=[*given, *params], callback=lambda **options: run(**_named(options)), help=help)


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with what was given by its place under its name, and a `sampler`. UsageError for what was given twice, and
    for rules of sampling that cannot be."""
    for name, place in (("checkpoint", "given"), ("tokenizer", "given_tokenizer")):
        value = options.pop(place)
        if value is not None and options[name] is not None:
            raise UsageError(f"{value!r} and --{name} {options[name]} both name the {name}; leave one out.")
        options[name] = options[name] if value is None else value
    sampler = Sampler(logit_bias=tuple(map(_bias, options["logit_bias"])), **{name: options[name] for name in _SAMPLING})
    if options["system"] and not options["chat"]:
        raise UsageError("--system is for --chat.")
    if options["keep"] is not None and not options["shift"]:
        raise UsageError("--keep is for --shift.")
    if options["draft_tokens"] and not (options["lookup"] or options["draft"]):
        raise UsageError("--draft-tokens is for --lookup or --draft.")
    if options["prompts"] is not None and options["parallel"] is None:
        raise UsageError("--prompts is for --parallel N.")
    if len(options["prompt"]) > 1 and options["parallel"] is None:
        raise UsageError(f"--prompt was given {len(options['prompt'])} times; legal: once, or --parallel N, which answers several.")
    for name in ("pooling", "dims"):
        if options[name] and not options["embed"]:
            raise UsageError(f"--{name} is for --embed.")
    several = {name: tuple(map(as_utf8, options[name])) for name in ("stop", "embed", "prompt")}
    texts = several.pop("prompt")
    one = {"prompt": texts[0] if texts else None, "system": options["system"] and as_utf8(options["system"])}
    return options | one | several | {"texts": texts, "sampler": sampler}


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise UsageError(f"--logit-bias {text}: give ID=B, a token id and a number, as in 13=-inf.") from None


def invoke(line: click.Command, argv: list[str]) -> Any:
    """Run a command on an argument list; its callback's result. click's own errors come through as they are."""
    with line.make_context(line.name, list(argv)) as context:
        return line.invoke(context)
