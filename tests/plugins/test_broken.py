"""Broken plugins: each is a record, its failure is told with whose it is, and nothing else notices."""

from __future__ import annotations

import json
import re
import signal
import warnings
from pathlib import Path

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends import choose
from iron_core.cli import main
from iron_core.errors import BackendUnavailable, CheckpointError, PluginError, PluginWarning, UnsupportedError
from iron_core.plugins.registry import registry
from iron_host import build
from iron_host.backend import HostBackend
from iron_host.errors import KernelError
from iron_ops_aie import SiLU

TINY = Path(__file__).parents[1] / "data" / "tiny_llama"
WATCH = "from iron_core.plugins.hooks import hookimpl\n"
READER = "class It:\n    @staticmethod\n    def sniff(path, head):\n        {}\n    @staticmethod\n    def open(path): pass\n"
BACKEND = "from iron_core.backends.null import NullBackend\nclass It(NullBackend):\n    name, preference = 'it', -5\n    {}\n"
OPERATOR = "from iron_core import UnaryElementwise\nclass It(UnaryElementwise):\n    def reference(self, x): return x * 0\n"
LOWERING = "from iron_core import Lowering, No\nclass It(Lowering):\n    def supports(self, op, dev): return No('never')\n"


@attrs.frozen
class Broken:
    """A pack of one entry point, `it` unless named, whose module is `source`; what its record says in the end."""

    group: str
    source: str
    says: str
    status: str = "failed"
    name: str = "it"
    attribute: str = ":It"
    warns: bool = False  # also told in a warning while a graph is compiled or a model runs


