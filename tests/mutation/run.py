"""`python tests/mutation/run.py`: does a test fail for every wrong? Exit status 1 where one is missing.

Each mutant is put into a copy of the tree, and the tests of its module (modules.toml) run there until one fails. First come
the named mutants (named.toml), wrongs that tests once did not see; then some of the places mutants.py finds, drawn with a seed.
Who survives is printed with its difference: write the test that kills it, or say in survivors.toml why none can.

Own code, where cosmic-ray and mutmut are kept well: neither changes C++, and both want one source tree and one test command,
where this has nine distributions and a table of tests by module.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_spec = importlib.util.spec_from_file_location("mutants", HERE / "mutants.py")
mutants = importlib.util.module_from_spec(_spec)
sys.modules["mutants"] = mutants
_spec.loader.exec_module(mutants)

#: Not of the tree that is tested.
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "mutation", "*.npz", "*.safetensors")
#: Seconds on top of three times the tests' own; bytes a test may map. A mutant that takes more is seen.
PATIENCE, MEMORY = 30, 24 << 30


def table(name: str) -> Any:
    """What one of the tables here holds."""
    return tomllib.loads((HERE / f"{name}.toml").read_text())


def named() -> list[tuple[str, list[str], Any]]:
    """(module, tests, mutant) of every named mutant. ValueError for one whose text is not there once."""
    found, modules = [], table("modules")
    for name, entry in table("named").items():
        file = modules[entry["module"]]["file"]
        text = (ROOT / file).read_text()
        if text.count(entry["find"]) != 1:
            raise ValueError(f"named.toml: {name}: its text is {text.count(entry['find'])} times in {file}; it must be there once.")
        mutant = mutants.mutant(file, name, text, text.replace(entry["find"], entry["replace"]))
        found.append((entry["module"], entry["tests"], mutant))
    return found


class Workplace:
    """A copy of the tree in which tests run on mutants, with a cache of kernels that they begin with."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.cache, self.used = folder / "tree", folder / "cache", folder / "used"
        self.cache.mkdir()
        shutil.copytree(ROOT, self.tree, ignore=LEFT_OUT)
        shutil.rmtree(self.tree / "tests" / "data")
        (self.tree / "tests" / "data").symlink_to(ROOT / "tests" / "data")
        self.sources = sorted(str(path.parent) for path in self.tree.glob("iron_*/**/pyproject.toml") if (path.parent / "src").is_dir())
        for source in self.sources:
            compileall.compile_dir(source, quiet=1)
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join(f"{source}/src" for source in self.sources), "PYTHONDONTWRITEBYTECODE": "1",
            "IRON_TEST_CACHE": str(self.used), "IRON_HOST_CXXFLAGS": "-O1", "HOME": str(folder),
        }  # fmt: skip

    def passed(self, tests: list[str], seconds: float) -> tuple[bool, str]:
        """Run tests until one fails: did all pass; and what failed, or why there was no answer."""
        shutil.rmtree(self.used, ignore_errors=True)
        shutil.copytree(self.cache, self.used)
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                line, cwd=self.tree, env=self.env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_bounded
            )
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False, f"no end after {seconds:.0f} s"
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # what it started too
                except ProcessLookupError:
                    pass
                process.wait()
            output.seek(0)
            said = output.read()
        if process.returncode == 0:
            return True, ""
        if process.returncode == 1 and (failed := re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)):
            return False, "does not compile" if "did not compile" in said else failed[1]
        if process.returncode in (1, 2, 4) or process.returncode < 0 or process.returncode > 128:
            return False, said.strip().splitlines()[-1][:150] if said.strip() else f"status {process.returncode}"
        raise RuntimeError(f"pytest ended with {process.returncode}:\n{said}")

    def warm(self, tests: list[str]) -> float:
        """Run the tests on the tree as it is, keeping what they cache; the seconds it took. RuntimeError where one fails."""
        started = time.monotonic()
        passed, why = self.passed(tests, 1800)
        if not passed:
            raise RuntimeError(f"without any mutant: {why}")
        shutil.rmtree(self.cache, ignore_errors=True)
        shutil.copytree(self.used, self.cache) if self.used.is_dir() else self.cache.mkdir()
        return time.monotonic() - started

    def judge(self, mutant: Any, tests: list[str], seconds: float) -> tuple[bool, str]:
        """`passed` with the mutant in its place."""
        place = self.tree / mutant.file
        own = place.read_text()
        for compiled in place.parent.glob(f"__pycache__/{place.stem}.*"):
            compiled.unlink()
        place.write_text(mutant.text)
        try:
            return self.passed(tests, 3 * seconds + PATIENCE + (0 if mutant.file.endswith(".py") else 300))
        finally:
            place.write_text(own)


def _bounded() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def lot(seed: str, mutant: Any) -> bytes:
    """What mutants are drawn by: a larger sample has those of a smaller one, and an edit leaves the others their places."""
    return hashlib.sha256("\n".join([seed, mutant.file, mutant.before, mutant.after]).encode()).digest()


def argued() -> dict[tuple[str, str, str], str]:
    """Survivors that are known: file, lines before and after -> why no test can kill them."""
    return {(entry["file"], entry["before"].strip(), entry["after"].strip()): entry["why"] for entry in table("survivors")["survivor"]}


def main() -> int:
    modules = table("modules")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", action="append", choices=sorted(modules), help="only this one; may be given again")
    parser.add_argument("--sample", type=int, default=2, metavar="N", help="mutants drawn of each module (2); 0: the named ones only")
    parser.add_argument("--skip-named", action="store_true", help="only drawn mutants")
    parser.add_argument("--all", action="store_true", help="every mutant, not a sample")
    parser.add_argument("--seed", default="0", help="what the draw follows (0)")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants whose kind, or lines, have this text")
    given = parser.parse_args()
    chosen = given.module or list(modules)
    known, new, counts = argued(), [], {"killed": 0, "survived": 0, "argued": 0, "does not compile": 0}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="iron-mutants-") as folder:
        workplace = Workplace(Path(folder))
        for name in chosen:
            module = modules[name]
            every = mutants.mutants(module["file"], (ROOT / module["file"]).read_text())
            drawn = [one for one in every if given.match in one.kind + one.before + one.after]
            if not given.all:
                drawn = sorted(drawn, key=lambda one: lot(given.seed, one))[: given.sample]
            work = [
                (tests, one)
                for of, tests, one in named()
                if of == name and not given.skip_named and given.match in one.kind + one.before + one.after
            ]
            print(f"{name}: {len(work)} named and {len(drawn)} of {len(every)} mutants", flush=True)
            work += [(module["tests"], one) for one in drawn]
            took: dict[str, float] = {}
            for tests, one in work:
                which = " ".join(tests)
                if which not in took:
                    took[which] = workplace.warm(tests)
                passed, why = workplace.judge(one, tests, took[which])
                reason = known.get((one.file, one.before, one.after))
                verdict = why if why == "does not compile" else "killed" if not passed else "argued" if reason else "survived"
                counts[verdict] += 1
                if verdict == "survived":
                    new.append(one)
                print(
                    f"{verdict}{f' by {why}' if verdict == 'killed' else f': {reason}' if reason else ''}\n{one.difference}\n", flush=True
                )
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), f"in {time.monotonic() - started:.0f} s")
    if new:
        print("\nno test fails for these; write one, or say in tests/mutation/survivors.toml why none can:\n")
        print("\n\n".join(one.difference for one in new))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
