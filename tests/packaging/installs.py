"""`nox -s installs`: every distribution installed as a stranger has it, in a fresh environment each time, and tried.

    python tests/packaging/installs.py [NAME...] [--keep FOLDER]

Source archives of all are built, wheels from these, and both are looked at by `twine check --strict`. Then an environment is made for
iron-core alone, one for it and each of the others (with what that one says it needs, and nothing else), and one for all together; in each
runs `try_install.py`. Ours come from the wheels built here, the only place where they are looked for; others' wheels are downloaded once,
from wherever pip is set up to find them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORE, ALL = "iron-core", "all"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="distributions to try beside iron-core, or `all`; every one of them without")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="work there, and leave it there")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="iron-installs-") as temporary:
        work = given.keep or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        folders = {tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent
                   for file in sorted([*ROOT.glob("iron_*/pyproject.toml"), *ROOT.glob("iron_*/*/pyproject.toml")])}  # fmt: skip
        known = [CORE, *(name for name in folders if name != CORE), ALL]
        if unknown := set(given.names) - set(known):
            parser.error(f"no distribution {', '.join(sorted(unknown))}; legal: {', '.join(known)}")
        ours, sources = archives(folders, work)
        run(sys.executable, "-m", "twine", "check", "--strict", *map(str, [*ours.values(), *sources.values()]))
        print(f"{len(sources)} source archives and the wheels of them: twine has nothing against them", flush=True)
        others = work / "others"
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(others), *needed_of_others(folders))
        failed = []
        with ThreadPoolExecutor(2) as pool:
            for name, seconds, why in pool.map(lambda name: tried(name, list(ours), ours, others, work), given.names or known):
                print(f"{name:24} {seconds:6.1f} s  {why or 'ok'}", flush=True)
                failed += [name] if why else []
    print(f"{len(failed)} of the installs failed: {', '.join(failed)}" if failed else "every install works")
    return int(bool(failed))


def archives(folders: dict[str, Path], work: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """The wheel of each source archive, and these, by distribution."""
    wheels, sources = {}, {}
    for folder in ("wheels", "sources", "unpacked"):
        shutil.rmtree(work / folder, ignore_errors=True)
    for name, folder in folders.items():
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(work / "sources"), cwd=folder)
        (sources[name],) = (work / "sources").glob(f"{name.replace('-', '_')}-*.tar.gz")
        with tarfile.open(sources[name]) as archive:
            archive.extractall(work / "unpacked" / name, filter="data")
        (unpacked,) = (work / "unpacked" / name).iterdir()
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work / "wheels"), cwd=unpacked)
        (wheels[name],) = (work / "wheels").glob(f"{name.replace('-', '_')}-*.whl")
    return wheels, sources


def needed_of_others(folders: dict[str, Path]) -> list[str]:
    """What ours declare to need of others' distributions."""
    lines = (line for folder in folders.values()
             for line in tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"].get("dependencies", ()))  # fmt: skip
    return sorted({line for line in lines if not line.startswith("iron-")})


def tried(name: str, every: list[str], ours: dict[str, Path], others: Path, work: Path) -> tuple[str, float, str]:
    """(name, seconds, what is wrong) of a fresh environment with iron-core and this distribution, or all of them."""
    start = time.monotonic()
    wanted = every if name == ALL else sorted({CORE, name})
    environment = work / "environments" / name
    shutil.rmtree(environment, ignore_errors=True)
    python = environment / "bin" / "python"
    places = ("--find-links", str(ours[CORE].parent), "--find-links", str(others))
    uv = (sys.executable, "-m", "uv", "--quiet", "--no-config")
    try:
        run(*uv, "venv", "--no-python-downloads", "--python", sys.executable, str(environment))
        run(*uv, "pip", "install", "--python", str(python), "--no-index", *places, *wanted)
        run(str(python), "-I", str(HERE / "try_install.py"), *wanted, cwd=environment)
    except subprocess.CalledProcessError as error:
        return name, time.monotonic() - start, f"failed:\n{error.stdout}"
    shutil.rmtree(environment)
    return name, time.monotonic() - start, ""


def run(*line: str, cwd: Path | None = None) -> None:
    """CalledProcessError with all that was printed."""
    subprocess.run(line, cwd=cwd, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}:\n{error.stdout}")