GROUPS = {
    "operators": "an operator is a class deriving from iron_core.Operator",
    "lowerings": "a lowering is a class deriving from iron_core.Lowering",
    "backends": "a backend is a class of the protocol iron_core.backends.protocol.Backend, made without arguments",
    "models": "a model is a class with summary and main(argv) -> int",
    "checkpoints": "a reader is a class with sniff(path, head) -> bool and open(path)",
    "tokenizers": "a tokenizer is a class with open(path, checkpoint)",
    "formats": "a format is an instance of iron_core.Format",
    "commands": "a command is a function of the rest of the line, main(argv) -> int",
    "devices": "a device is an iron_core.devices.Device, or a function () -> Device",
    "plugins": "a plugin is a module or an object with functions marked by iron_core.plugins.hooks.hookimpl",
}
CASES = {
    # -- at import ------------------------------------------------------------------------------
    "import-error": Broken("operators", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (from it_pack)"),
    "import-exits": Broken("models", "import sys\nsys.exit('bye')", "SystemExit: bye"),
    "import-interrupts": Broken("backends", "raise KeyboardInterrupt", "KeyboardInterrupt (from it_pack)"),
    "import-base-exception": Broken("checkpoints", "class Odd(BaseException): pass\nraise Odd('x')", "Odd: x"),
    "import-generator-exit": Broken("commands", "raise GeneratorExit", "GeneratorExit"),
    "import-recursion": Broken("devices", "def f(): f()\nf()", "RecursionError"),
    "import-memory": Broken("operators", "raise MemoryError", "MemoryError"),
    "import-unsayable": Broken("operators", "class E(Exception):\n    def __str__(self): 1/0\nraise E", "its message cannot be read"),
    "import-long-and-odd": Broken("operators", "raise ValueError('\\x1b[31m' + 'line\\n' * 50000)", "\\x1b[31mline line"),
    "import-mends-signals": Broken("plugins", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n1/0", "ZeroDivisionError",
        attribute="", warns=True),
    "lacks-it": Broken("operators", "x = 1", "AttributeError: module 'it_pack' has no attribute 'It'"),
    "lazy-exits": Broken("operators", "def __getattr__(name): raise SystemExit(3)", "SystemExit: 3"),
    # -- of another kind ------------------------------------------------------------------------
    **{f"{group}-int": Broken(group, "It = 42", "it names 42 (int)", warns=group == "plugins") for group in GROUPS},
    "operators-plain-class": Broken("operators", "class It: pass", "it names a class `It`; an operator is a class"),
    "operators-the-base": Broken("operators", "from iron_core import Operator as It", "an operator is a class deriving from"),
    "lowerings-an-operator": Broken("lowerings", OPERATOR, "a lowering is a class", name="host.it_pack.It"),
    "models-main-without-argv": Broken("models", "class It:\n    @staticmethod\n    def main(): pass", "whose main() does not take (argv)"),
    "models-main-of-instances": Broken("models", "class It:\n    def main(self, argv): pass",
        "whose main(self, argv) does not take (argv)"),
    "commands-of-two": Broken("commands", "def It(argv, more): pass", "does not take (argv)"),
    "devices-class": Broken("devices", "class It: pass", "a device is an iron_core.devices.Device, or a function"),
    "backends-with-arguments": Broken("backends", "class It:\n    def __init__(self, port): pass\n    def probe(self): pass",
        "takes arguments"),
    "attributes-that-raise": Broken(
        "models", "class M(type):\n    def __getattr__(self, n): raise SystemExit(n)\nclass It(metaclass=M): pass", "SystemExit: main"
    ),
    # -- readers --------------------------------------------------------------------------------
    "sniff-raises": Broken("checkpoints", READER.format("1/0"), "its sniff raised ZeroDivisionError", warns=True),
    "sniff-exits": Broken("checkpoints", READER.format("raise SystemExit"), "its sniff raised SystemExit", warns=True),
    "sniff-interrupts": Broken("checkpoints", READER.format("raise KeyboardInterrupt"), "its sniff raised KeyboardInterrupt", warns=True),
    "sniff-none": Broken("checkpoints", READER.format("return None"), "its sniff returned None; legal: True or False", warns=True),
    "sniff-text": Broken("checkpoints", READER.format("return 'gguf'"), "its sniff returned 'gguf' (str)", warns=True),
    "sniff-array": Broken("checkpoints", READER.format("import numpy; return numpy.ones(3)"), "an object of class `ndarray`", warns=True),
    "sniff-always": Broken("checkpoints", READER.format("return True"), "its sniff takes everything", warns=True),
    "sniff-of-one": Broken("checkpoints", READER.format("pass").replace("path, head", "path"),
        "whose sniff(path) does not take (path, head)"),
    # -- watchers -------------------------------------------------------------------------------
    "hook-raises": Broken("plugins", WATCH + "@hookimpl\ndef iron_plan_built(plan): 1/0", "failed at iron_plan_built: ZeroDivisionError",
        attribute="", warns=True),
    "hook-exits": Broken("plugins", WATCH + "@hookimpl\ndef iron_plan_built(plan): raise SystemExit(4)", "SystemExit: 4", attribute="",
        warns=True),
    "hook-interrupts": Broken("plugins", WATCH + "@hookimpl\ndef iron_image_built(image): raise KeyboardInterrupt", "KeyboardInterrupt",
        attribute="", warns=True),
    "hook-signature": Broken("plugins", WATCH + "@hookimpl\ndef iron_plan_built(plan, more): pass", "does not fit the events",
        attribute="", warns=True),
    "hook-second-signature": Broken(
        "plugins", WATCH + "@hookimpl\ndef iron_image_built(image): 1/0\n@hookimpl\ndef iron_plan_built(nothing): pass",
        "does not fit the events", attribute="", warns=True
    ),
    "hook-unknown": Broken("plugins", WATCH + "@hookimpl\ndef iron_plan_bilt(plan): pass", "follows iron_plan_bilt, which is no event",
        attribute="", warns=True),
    "hook-wrapper": Broken("plugins", WATCH + "@hookimpl(hookwrapper=True)\ndef iron_plan_built(plan): yield", "a wrapper", attribute="",
        warns=True),
    "hook-coroutine": Broken("plugins", WATCH + "@hookimpl\nasync def iron_plan_built(plan): pass", "a coroutine", attribute="",
        warns=True),
    "hook-of-a-class": Broken("plugins", WATCH + "class It:\n    @hookimpl\n    def iron_plan_built(self, plan): pass",
        "failed at iron_plan_built: TypeError", warns=True),
    # -- names that are somebody else's ---------------------------------------------------------
    "takes-host": Broken("backends", BACKEND.format("name = 'host'"), "backend `host` is iron-host", "shadowed", "host"),
    "takes-reference": Broken("backends", BACKEND.format("name = 'reference'"), "backend `reference` is iron-core", "shadowed",
        "reference"),
    "takes-llama": Broken("models", "class It:\n    @staticmethod\n    def main(argv): raise SystemExit(9)",
        "model `llama` is iron-llama", "shadowed", "llama"),
    "takes-silu": Broken("operators", OPERATOR, "operator `SiLU` is iron-ops-aie", "shadowed", "SiLU"),
    "takes-a-lowering": Broken("lowerings", LOWERING, "lowering `host.iron_ops_aie.SiLU` is iron-host", "shadowed",
        "host.iron_ops_aie.SiLU"),
    "takes-safetensors": Broken("checkpoints", READER.format("return True"), "checkpoint `safetensors` is iron-lm", "shadowed",
        "safetensors"),
    "takes-npu2": Broken("devices", "def It(): 1/0", "device `npu2` is Iron's own", "shadowed", "npu2"),
    "takes-doctor": Broken("commands", "def It(argv): 1/0", "command `doctor` is Iron's own", "shadowed", "doctor"),
    "takes-sim": Broken("commands", "def It(argv): 1/0", "command `sim` is iron-sim", "shadowed", "sim"),
    "takes-host-and-fails": Broken("backends", "raise SystemExit", "SystemExit (from it_pack)", "failed", "host"),
}


class One(iron.Graph):
    """A graph of one step."""

    def body(self, x):
        return SiLU(x)


@pytest.fixture
def told(capsys):
    """told(*argv): the answer of `iron ARGV...` as JSON; it ends with `status`."""

    def run(*argv, status=0):
        ended = main([*argv, "--json"])
        out, err = capsys.readouterr()
        assert ended == status, err
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def usual():
    """What the graph and the model give where nothing is broken."""
    return One().compile(x=((8,), np.float32), backend="reference")(np.ones(8, np.float32))


@pytest.mark.parametrize("case", CASES)
def test_a_broken_plugin_breaks_only_itself(site, told, usual, case, capsys, monkeypatch):
    """It is listed with what is wrong and whose it is; lists, doctor, operators, a compile and a model go on as before. What doctor
    advises ends the complaint."""
    broken = CASES[case]
    module = {"it_pack.py": broken.source}
    site.add("iron-odd", "0.2", entries={f"iron.{broken.group}.v1": {broken.name: f"it_pack{broken.attribute}"}}, modules=module)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = One().compile(x=((8,), np.float32), backend="reference")(np.ones(8, np.float32))
        assert np.array_equal(got, usual)
        One().compile(x=((8,), np.float32), backend="reference")
        if broken.group in ("models", "checkpoints"):
            answer = told("run", "llama", str(TINY), "--prompt-len", "3", "--num-tokens", "2", "--backend", "reference")
            assert len(answer["ids"]) == 2
    mine = [str(w.message) for w in warned if issubclass(w.category, PluginWarning)]
    assert len(mine) == broken.warns and all("of iron-odd 0.2" in text for text in mine), mine

    def found(records):
        (record,) = [r for r in records if r["distribution"] == "iron-odd"]
        return record

    record = found(told("plugins", "list", "--load"))
    assert record["status"] == broken.status and broken.says in record["detail"], record
    assert len(record["detail"]) < 600 and record["detail"].isprintable()
    note = broken.status == "shadowed"  # may be meant to be; it is nothing to mend
    facts = told("doctor", status=int(not note))
    (problem,) = [text for text in facts["notes" if note else "problems"] if "iron-odd 0.2" in text]
    assert broken.says in problem and "iron-odd 0.2" not in str(facts["problems" if note else "notes"])
    advice = problem.partition("IRON_PLUGINS=")[2].rstrip(".")
    assert advice == ("" if note else "-iron-odd")
    if advice:
        monkeypatch.setenv("IRON_PLUGINS", advice)
        registry.cache_clear()
        facts = told("doctor")
        assert "iron-odd 0.2" not in str(facts["problems"]) + str(facts["notes"])
        monkeypatch.delenv("IRON_PLUGINS")
        registry.cache_clear()
        registry().select(load=True)
    assert {"SiLU", "GEMV"} <= {e["name"] for e in told("operators", "list", "--load")}
    assert {b["name"]: b["available"] for b in told("backends", "list")}["reference"]
    assert choose.choose().backend.name == "host"
    assert main(["--help"]) == 0 and capsys.readouterr().err == ""


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_of_another_kind_is_refused_when_it_is_loaded(site, group):
    """Numbers, nothing, texts, modules, objects, functions: the entry point, what it names, and what is wanted."""
    odd = {
        "None": "None",
        "'text'": "'text' (str)",
        "2.5": "2.5 (float)",
        "[]": "an object of class `list`",
        "lambda a, b, c: 0": "a function `<lambda>`",
    }
    odd |= {} if group == "plugins" else {"object()": "an object of class `object`", "__import__('types')": "a module `types`"}
    source = "\n".join(f"it{i} = {given}" for i, given in enumerate(odd))
    site.add(
        "iron-odd",
        "0.2",
        entries={f"iron.{group}.v1": {f"it{i}": f"it_pack:it{i}" for i in range(len(odd))}},
        modules={"it_pack.py": source},
    )
    for i, shown in enumerate(odd.values()):
        with pytest.raises(PluginError) as caught:
            registry().load(group, f"it{i}")
        message = str(caught.value)
        assert (
            f"`it{i}` is provided by iron-odd 0.2 (entry point `it{i} = it_pack:it{i}`), which failed to load: it names {shown}" in message
        )
        assert GROUPS[group] in message or "does not take (argv)" in message
        assert message.endswith("Fix it or hide it: IRON_PLUGINS=-iron-odd.") and "a bug" not in message


# -- code that is called -------------------------------------------------------------------------------

TWICE = (
    "from iron_core import UnaryElementwise, Lowering, Yes, No\nclass Twice(UnaryElementwise):\n    def reference(self, x): return x * 2\n"
)


@pytest.mark.parametrize(
    ("lowering", "says"),
    [
        (
            "class L(Lowering):\n    def supports(self, op, dev): 1/0",
            r"failed to say whether its lowering takes .*: ZeroDivisionError: division by zero at odd_kernels\.py:3",
        ),
        ("class L(Lowering):\n    def supports(self, op, dev): raise SystemExit(5)", "SystemExit: 5"),
        ("class L(Lowering):\n    def supports(self, op, dev): raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "class L(Lowering):\n    def supports(self, op, dev): return True",
            r"supports\(\) gave True \(bool\); legal: Yes\(\) or No\(rule\)",
        ),
        ("class L(Lowering):\n    def supports(self, op): return Yes()", "TypeError"),
        ("class L(Lowering):\n    def resolve(self, op, dev): 1/0\n    def step(self, *a): pass",
            r"failed to lower .*: ZeroDivisionError.* at odd_kernels\.py:3"),
        ("class L(Lowering): pass", "failed to lower .*: AttributeError"),
        ("class L(Lowering):\n    def __init__(self): 1/0", "cannot be made: ZeroDivisionError"),
        ("class L: pass", "failed to load: it names a class `L`; a lowering is a class deriving from iron_core.Lowering"),
        ("import no_such_module", "failed to load: ModuleNotFoundError"),
    ],
)
def test_a_broken_lowering_leaves_the_reference(site, capsys, lowering, says):
    """Its operator runs by its reference, which is announced with the reason; `strict` refuses in the same words."""
    entries = {"iron.lowerings.v1": {"host.odd_pack.Twice": "odd_kernels:L"}}
    site.add(
        "iron-odd",
        "0.2",
        entries=entries,
        modules={"odd_pack.py": TWICE, "odd_kernels.py": f"from iron_core import Lowering, No, Yes\n{lowering}"},
    )
    from iron_host import backend

    backend._announced.discard("Twice")
    import odd_pack

    class Graph(iron.Graph):
        def body(self, x):
            return odd_pack.Twice(x)

    assert Graph().compile(x=((4,), np.float32), backend="host")(np.ones(4, np.float32)).tolist() == [2] * 4
    told = capsys.readouterr().err
    assert told.startswith("iron: host: Twice runs its numpy reference") and re.search(says, told) and told.count("\n") == 1
    assert "iron-odd 0.2 (entry point `host.odd_pack.Twice = odd_kernels:L`)" in told
    with pytest.raises(UnsupportedError, match=says):
        Graph().compile(x=((4,), np.float32), backend=HostBackend(strict=True))


def test_a_packs_kernel_that_does_not_compile_is_the_packs(site):
    """With its entry point, operator, step and first error on one line, then all that the compiler said; the source is kept."""
    lowering = (
        "from pathlib import Path\nfrom iron_host.lowering import Header, Unary\nclass L(Unary):\n    operator = 'odd_pack.Twice'\n"
        "    header, operation = Header(Path(__file__).with_name('odd.h')), 'odd::Twice'\n"
    )
    modules = {"odd_pack.py": TWICE, "odd_kernels.py": lowering, "odd.h": '#include "elementwise.h"\nnonsense here;\n'}
    site.add("iron-odd", "0.2", entries={"iron.lowerings.v1": {"host.odd_pack.Twice": "odd_kernels:L"}}, modules=modules)
    import odd_pack

    class Graph(iron.Graph):
        def body(self, x):
            return odd_pack.Twice(x)

    with pytest.raises(PluginError) as raised:
        Graph().compile(x=((4,), np.float32), backend="host")
    first, *words = str(raised.value).splitlines()
    told = re.fullmatch(
        r"iron-odd 0\.2 \(entry point `host\.odd_pack\.Twice = odd_kernels:L`\): the kernel of Twice \(step twice0\): .* did not compile "
        r"(\w+)\.cpp: .*odd\.h:2:1: error: .*nonsense.*\. Source and log are in (\S+)\. Fix it or hide it: IRON_PLUGINS=-iron-odd\.",
        first,
    )
    assert told, first
    symbol, kept = told[1], Path(told[2])
    assert sorted(file.name for file in kept.iterdir()) == [f"{symbol}.cpp", f"{symbol}.log", "slots.h"]
    assert '#include "odd.h"' in (kept / f"{symbol}.cpp").read_text()
    command, *log = (kept / f"{symbol}.log").read_text().splitlines()
    assert command.startswith("$ ") and f"{symbol}.cpp" in command and "error: " in "\n".join(log)
    assert len(words) == len(log) > 1 and words[0].startswith(f"In file included from {kept}/{symbol}.cpp:1:")


def test_our_kernel_that_does_not_compile_is_told_with_its_step(monkeypatch):
    """The compiler or its flags are at fault, so this machine's host is."""
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "-fno-such-flag")
    monkeypatch.setattr(build, "_loaded", {})  # a kernel that this process has loaded is not compiled again
    says = r"^host: SiLU \(step silu0\): .* did not compile \w+\.cpp: .*no-such-flag.*\. Source and log are in "
    with pytest.raises(KernelError, match=says) as raised:
        One().compile(x=((4,), np.float32), backend="host")
    assert isinstance(raised.value, BackendUnavailable)


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        *((m, f) for m in ("supports", "compile", "memory") for f in ("1/0", "raise SystemExit(0)", "raise KeyboardInterrupt")),
        *((m, "return None") for m in ("supports", "compile")),
    ],
)
def test_a_backend_that_fails_is_an_error_with_whose_it_is(site, method, failure):
    """Never the end of the process, and never a bug of ours."""
    source = "from iron_core.backends.null import NullBackend\n"
    source += f"class It(NullBackend):\n    name, preference = 'odd', None\n    def {method}(self, *a, **k): {failure}\n"
    site.add("iron-odd", "0.2", entries={"iron.backends.v1": {"odd": "odd_backend:It"}}, modules={"odd_backend.py": source})
    did = r"( failed to (say what it takes|compile|make its memory): .*|: It\.\w+\(\) gave None; legal: .*)"
    fix = r"Fix it or hide it: IRON_PLUGINS=-iron-odd\."
    with pytest.raises(PluginError, match=rf"iron-odd 0\.2 \(entry point `odd = odd_backend:It`\){did}{fix}"):
        One().compile(x=((8,), np.float32), backend="odd")(np.ones(8, np.float32))


