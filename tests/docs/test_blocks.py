"""Every block of every page is run, or says above itself why it is not.

Python runs as it stands; lines for a shell run in a folder where the files are that they name (standins.py); a page's files are
installed as the pack that they are, its entry points loaded, its operators run by the kernels that it brings, its tests passed.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Site
from tests.distributions import ROOT
from tests.docs import standins
from tests.docs.pages import PAGES, Block, blocks, files, install

BLOCKS = [block for name, text in PAGES.items() for block in blocks(text, name)]
#: Pages with files.
PACKS = [name for name, text in PAGES.items() if any(block.kind == "file" for block in blocks(text))]
#: Commands that take seconds of CPU each: models, and all cases of operators.
LONG = ("iron-run", "iron embed", "iron picture llama", "iron compile", "iron sim", "iron tune", "iron bench", "iron checkpoints")


def of(kind: str) -> list[Block]:
    """The blocks that are run so."""
    return [block for block in BLOCKS if block.kind == kind]


@pytest.fixture
def weights(request, tmp_path):
    """`weights(text)`: real weights that a text names, in the folder."""

    def linked(text: str, folder: Path = tmp_path) -> None:
        for name, fixture in {standins.WEIGHTS: "smollm2", standins.ENCODER: "minilm"}.items():
            if name in text and not (folder / name).exists():
                (folder / name).symlink_to(request.getfixturevalue(fixture))

    return linked


def pack(page: str) -> list[tuple[str, str]]:
    """A page's files, behind those of the example that it leads to."""
    written = files(PAGES[page])
    examples = [folder for folder in sorted((ROOT / "examples").iterdir()) if f"examples/{folder.name}/README.md)" in PAGES[page]]
    kept = [(file, folder) for folder in examples for file in sorted(folder.rglob("*")) if file.suffix in (".py", ".h", ".toml")]
    return [(file.relative_to(folder).as_posix(), file.read_text()) for file, folder in kept] + written


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """`folders(page)`: a folder with a page's files, those of a pack installed below its site, and what its commands name."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = place = tmp_path_factory.mktemp(Path(name).stem)
            (place / "site").mkdir()
            standins.fill(place)
            written = pack(name)
            for path, text in written:
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (place / path).write_text(text)
            packages = [Path(path).parts[1] for path, _ in written if path.startswith("src/")]
            if packages:
                install(Site(place / "site"), packages[0].replace("_", "-"), written)
        return made[name]

    return folder


def test_every_block_is_run_or_says_why():
    """None is of a language that nothing here runs, without a mark."""
    counts = Counter(block.kind for block in BLOCKS)
    assert [block.id for block in of("unknown")] == []
    assert sum(counts.values()) == len(BLOCKS) and {"python", "file", "commands", "text", "marked", "followed"} == set(counts)
    assert counts["marked"] < (counts["python"] + counts["file"] + counts["commands"]) / 3, counts


@pytest.mark.parametrize("block", of("marked"), ids=lambda block: block.id)
def test_a_mark_says_why(block):
    """In words, and of a block that would be run without it."""
    assert len(block.why.split()) >= 3 and block.language != "text"


@pytest.mark.parametrize("page", sorted({block.page for block in of("followed")}))
def test_a_page_that_a_test_follows_is_named_there(page):
    """The file is there, and reads the page."""
    (test,) = {block.by for block in of("followed") if block.page == page}
    assert f'page("{Path(page).stem}")' in (ROOT / test).read_text()


def test_what_is_neither_run_nor_marked_is_seen():
    """Another language, a program that no test runs, a file of no kind, prose set in as code; a mark, or `text`, is a word for each."""
    found = {
        "```rust\nfn main() {}\n```\n": "unknown",
        "```sh\nls\n```\n": "unknown",
        "Say:\n\n    $ make all\n    made\n": "unknown",
        "Say:\n\n    iron list\n    make all\n": "unknown",
        "Say:\n\n    a sentence\n": "unknown",
        "`a.rs`\n\n```rust\nfn main() {}\n```\n": "unknown",
        "```python\nx = 1\n```\n": "python",
        "`a.py`\n\n```python\nx = 1\n```\n": "file",
        "Say:\n\n    $ iron list   # all\n    something\n\n    more\n": "commands",
        "```console\n$ A=1 python -m x\n```\n": "commands",
        "```text\na\n```\n": "text",
        "<!-- not run: no rust here -->\n\n```rust\nfn main() {}\n```\n": "marked",
        "<!-- not run: no make here -->\n\n    $ make all\n": "marked",
        "<!-- not run: no rust here -->\n`a.rs`\n\n```rust\nfn main() {}\n```\n": "marked",
        "<!-- run by: a.py -->\n\n```sh\nls\n```\n": "followed",
        "<!-- not run: that one -->\n\n    $ make\n\nThen\n\n    $ make more\n": "marked unknown",
    }
    for text, kinds in found.items():
        assert " ".join(block.kind for block in blocks(text)) == kinds, text
    (block,) = blocks("Say:\n\n    $ iron list   # all\n    something\n    $ iron show X=1\n")
    assert block.commands == ["iron list", "iron show X=1"] and block.line == 3


def long(block: Block) -> list[pytest.MarkDecorator]:
    """A mark where it runs a model with real weights, or commands that take seconds of CPU each."""
    begins = [line.startswith(LONG) for line in block.commands] if block.kind == "commands" else []
    return [pytest.mark.slow] if any(begins) or standins.WEIGHTS in block.text or standins.ENCODER in block.text else []


@pytest.mark.parametrize("block", [pytest.param(block, marks=long(block), id=block.id) for block in of("python")])
def test_python_runs(block, tmp_path, monkeypatch, weights, folders):
    """In any folder, in a namespace of its own, and it leaves nothing there; on a page with files, where these are installed."""
    if block.page in PACKS:
        folder = folders(block.page)
        weights(block.text, folder)
        options = dict(cwd=folder, env=standins.environment(folder), capture_output=True, text=True, timeout=600)
        (folder / "block.py").write_text(block.text)  # annotations of a body are evaluated in its module
        done = subprocess.run([sys.executable, "block.py"], **options)
        assert done.returncode == 0, done.stderr
        return
    weights(block.text)
    there = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, block.id, "exec"), {"__name__": "page"})
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.parametrize("block", [pytest.param(block, marks=long(block), id=block.id) for block in of("commands")])
def test_commands_run(block, folders, weights):
    """One after another in one folder, each to its end, without an error; one of Iron's says something."""
    folder = folders(block.page)
    for line in block.commands:
        said = standins.here(line)
        weights(said, folder)
        options = dict(cwd=folder, env=standins.environment(folder, line), capture_output=True, text=True, timeout=600)
        done = subprocess.run(["bash", "-c", said], stdin=subprocess.DEVNULL, **options)
        silent = line.startswith("iron") and not done.stdout + done.stderr
        assert done.returncode in standins.ends(line) and not silent, (said, done.returncode, done.stderr)


