"""Where `iron` and `iron-run` start: checks that the `iron_core` on the path is this one.

The name is taken on the public index by an unrelated package. Without importing it, `find_spec` tells where
`iron_core` would come from; if our marker file is not there, one line says so and the process exits with 2.

Ctrl-C before a command runs and after it, while modules are imported and while Python ends, ends the process at once, with
no traceback and a shell's status for it. So little is imported before that is seen to.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MARKER = "_this_is_iron.txt"
#: What a shell gives a program that ended by SIGINT.
INTERRUPTED = 130
#: Objects that are made before garbage is looked for. A start makes nearly as many, of modules, plans and run lists, which all stay.
_GARBAGE = 250_000


def found() -> Path | None:
    """The folder `import iron_core` would take, or None."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("iron_core")
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def check() -> None:
    """Exit with 2 and one line unless `iron_core` is ours."""
    from pathlib import Path

    place = found()
    if place is None or not (place / MARKER).is_file():
        sys.stderr.write(
            f"error: `import iron_core` finds {place or 'nothing'}, which is not Iron; ours was installed beside "
            f"{Path(__file__).resolve()}. Remove the other package or put ours first on the path.\n"
        )
        raise SystemExit(2)


def reopen() -> None:
    """Give the standard streams that are closed a file, or the next file opened takes their place and what is meant for
    them. Input is empty, messages are lost; an answer is wanted, so writing it fails."""
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def iron() -> None:
    """The `iron` command."""
    _run("iron")


def iron_run() -> None:
    """The `iron-run` command, which `iron run` is too."""
    _run("iron-run")


def _run(name: str) -> None:
    try:
        import gc
        import signal

        gc.set_threshold(_GARBAGE, 10, 10)

        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # ignored, say, in a shell's background: it stays so
        if ours:
            signal.signal(signal.SIGINT, _leave)
        reopen()
        check()
        from iron_core.cli.entry import program

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = program(sys.argv[1:], name)
        if ours:
            signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        status = INTERRUPTED
    raise SystemExit(status)


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)