def test_an_operator_that_fails_is_an_error_with_whose_it_is(site, capsys):
    """`iron operators run` of somebody else's: one line, exit status 2."""
    source = "from iron_core import UnaryElementwise\nclass Odd(UnaryElementwise):\n    def reference(self, x): raise SystemExit(0)\n"
    site.add("iron-odd", "0.2", entries={"iron.operators.v1": {"odd.Odd": "odd_ops:Odd"}}, modules={"odd_ops.py": source})
    assert main(["operators", "run", "odd.Odd", "size=8", "--backend", "reference"]) == 2
    assert (
        capsys.readouterr().err
        == "error: iron-odd 0.2 (entry point `odd.Odd = odd_ops:Odd`) failed in its reference: SystemExit: 0 at odd_ops.py:3. "
        "Fix it or hide it: IRON_PLUGINS=-iron-odd.\n"
    )


@pytest.mark.parametrize(
    ("cases", "says"),
    [
        ("cls.nope", "Odd.test's cases (iron-odd 0.2, entry point `odd.Odd = odd_ops:Odd`) fails at odd_ops.py:3: AttributeError"),
        ("[Case(M=3)]", "Odd.test: Case(M3) gives M, which is no field of it"),
    ],
)
def test_an_operator_that_cannot_be_tried_is_one_row_of_the_simulators_table(site, capsys, cases, says):
    """`iron sim` goes on with the others; the row says whose it is."""
    source = "from iron_core import Case, Testing, UnaryElementwise\nclass Odd(UnaryElementwise):\n"
    source += f"    test = Testing(lambda cls: {cases})\n    def reference(self, x): return x\n"
    site.add("iron-odd", "0.2", entries={"iron.operators.v1": {"odd.Odd": "odd_ops:Odd"}}, modules={"odd_ops.py": source})
    assert main(["sim", "odd.Odd", "ReLU", "--dev", "npu2", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["operator"] == "Odd" and rows[0]["failure"].startswith(says)
    assert {row["operator"] for row in rows[1:]} == {"ReLU"} and not any(row["failure"] for row in rows[1:])


ARRAY = """
import numpy as np
from iron_core import Case, In, Kernel, KernelContract, Out, Param, Testing, UnaryElementwise
def nothing(x, n): return np.asarray(x)
class Odd(UnaryElementwise):
    test = Testing(Case(size=4096))
    def reference(self, x): return x
    def kernel(self, of=nothing):
        contract = KernelContract(roles=(In, Out, Param), bindings=((2, self.tile_size),), reference=of)
        return Kernel.inline("odd", 'extern "C" void KERNEL() {{}}', (self.x.tile, self.y.tile, np.int32), contract)
    {}
"""


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("def kernel(self): return 1 / 0", r"Odd\.\w+\(\) WHOSE fails at odd_ops\.py:11: ZeroDivisionError: division by zero"),
        ("def array(self, target): return self.nothing", r"Odd\.array\(\) WHOSE fails at odd_ops\.py:11: AttributeError: .*nothing"),
        ("def resolve(self, dev): return {}['tile']", r"Odd\.resolve\(\) WHOSE fails at odd_ops\.py:11: KeyError: 'tile'"),
        ("kernel_, kernel = kernel, lambda self: self.kernel_(lambda x, n: x.nothing)",
            r"Kernel\.reference\(\) of odd_\w+ WHOSE fails at odd_ops\.py:11: AttributeError: .*nothing"),
    ],
    ids=["kernel", "array", "resolve", "tile-reference"],
)
def test_an_array_or_kernel_that_fails_is_told_with_whose_it_is(site, capsys, method, says):
    """The class, its entry point and the line; on a simulated device, one row of a table for all."""
    site.add("iron-odd", "0.2", entries={"iron.operators.v1": {"odd.Odd": "odd_ops:Odd"}}, modules={"odd_ops.py": ARRAY.format(method)})
    assert main(["operators", "run", "odd.Odd", "size=4096", "--backend", "sim", "--dev", "npu2"]) != 0
    said = "".join(capsys.readouterr())
    assert re.search(says.replace("WHOSE", r"\(iron-odd 0\.2, entry point `odd\.Odd = odd_ops:Odd`\)"), said), said


