"""What every model of `iron.models.v1` keeps, as tests to inherit: the contract of `iron-run NAME`, and nothing of what it computes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from iron_core.cli import main
from iron_core.compiled.graph import CompiledGraph
from iron_core.plugins.registry import registry


class ModelConformance:
    """Set `model`, the class, and `name`, what it is registered as.

        class TestAcmeTiny(ModelConformance):
            model, name = AcmeTiny, "acme-tiny"
            line = ("1", "-2", "3")

    line: what follows `iron-run NAME` on a line that runs, quickly. wrong: lines that are mistakes of a user's.
    """

    model: ClassVar[Any]
    name: ClassVar[str]
    line: ClassVar[Sequence[str]]
    wrong: ClassVar[Sequence[Sequence[str]]] = (("--no-such-option",),)

    @pytest.fixture
    def run(self, capfd: Any, tmp_path: Path, monkeypatch: Any) -> Any:
        """`run(*argv)`: `iron-run NAME ARGV...` in an empty folder: exit status, standard output, standard error."""
        monkeypatch.chdir(tmp_path)

        def ran(*argv: str) -> tuple[int, str, str]:
            capfd.readouterr()
            status = main([self.name, *argv], "iron-run")
            told = capfd.readouterr()
            return status, told.out, told.err

        return ran

    # -- what it is -----------------------------------------------------------------------------------

    def test_it_is_found_by_its_name(self) -> None:
        """The name that `iron-run` takes leads to this class."""
        assert registry().load("models", self.name) is self.model

    def test_its_name_is_a_word_of_a_command_line(self) -> None:
        """Lower case, without spaces, and no option."""
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", self.name)

    def test_its_summary_is_one_line(self) -> None:
        """`iron models list` shows it: a line of words."""
        summary = self.model.summary
        assert isinstance(summary, str) and summary.strip() == summary != "" and "\n" not in summary and len(summary) <= 120

    def test_its_main_takes_a_line(self) -> None:
        """`main(argv)`: one list of words, on the class."""
        inspect.signature(self.model.main).bind([])

    # -- help -----------------------------------------------------------------------------------------

    def test_it_has_a_page_of_help(self, run: Any) -> None:
        """`--help` prints what the line takes to standard output, nothing to standard error, and is status 0."""
        status, out, err = run("--help")
        assert status == 0 and out.strip() and not err

    def test_its_help_fits_a_terminal(self, run: Any) -> None:
        """No line of it is longer than 160 characters, and none ends in spaces that nobody sees."""
        assert max(map(len, run("--help")[1].splitlines())) <= 160

    def test_its_help_says_what_it_is_called(self, run: Any) -> None:
        """Who reads it sees which model it is of."""
        assert self.name in run("--help")[1]

    def test_help_comes_before_everything(self, run: Any) -> None:
        """Behind other words too."""
        assert run(*self.line, "--help")[0] == 0

    # -- a line that runs -----------------------------------------------------------------------------

    def test_a_line_runs(self, run: Any) -> None:
        """It prints something to standard output, and is status 0."""
        status, out, err = run(*self.line)
        assert status == 0, err
        assert out.strip()

    def test_the_same_line_gives_the_same_status(self, run: Any) -> None:
        """Nothing of one run is in the way of the next."""
        assert run(*self.line)[0] == run(*self.line)[0] == 0

    def test_a_run_leaves_nothing_in_the_folder(self, run: Any, tmp_path: Path) -> None:
        """Nothing is written to where the user happens to be, and the process is still there."""
        run(*self.line)
        assert not list(tmp_path.iterdir()) and Path.cwd() == tmp_path

    def test_a_run_leaves_the_environment(self, run: Any) -> None:
        """No variable is set or changed, but what threads and tokenizers read once."""
        before = dict(os.environ)
        run(*self.line)
        changed = {key for key in {**before, **os.environ} if before.get(key) != os.environ.get(key)}
        assert {key for key in changed if key not in ("PYTEST_CURRENT_TEST", "TOKENIZERS_PARALLELISM")} == set()

    def test_the_line_is_not_changed(self) -> None:
        """`main` is given the caller's list, and gives a status: 0 to 255, or None for 0."""
        argv = list(self.line)
        status = self.model.main(argv)
        assert argv == list(self.line)
        assert status is None or (isinstance(status, int) and status == 0)

    # -- mistakes -------------------------------------------------------------------------------------

    def test_a_mistake_is_one_line_and_status_two(self, run: Any) -> None:
        """On standard error, beginning with `error:`; no traceback, nothing on standard output."""
        for argv in self.wrong:
            status, out, err = run(*argv)
            assert status == 2, (argv, status, err)
            assert err.startswith("error: ") and err.count("\n") == 1 and not out, (argv, out, err)

    def test_a_mistake_says_what_was_wrong(self, run: Any) -> None:
        """The word that is none is in the message."""
        for argv in self.wrong:
            assert any(word.partition("=")[0] in run(*argv)[2] for word in argv), argv

    # -- the compiled graph ---------------------------------------------------------------------------

    def test_what_it_compiles_is_a_graph(self) -> None:
        """`compiled(argv)`, where it has that, gives the graph that the line would run, which says of itself what it is."""
        if not hasattr(self.model, "compiled"):
            pytest.skip("it has no compiled(), so `iron picture` and `iron compile` do not take it")
        found = self.model.compiled(list(self.line))
        assert isinstance(found, CompiledGraph) and found.explain()

    def test_it_compiles_for_the_backend_that_is_named(self) -> None:
        """`compiled(argv, backend=, dev=)` for another backend and device than the line's."""
        if not hasattr(self.model, "compiled"):
            pytest.skip("it has no compiled(), so `iron picture` and `iron compile` do not take it")
        found = self.model.compiled(list(self.line), backend="null", dev="host")
        assert found.backend.name == "null" and found.dev == "host"
