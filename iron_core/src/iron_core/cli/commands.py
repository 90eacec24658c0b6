"""The tree of `iron` commands. Everything behind a command is imported when it runs."""

from __future__ import annotations

import difflib
import os
import textwrap
from typing import Any

import click

from iron_core.cli import streams
from iron_core.errors import PluginError, UnknownName, UsageError
from iron_core.plugins.foreign import kind_of
from iron_core.plugins.record import Record


def _reserving(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Standard output is the answer's alone from here on."""
    if value:
        streams.reserve()
    return value


_LATE = dict(ignore_unknown_options=True, allow_interspersed_args=False)
_json = click.option("--json", "as_json", is_flag=True, callback=_reserving, help="JSON instead of a table.")
_load = click.option("--load", is_flag=True, help="Import each and say what it is, or how it failed.")
_verbose = click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")


class Commands(click.Group):
    """Iron's own commands, then those of `iron.commands.v1`; one that cannot be loaded fails only when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from iron_core.plugins.registry import registry

        try:
            return [*self.commands, *registry().names("commands")]
        except UsageError:  # IRON_PLUGINS is none; help is help all the same
            return list(self.commands)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = self.commands.get(name)
        if own is not None:
            return own
        from iron_core.plugins.registry import registry

        owners = registry().owners("commands", name) or registry().called("commands", name)
        return _foreign(name, owners) if owners else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from iron_core.plugins.registry import registry

            known = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], known, 1)
            hint = registry().absent("commands", args[0]) or (f" Did you mean `{near[0]}`?" if near else "")
            raise UnknownName(f"no command `{args[0]}`.{hint} Commands: {', '.join(known)}.")
        return super().resolve_command(ctx, args)


def _foreign(name: str, owners: list[Record]) -> click.Command:
    """A third party's command: a function from the rest of the line to an exit status."""

    def call(argv: tuple[str, ...]) -> int:
        from iron_core.plugins.registry import registry

        return status_of(registry().load("commands", name)(list(argv)), f"command `{name}`")

    rest = click.Argument(["argv"], nargs=-1, type=click.UNPROCESSED)
    return Foreign(name, owners, params=[rest], callback=call, context_settings=_LATE, add_help_option=False)


class Foreign(click.Command):
    """A command of a distribution, which says of itself what its source does, without being imported."""

    def __init__(self, name: str, owners: list[Record], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.owners = owners

    def get_short_help_str(self, limit: int = 45) -> str:
        from iron_core.cli.listing import what

        text = what(self.owners[0]) if len(self.owners) == 1 else ""
        return shortened(text or f"From {' and '.join(r.owner for r in self.owners)}.", limit)


def shortened(text: str, limit: int) -> str:
    """As many whole words as fit, and dots for those that do not."""
    return textwrap.shorten(text, limit, placeholder=" ...") if len(text) > limit else text


def status_of(given: Any, what: str) -> int:
    """The exit status that a third party's main gave; PluginError if it is none."""
    if given is None or (isinstance(given, int) and 0 <= given <= 255):  # a shell sees the last eight bits: 256 would be 0
        return int(given or 0)
    raise PluginError(f"{what}: its main(argv) returned {kind_of(given)}; legal: an exit status, 0 to 255, or None for 0.")


def _group(parent: click.Group, name: str, text: str) -> Any:
    """A group of commands that says what it has when called with none."""

    @parent.group(name, help=text, invoke_without_command=True)
    @click.pass_context
    def group(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())

    return group


@click.group(cls=Commands, invoke_without_command=True)
@click.version_option(package_name="iron-core", prog_name="iron")
@_verbose
@click.pass_context
def iron(ctx: click.Context) -> None:
    """Operators, graphs and models on the CPU of this machine, a simulated NPU or a real one."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


#: The model that a line is given to whose first word is a path, or an option, in the place of a model's name.
AUTO = "auto"


class Run(click.Command):
    """`iron-run`, whose help lists the models."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from iron_core.cli.listing import what
        from iron_core.plugins.registry import registry

        try:
            owners = {name: registry().owners("models", name) for name in registry().names("models") if name != AUTO}
        except UsageError:  # as of `iron --help`
            return
        rows = [(name, what(of[0]) if len(of) == 1 else "") for name, of in owners.items()]
        with formatter.section("Models"):
            formatter.write_dl(rows) if rows else formatter.write_text("none is installed")


@iron.command(cls=Run, context_settings=_LATE, short_help="Run a model: the same as `iron-run`.", options_metavar="")
@click.argument("model", required=False, metavar="MODEL|PATH")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]...")
@click.version_option(package_name="iron-core", prog_name="iron-run")
@click.pass_context
def run(ctx: click.Context, model: str | None, argv: tuple[str, ...]) -> int:
    """Run a model by its name, or a checkpoint, a file or folder of weights, whose model is found.

    The rest of the line is the model's own: `iron-run MODEL --help` lists its options. `iron run` is the same as `iron-run`.
    """
    from iron_core.plugins.registry import registry

    if model is None:
        click.echo(ctx.get_help())
        return 0
    if registry().find("models", model) is None and AUTO in registry().names("models"):
        if not (os.path.exists(model) or os.sep in model or model.startswith("-")):
            raise UnknownName(f"{registry().missing('models', model)} No file or folder has that name either.")
        model, argv = AUTO, (model, *argv)
    return status_of(registry().load("models", model).main(list(argv)), f"model `{model}`")


@iron.command(context_settings=dict(ignore_unknown_options=True))
@click.argument("target", metavar="FILE.py:NAME|MODEL")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option("--backend", metavar="NAME", help="Who plans and prices it. Default: for an NPU the first that prices, else as for a run.")
@click.option("--dev", metavar="NAME", help="The device.")
@click.option("--fold", is_flag=True, help="Take every fold that the backend takes.")
@click.option("-o", "--output", metavar="FILE", help="A .html, .svg or .dot file. Default: the graph's name, .html.")
@click.option("--open", "opened", is_flag=True, help="Open it in a browser; without -o it is a temporary file.")
@_verbose
def picture(
    target: str, argv: tuple[str, ...], backend: str | None, dev: str | None, fold: bool, output: str | None, opened: bool
) -> None:
    """Draw a graph: its steps with what is folded in, its arena, its arrays with their tiles, fifos and paths, and what steps take.

    FILE.py:NAME is a Graph, a class of one or a compiled graph; the rest of the line are its inputs, as x=512x64 or x=512x64:float32.
    MODEL is a model's name; the rest is its own line, as --checkpoint FILE --max-seq-len 1024.
    """
    from iron_core.cli import picture as at_work

    at_work.draw(target, argv, backend=backend, dev=dev, fold=fold, output=output, opened=opened)


@iron.command("new-pack")
@click.argument("name")
@click.option("--operator", is_flag=True, help="An operator: its reference, an array with a kernel, a C++ kernel for the CPU. The default.")
@click.option("--backend", is_flag=True, help="A backend that runs elementwise operators with numpy.")
@click.option("--model", is_flag=True, help="A family of language models, with a part of its own.")
@click.option("--format", is_flag=True, help="A format of tensors: signed bytes in blocks with a scale.")
@click.option("--reader", is_flag=True, help="A reader of files of weights.")
@click.option("--into", metavar="FOLDER", help="The project's folder, new or empty. Default: NAME.")
@_verbose
def new_pack(name: str, into: str | None, **kinds: bool) -> None:
    """Write a project for a distribution of one's own: one working example of each kind, its tests, README, licence and CI.

    NAME is the distribution's, as acme-ops; its package is then acme_ops, and its operators are acme.NAME.
    """
    from iron_core.cli.new_pack import write

    folder, paths = write(name, [kind for kind, asked in kinds.items() if asked] or ["operator"], into)
    click.echo(f"{len(paths)} files in {folder}:")
    for path in paths:
        click.echo(f"  {path}")
    click.echo(f"Next: cd {folder} && python -m pip install -e '.[test,dev]' && python -m pytest")


models = _group(iron, "models", "What `iron-run` can run.")
operators = _group(iron, "operators", "The operators that are installed.")
backends = _group(iron, "backends", "Who can execute a graph.")
devices = _group(iron, "devices", "What a graph may be compiled for.")
plugins = _group(iron, "plugins", "Everything that other distributions add.")
bench = _group(iron, "bench", "How long operators take, over commits.")
cache = _group(iron, "cache", "What is built once and kept: kernels, tiles, plans, tokenizers.")


@models.command("list")
@_load
@_json
@_verbose
def models_list(load: bool, as_json: bool) -> None:
    """Models by name, whose they are, and what each is. Imports none without --load."""
    from iron_core.cli import listing

    listing.named("models", load=load, as_json=as_json)


@operators.command("list")
@_load
@_json
@_verbose
def operators_list(load: bool, as_json: bool) -> None:
    """Operators by name, whose they are, and what each computes. Imports none without --load."""
    from iron_core.cli import listing

    listing.named("operators", load=load, as_json=as_json)


@operators.command("show")
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--dev", metavar="NAME", help="For this device alone, and say too what its array is there.")
@click.option("--mlir", is_flag=True, help="Print the MLIR of that array and its sequence, alone.")
@click.option("--html", "page", is_flag=False, flag_value="", metavar="[FILE]", help="Draw that array into a page. Default: NAME.html.")
@click.option("--open", "opened", is_flag=True, help="... and open it in a browser.")
@_json
@_verbose
def operators_show(
    name: str, fields: tuple[str, ...], dev: str | None, mlir: bool, page: str | None, opened: bool, as_json: bool
) -> None:
    """What an operator computes: its fields and operands, and of each backend and device whether it takes it, by what, or why not; with
    --dev, where its array's cores are, and with --html the picture of that: tiles, fifos and their paths.

    NAME is an operator's, DISTRIBUTION:NAME, or FILE.py:CLASS. Without fields each backend is asked for its test cases in turn, and the
    array is that of the first that has one.
    """
    from iron_core.cli import operators as at_work

    at_work.show(name, fields, dev=dev, page=page, opened=opened, mlir=mlir, as_json=as_json)


@operators.command("run")
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--backend", metavar="A,B", help="Backends to compare. Default: reference, and the one chosen for graphs.")
@click.option("--dev", metavar="NAME", help="The device, for the backends that take it.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs' draw.")
@click.option("--time", "timed", is_flag=True, help="A step's time as the backend measures run lists, simulated or real.")
@_json
@_verbose
def operators_run(
    name: str, fields: tuple[str, ...], backend: str | None, dev: str | None, seed: int, timed: bool, as_json: bool
) -> int:
    """Run one operator on drawn inputs and compare each backend with its numpy reference.

    NAME is an operator's, DISTRIBUTION:NAME, or FILE.py:CLASS. Without fields its first test case runs. Exit status 1
    if a backend is further off than the operator's contract allows.
    """
    from iron_core.cli import operators as at_work

    chosen = [b.strip() for b in backend.split(",") if b.strip()] if backend else None
    return at_work.run(name, fields, backends=chosen, dev=dev, seed=seed, as_json=as_json, timed=timed)


@operators.command("test")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Every operator that is installed.")
@click.option("--backend", metavar="A,B", help="Who runs them; `kernels`: C++ of arrays, compiled. Default: all that can run here.")
@click.option("--dev", metavar="NAME", help="The device, for the backends that take it. Default: one of every family.")
@click.option("--bound", "bounds", multiple=True, metavar="EXTENT=N", help="A bound of every case's calls, in place of its own.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs' draw.")
@click.option("--extensive", is_flag=True, help="The cases beyond the default suite too.")
@_json
@_verbose
def operators_test(
    names: tuple[str, ...],
    everything: bool,
    backend: str | None,
    dev: str | None,
    bounds: tuple[str, ...],
    seed: int,
    extensive: bool,
    as_json: bool,
) -> int:
    """Run every test case of operators on every backend, compare each with the numpy reference, arrays with their tile references too,
    and compile the C++ of their kernels.

    NAME is an operator's, DISTRIBUTION:NAME, FILE.py:CLASS, or a distribution's, which means all of its operators. Exit status 1 if a
    case fails, or none was compared.
    """
    from iron_core.cli import operator_tests as at_work

    chosen = [b.strip() for b in backend.split(",") if b.strip()] if backend else None
    return at_work.test(
        names, everything=everything, backends=chosen, dev=dev, bounds=bounds, seed=seed, extensive=extensive, as_json=as_json
    )


@backends.command("list")
@_json
@_verbose
def backends_list(as_json: bool) -> None:
    """Backends, and whether each can run here (by its own probe)."""
    from iron_core.cli import listing

    listing.backends(as_json=as_json)


@devices.command("list")
@_json
@_verbose
def devices_list(as_json: bool) -> None:
    """Devices, Iron's own and those of packs: their arrays, and the backends that take them."""
    from iron_core.cli import listing

    listing.devices(as_json=as_json)


@plugins.command("list")
@click.option("--group", metavar="GROUP", help="Only this group: operators, backends, models...")
@_load
@_json
@_verbose
def plugins_list(group: str | None, load: bool, as_json: bool) -> None:
    """Every entry point, whose it is, and its state. Imports nothing without --load."""
    from iron_core.cli import listing

    listing.plugins(group=group, load=load, as_json=as_json)


@bench.command("run")
@click.argument("names", nargs=-1, metavar="[OPERATOR]...")
@click.option("--csv", "file", required=True, metavar="FILE", help="Rows are appended to it.")
@click.option("--backend", metavar="NAME", help="Who times them. Default: whichever runs graphs.")
@click.option("--dev", metavar="NAME", help="Its device.")
@click.option("--suite", metavar="NAME", help="What the rows are of. Default: BACKEND-DEVICE.")
@click.option("--commit", metavar="ID", help="Default: that of the folder.")
@click.option("--date", metavar="DATE", help="Default: the commit's.")
@_verbose
def bench_run(names: tuple[str, ...], **options: Any) -> int:
    """Time operators' `bench` cases, all without a name, and append a row for each to a file.

    Exit status 1 if there is no result; that too is a row.
    """
    from iron_core.cli import bench as at_work

    return at_work.run(names, **options)


@bench.command("history")
@click.argument("files", nargs=-1, required=True, metavar="FILE.csv...")
@click.option("--suites", metavar="A,B", help="Suites that should have given results, beside those that the files name.")
@click.option("-o", "--output", metavar="FILE", default="history.html", show_default=True, help="The page.")
@click.option("--open", "opened", is_flag=True, help="Open it in a browser.")
@_json
@_verbose
def bench_history(files: tuple[str, ...], suites: str | None, output: str, opened: bool, as_json: bool) -> None:
    """Charts of figures over commits, what changed most, and the suites that gave no result.

    A file has the columns commit, date, suite, operator, case, backend, metric, value; a row without operator and value says that the
    suite ran and gave nothing.
    """
    from iron_core.cli import bench as at_work

    at_work.history(files, suites=suites, output=output, opened=opened, as_json=as_json)


@cache.command("list")
@_json
@_verbose
def cache_list(as_json: bool) -> None:
    """Every entry: whose, what, how large and when it was used last."""
    from iron_core.cli import cache as at_work

    at_work.entries(as_json=as_json)


@cache.command("clean")
@click.option("--older-than", metavar="AGE", help="Only what was not used for so long: 12h, 30d, 8w.")
@click.option("--limit", metavar="SIZE", help="Only what was used least recently, until SIZE is left: 500M, 20G.")
@_json
@_verbose
def cache_clean(older_than: str | None, limit: str | None, as_json: bool) -> None:
    """Remove entries, all without options; none that a running process has open."""
    from iron_core.cli import cache as at_work

    at_work.clean(older_than=older_than, limit=limit, as_json=as_json)


@cache.command("path")
@_json
@_verbose
def cache_path(as_json: bool) -> None:
    """The folder that entries are in: NPU_CACHE_HOME decides it."""
    from iron_core.cli import cache as at_work

    at_work.path(as_json=as_json)


@iron.command()
@click.option("--npu", "backend", flag_value="npu", help="... and all that an NPU needs: the same as `--backend npu`.")
@click.option("--backend", metavar="NAME", help="... and all that this backend needs; exit status 1 if something keeps it from running.")
@click.option("--report", metavar="FILE", help="... written to a file to attach to a report of a fault, without names of user and machine.")
@click.option(
    "--results", metavar="FOLDER", default="build/device", show_default=True, help="Of a report: what tests of a device left."
)
@_json
@_verbose
def doctor(backend: str | None, report: str | None, results: str, as_json: bool) -> int:
    """What is installed, what can run here, and what is wrong."""
    from iron_core.cli.doctor import doctor as examine

    return examine(backend, as_json=as_json, report=report, results=results)