def test_a_models_main_that_fails_is_told_with_whose_it_is(site, capsys):
    """As its bug, with the line; so is a command's."""
    source = "class It:\n    summary = 'odd'\n    @staticmethod\n    def main(argv): return 1 / 0\ncommand = It.main\n"
    entries = {"iron.models.v1": {"odd": "odd_model:It"}, "iron.commands.v1": {"odd": "odd_model:command"}}
    site.add("iron-odd", "0.2", entries=entries, modules={"odd_model.py": source})
    for line in (["run", "odd"], ["odd"]):
        assert main(line) == 1
        said = capsys.readouterr().err
        assert re.fullmatch(r"error: ZeroDivisionError: division by zero \(a bug, at \S*odd_model\.py:4, of iron-odd 0\.2\)\..*\n", said)


def test_python_is_nobodys_package(site):
    """An entry point may name what it did not bring; what is raised there is not called its distribution's."""
    site.add("iron-odd", entries={"iron.operators.v1": {"cwd": "os:getcwd"}})
    assert registry().of_package("os") is None
    assert registry().of_package("iron_host").own


OPENS = "class It:\n    @staticmethod\n    def sniff(path, head): return path.suffix == '.odd'\n    @staticmethod\n    def open(path): {}\n"
FILE = "import numpy as np\nfrom types import SimpleNamespace as File\n"
FILE += "from iron_core.declare.formats import Dense\nF = Dense(np.float32)\nA = np.zeros((2, 2), np.float32)\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return None", "open() gave None without `metadata` and `tensors`"),
        ("return 42", "open() gave 42 (int) without `metadata` and `tensors`"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("1/0", "ZeroDivisionError"),
        ("return File(metadata={}, tensors=[1])", "without `metadata` and `tensors`, two mappings"),
        (
            "return File(metadata={}, tensors={1: ((2, 2), F, A)})",
            "tensor 1 is an object of class `tuple`; legal: (shape, format, array) by name",
        ),
        ("return File(metadata={}, tensors={'w': A})", "tensor 'w' is an object of class `ndarray`"),
        ("return File(metadata={}, tensors={'w': ((2.0, 2), F, A)})", "tensor 'w' has an object of class `tuple` for a shape"),
        ("return File(metadata={}, tensors={'w': ((2, 2), 'float32', A)})", "tensor 'w' has 'float32' (str) for a format"),
        ("return File(metadata={}, tensors={'w': ((2, 3), F, A)})", "of another shape than (2, 3)"),
    ],
)
def test_what_a_reader_opens_is_looked_at(site, tmp_path, capsys, body, says):
    """A file of its own kind that it cannot open, or opens as something else: one line with the file and whose reader it is."""
    site.add(
        "iron-odd", "0.2", entries={"iron.checkpoints.v1": {"odd": "odd_reader:It"}}, modules={"odd_reader.py": FILE + OPENS.format(body)}
    )
    (tmp_path / "model.odd").write_bytes(b"odd")
    assert main(["run", "llama", str(tmp_path / "model.odd")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and says in err and "model.odd" in err and "(reader `odd` of iron-odd 0.2)" in err


def test_of_two_foreign_readers_the_one_that_takes_everything_gives_way(site, tmp_path):
    """If both are honest, neither is chosen, and both are named."""
    from iron_lm.checkpoints.checkpoint import Checkpoint

    good = FILE + OPENS.format("return File(metadata={'of': __name__}, tensors={'w': ((2, 2), F, A)})")
    greedy = good.replace("path.suffix == '.odd'", "True")
    for name, source in (("greedy", greedy), ("honest", good)):
        site.add(f"iron-{name}", entries={"iron.checkpoints.v1": {name: f"{name}_reader:It"}}, modules={f"{name}_reader.py": source})
    (tmp_path / "model.odd").write_bytes(b"odd")
    with pytest.warns(PluginWarning, match="reader `greedy` of iron-greedy 1.0 is passed over: its sniff takes everything"):
        assert Checkpoint.open(tmp_path / "model.odd").metadata == {"of": "honest_reader"}
    site.add("iron-second", entries={"iron.checkpoints.v1": {"second": "second_reader:It"}}, modules={"second_reader.py": good})
    registry.cache_clear()
    with (
        pytest.warns(PluginWarning),
        pytest.raises(CheckpointError, match=r"`honest` of iron-honest 1\.0 and `second` of iron-second 1\.0 both recognise it"),
    ):
        Checkpoint.open(tmp_path / "model.odd")


# -- the user's own Ctrl-C ------------------------------------------------------------------------------

SELF = "import os, signal\ndef press(): os.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize(
    "source",
    [
        "press()\nwhile True: pass",
        "try:\n    press()\n    while True: pass\nexcept BaseException: pass",
        "try:\n    press()\n    while True: pass\nexcept BaseException: raise ImportError('no')",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\npress()\nwhile True: pass",
    ],
    ids=["goes-through", "swallowed", "turned", "others-ignored"],
)
def test_ctrl_c_while_a_plugin_is_imported_is_the_users(site, source):
    """It arrives, whatever the plugin does with it, and its handler is what it was; the plugin is not called failed."""
    site.add("iron-odd", entries={"iron.operators.v1": {"odd": "slow_pack:It"}}, modules={"slow_pack.py": SELF + source})
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        registry().load("operators", "odd")
    assert signal.getsignal(signal.SIGINT) is before
    assert [r.status for r in registry().select("operators") if r.name == "odd"] == ["not loaded"]


def test_an_alarm_of_the_programs_own_goes_through(site):
    """What any handler of this process raises is no failure of a plugin."""

    class TimeUp(Exception):
        pass

    def ring(*_):
        raise TimeUp

    source = "import os, signal\nos.kill(os.getpid(), signal.SIGALRM)\nwhile True: pass\n"
    site.add("iron-odd", entries={"iron.operators.v1": {"odd": "slow_pack:It"}}, modules={"slow_pack.py": source})
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(TimeUp):
            registry().load("operators", "odd")
    finally:
        signal.signal(signal.SIGALRM, before)
