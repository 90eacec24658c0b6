"""The command line every language model has, on click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from iron_core.cli.encoding import as_utf8
from iron_core.cli.grouped import Grouped
from iron_core.errors import UsageError
from iron_lm.generation.sampler import Sampler
from iron_lm.loading import RANDOM_BLOCKS
from iron_lm.run import ACTIVATION_SCALES, ARITHMETIC, DRAFT_TOKENS, DRAFTED, DTYPES, QUANTIZED

#: Options of `Sampler`, by their names there.
_SAMPLING = ("temperature", "top_k", "seed", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
             "repeat_last_n")  # fmt: skip


def command(name: str, summary: str, run: Callable[..., Any]) -> click.Command:
    """The click command `iron-run NAME`; its options are the keywords of `run`."""
    given = [
        click.Argument(["given"], required=False, metavar="[FILE|FOLDER]"),
        click.Argument(["given_tokenizer"], required=False, metavar="[TOKENIZER]"),
    ]
    help = (
        f"{summary}\n\nFILE|FOLDER is the same as --checkpoint, TOKENIZER as --tokenizer. Without an option that asks for something else, "
        "the model continues a prompt: --prompt, or what is piped in. With neither, at a terminal, it is a conversation."
    )
    return Grouped(f"iron-run {name}", _groups(), given, callback=lambda **options: run(**_named(options)), help=help)


def _groups() -> dict[str, list[click.Option]]:
    """The options by what they are about."""
    option = click.Option
    whole, seed = click.IntRange(min=1), click.IntRange(min=0)
    share, some = click.FloatRange(0, 1), click.FloatRange(0, 1, min_open=True)
    return {
        "Model": [
            option(["--checkpoint"], metavar="FILE|FOLDER",
                help="Weights: a .safetensors or pytorch_model.bin file, its folder or index, a .gguf file, or Meta's folder "
                "(params.json)."),
            option(["--tokenizer"], metavar="FILE|FOLDER|NAME",
                help="A tokenizer.json, tokenizer.model or GGUF, the folder of one of the first two, or a name (or NAME=FILE) of "
                "`iron plugins list --group tokenizers`. Default: the checkpoint's own."),
            option(["--lora"], multiple=True, metavar="PATH[=SCALE]",
                help="A LoRA adapter: PEFT's folder, or a GGUF for a GGUF; may be repeated. SCALE multiplies what it adds. Default: 1."),
            option(["--reader"], metavar="NAME",
                help="Who reads the file, where several could: one of `iron plugins list --group checkpoints`."),
            option(["--random-weights"], type=seed, metavar="SEED",
                help="Without a checkpoint: the full-size model on weights drawn at SEED."),
            option(["--quantized-from"], metavar="KIND",
                help="What the 4-bit weights of a Q4NX file were made from, which it does not say: Q4_1, Q4_0, or minima (Q4_0 where a "
                "matrix has none)."),
            option(["--gptq-zeros"], metavar="KIND",
                help="How a GPTQ file stores zero points, where nothing tells: v1 (minus one) or v2 (as they are)."),
        ],
        "Prompt and answer": [
            option(["--prompt"], multiple=True, metavar="TEXT",
                help="The text to continue; with --parallel it may be repeated. Default: standard input, where that is no terminal."),
            option(["--prompt-len"], type=whole, metavar="N", help="Cut the prompt to N tokens; without --prompt, make one of N."),
            option(["--num-tokens"], type=whole, metavar="N",
                help="Tokens to generate, at most. Default: 40; of an answer in a conversation 512."),
            option(["--stop"], multiple=True, metavar="TEXT", help="End the answer before this text; may be repeated."),
            option(["--json-schema"], metavar="FILE", help="Answer with JSON of this schema, or its beginning where --num-tokens cuts it."),
            option(["--grammar"], metavar="FILE", help="Answer with a text of this grammar: GBNF, as llama.cpp has it, or Lark."),
            option(["--regex"], metavar="TEXT", help="Answer with a text that this regular expression matches whole."),
            option(["--shift"], is_flag=True,
                help="Where prompt and answer fill the context, leave out the older half of what is not kept, and go on."),
            option(["--keep"], type=click.IntRange(min=-1), metavar="N",
                help="With --shift: tokens of the prompt that stay; -1: all. Default: the one that begins every text, if any."),
            option(["--state"], metavar="FILE",
                help="Go on from what FILE holds of the prompt, and write there what is held at the end."),
            option(["--parallel"], type=whole, metavar="N",
                help="Answer several prompts, up to N side by side; each answer is the one that its prompt has alone."),
            option(["--prompts"], metavar="FILE", help="With --parallel: more prompts, one a line; - is standard input."),
        ],
        "Choosing tokens": [
            option(["--temperature"], type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="T",
                help="0 takes the most likely token; 1 draws as the model says, more flattens, less sharpens."),
            option(["--top-k"], type=whole, default=50, show_default=True, metavar="K", help="Draw from the K most likely tokens."),
            option(["--top-p"], type=some, default=1.0, show_default=True, metavar="P",
                help="Draw from the fewest tokens that have probability P together."),
            option(["--min-p"], type=share, default=0.0, show_default=True, metavar="P",
                help="Draw from the tokens at least P times as likely as the most likely."),
            option(["--typical-p"], type=some, default=1.0, show_default=True, metavar="P",
                help="Draw from the tokens that are nearest to the expected surprise and have probability P together."),
            option(["--repetition-penalty"], type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, metavar="R",
                help="Make tokens seen lately less likely (over 1)."),
            option(["--presence-penalty"], type=float, default=0.0, show_default=True, metavar="B",
                help="Take B off the logit of a token seen lately."),
            option(["--frequency-penalty"], type=float, default=0.0, show_default=True, metavar="B",
                help="Take B off for each time it was seen."),
            option(["--repeat-last-n"], type=seed, default=64, show_default=True, metavar="N",
                help="How many tokens back the penalties look."),
            option(["--logit-bias"], multiple=True, metavar="ID=B", help="Add B to a token's logit (-inf forbids it); may be repeated."),
            option(["--seed"], type=seed, default=0, show_default=True, metavar="S",
                help="Of every draw: the same seed gives the same answer."),
        ],
        "Guessing several tokens at once (the answer is the same)": [
            option(["--lookup"], is_flag=True, help="Guess that what followed the same tokens before follows again."),
            option(["--draft"], metavar="FILE|FOLDER", help="Guess what this smaller model of the same vocabulary says."),
            option(["--draft-tokens"], type=click.IntRange(1, DRAFTED - 1), metavar="N",
                help=f"With either: tokens guessed at once, at most. Default: {DRAFT_TOKENS}."),
        ],
        "Instead of an answer": [
            option(["--chat"], is_flag=True, help="A conversation; /help lists its commands."),
            option(["--system"], metavar="TEXT", help="With --chat: what the model is told first."),
            option(["--embed"], multiple=True, metavar="TEXT", help="Print the vector of a text; may be repeated."),
            option(["--pooling"], type=click.Choice(["cls", "last", "mean"]),
                help="With --embed: the tokens a vector is made of. Default: the model's own, else the last."),
            option(["--dims"], type=whole, metavar="N", help="With --embed: the first N numbers of a vector. Default: all."),
            option(["--truncate"], is_flag=True, help="With --embed: cut texts that are too long, instead of refusing them."),
            option(["--bench"], is_flag=True, help="Prompt and decode rates over a grid of lengths."),
            option(["--check-accuracy"], is_flag=True,
                help="Compare logits, or an encoder's vectors, with a float32 computation apart; exit status 1 if a gate fails."),
            option(["--check-determinism"], type=click.IntRange(min=2), metavar="N",
                help="Run N rounds and compare bit for bit; exit status 1 if any differs."),
        ],
        "Arithmetic": [
            option(["--dtype"], type=click.Choice([*DTYPES, *RANDOM_BLOCKS]), metavar="DTYPE",
                help=f"Widen the weights to {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, and compute and cache in it; --random-weights also "
                f"has blocks, as {min(RANDOM_BLOCKS)}. Default: as the file has them."),
            option(["--activations"], type=click.Choice(ARITHMETIC), help="With block-quantised weights. Default: int8_block."),
            option(["--quantize"], type=click.Choice(QUANTIZED),
                help="Multiply integers: projections become int8, of one scale each, when they are loaded."),
            option(["--activation-scale"], type=click.Choice(ACTIVATION_SCALES),
                help="With --quantize: one scale for all that is multiplied, or each row's own. Default: dynamic; on an NPU, fixed."),
        ],
        "Where and how it runs": [
            option(["--backend"], metavar="NAME", help="One of `iron backends list`. Default: $IRON_BACKEND, else the first available."),
            option(["--dev"], metavar="NAME", help="The backend's device, as npu2. Default: its first."),
            option(["--threads"], type=whole, metavar="N", help="Of the CPU. Default: $IRON_THREADS, else every CPU."),
            option(["--max-seq-len"], type=whole, metavar="N",
                help="Tokens of prompt and answer that fit (the context). Default: the model's, at most 32768."),
            option(["--prefill-chunk"], type=whole, metavar="N",
                help="Tokens of a prompt taken at once. Default: 64, or the context. On an NPU, iron-ops-flm's arrays take whole 256s."),
            option(["--each-step"], is_flag=True, help="One dispatch per step instead of one per call."),
            option(["--cost-table"], metavar="FILE", help="What `iron tune` measured, by which settings, folds and grouping are chosen."),
            option(["--no-tiles"], is_flag=True,
                help="Multiply weights as the file has them, and keep no rearranged copy; $IRON_TILES=0 is the same."),
        ],
        "What is printed": [
            option(["--profile"], is_flag=True, help="Print where the time goes, by kind of step, beside the machine's limits."),
            option(["--profile-trace"], metavar="FILE", help="Write every step as JSON for ui.perfetto.dev; implies --profile."),
            option(["--json"], is_flag=True, help="One JSON object on standard output instead of text."),
            option(["--verbose"], is_flag=True,
                help="Print the packaging decision, every step and how each value lowers; and an error's traceback."),
        ],
    }  # fmt: skip


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with what was given by its place under its name, and a `sampler`. UsageError for what was given twice, and
    for rules of sampling that cannot be."""
    for name, place in (("checkpoint", "given"), ("tokenizer", "given_tokenizer")):
        value = options.pop(place)
        if value is not None and options[name] is not None:
            raise UsageError(f"{value!r} and --{name} {options[name]} both name the {name}; leave one out.")
        options[name] = options[name] if value is None else value
    sampler = Sampler(logit_bias=tuple(map(_bias, options["logit_bias"])), **{name: options[name] for name in _SAMPLING})
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