@pytest.mark.parametrize("name", PACKS)
def test_a_pages_files_work(name, folders):
    """Modules import, entry points load, scripts run."""
    folder, written = folders(name), pack(name)
    options = dict(cwd=folder, env=standins.environment(folder), capture_output=True, text=True, timeout=600)
    entries, modules, scripts = [], [], []
    for path, text in written:
        if path.endswith(".toml"):
            groups = tomllib.loads(text)["project"]["entry-points"]
            entries += [(group.split(".")[1], entry) for group, named in groups.items() for entry in named]
        elif path.startswith("src/") and path.endswith(".py"):
            modules.append(".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__"))
        elif path.endswith(".py") and not path.startswith("tests/"):
            scripts.append(path)
    assert entries or scripts
    load = [f"registry().load({group!r}, {entry!r})" for group, entry in entries]
    code = "\n".join(["from iron_core.plugins.registry import registry", *(f"import {module}" for module in modules), *load])
    for argv in (["-c", code], *([script] for script in scripts)):
        done = subprocess.run([sys.executable, *argv], **options)
        assert done.returncode == 0, (argv, done.stderr)


@pytest.mark.parametrize("name", [name for name in PACKS if any(path.startswith("tests/") for path, _ in files(PAGES[name]))])
def test_a_packs_own_tests_pass(name, folders):
    """With the page's pack installed."""
    folder = folders(name)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder / "tests")]
    done = subprocess.run(line, cwd=folder, env=standins.environment(folder), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PACKS if any(path.endswith(".h") for path, _ in files(PAGES[name]))])
def test_a_packs_kernels_compile_and_run(name, folders):
    """Every operator of it that has one for the CPU, at its first case: by C++ and not by a call-back."""
    folder, seen = folders(name), 0
    for path, text in files(PAGES[name]):
        for entry in tomllib.loads(text)["project"]["entry-points"].get("iron.operators.v1", {}) if path.endswith(".toml") else ():
            code = (
                "from iron_core.cli.operators import find\nfrom iron_host.backend import HostBackend\n"
                "import iron_core as iron, numpy as np\n"
                f"cls = find({entry!r})\ncase = next(iter(cls.test.cases(cls)))\nop = cls(**case.fields)\n"
                "drawn = cls.test.draw(op, np.random.default_rng(0))\n"
                "inputs = [drawn[o.name] for o in op.inputs]\n"
                "out = iron.OperatorImage(op, backend=HostBackend(strict=True))(*inputs)\n"
                "assert op.check((out,), (op.reference(*inputs),), *inputs).compared == out.size\n"
            )
            options = dict(cwd=folder, env=standins.environment(folder), capture_output=True, text=True, timeout=600)
            done = subprocess.run([sys.executable, "-c", code], **options)
            assert done.returncode == 0, (entry, done.stderr)
            seen += 1
    assert seen
