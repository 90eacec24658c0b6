"""What authors of operators and graphs get wrong: a DeclarationError names the class, the part and what would be legal.

Never the bare error of a slip, which the command line would take for a bug of Iron's.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.errors import DeclarationError

#: What the lines below may use.
NAMES = {**{name: getattr(iron, name) for name in iron.__all__}, "np": np, "F32": np.float32, "build": build, "iron": iron}
ONES = "(np.ones(3, F32))"
#: A class body that is complete but for what its array does.
ARRAY = "n: int = Param(); x = In(n); y = Out(n)\ndef array(self, target): "
#: What such a class computes, of any inputs.
REFERENCE = "def reference(self, *inputs): return inputs[0]"
FIFO = "iron.ObjectFifo(((4,), 'int32'))"

DECLARED = {
    "n: int = Param(); x = In('n'); y = Out(n)": r"A\.x: dimension 'n'; legal: a field, an int > 0",
    "n: int = Param(); x = In(OptionalDim(3), n); y = Out(n)": r"A\.x: OptionalDim\(3\); legal: a field",
    "n: int = Param(); x = In(Select(3, (n,), (n,))); y = Out(n)": r"A\.x: Select\(3, .*\); legal: a bool field, and two",
    "n: int = Param(); x = In(n, dtype='floaty'); y = Out(n)": r"A\.x: dtype='floaty': .*Legal: bfloat16, float32",
    "n: int = Param(); x = In(n, dtype=7); y = Out(n)": r"A\.x: dtype=7: ",
    "n: int = Param(); x = In(n, tile='n'); y = Out(n)": r"A\.x: tile= has 'n'; legal: a field, an int > 0",
    "n: int = Param(); x = In(n, tile=n, per=('lanes',)); y = Out(n)": r"A\.x: per= has 'lanes'; legal: a field, an int > 0",
    "n: int = Param(); x = In(n, when='g'); y = Out(n)": r"A\.x: when='g'; legal: a bool field",
    "n: int = Param(); x = In(n, when=True); y = Out(n)": r"A\.x: when=True; legal: a bool field",
    "n: int = Param(); x = In; y = Out(n)": r"A\.x is In itself; call it, as in x = In\(\.\.\.\)",
    "n: int = Param; x = In(4); y = Out(4)": r"A\.n is Param itself; call it",
    "n: int = Param(); k = n; x = In(n); y = Out(k)": r"A\.k is A\.n by another name",
    "n: int = Param(); x = In(n); y = x": r"A\.y is A\.x by another name",
    "n: int = Param(default='x'); x = In(4); y = Out(4)": r"A\.n: default 'x'; legal: a whole number",
    "n: int = Param(); T = DType('float99'); x = In(n, dtype=T); y = Out(n)": r"A\.T: 'float99' is neither",
    "n: int = Param(); t: int = Auto(domain=5); x = In(n); y = Out(n)": r"A\.t: domain=5; legal: a Divisors, Width, Choices or Placement",
    "n: int = Param(); valid = Extent('n'); x = In(n); y = Out(n)": r"Extent\('n'\): legal: a field of the class, as in Extent\(M\)",
    "n: int = Param(); valid = Extent(); x = In(n); y = Out(n)": r"Extent\(None\): legal: a field of the class",
    "n: int = Param(); v = Value(3); x = In(n); y = Out(n)": r"Value\(3\): no dtype; legal: np\.int32",
    "n: int = Param(); v = Value(derive=3); x = In(n); y = Out(n)": r"Value\(derive=3\); legal: a callable of the operator",
    "n: int = Param(); x = In(n); y = Out(n)\ndef __init__(self): pass": r"A\.__init__: an operator is made of its fields",
    "n: int = Param(); x = In(n); y = Out(n); partial = ('z',)": r"A\.partial: 'z'; legal: y",
    "n: int = Param(); x = In(n); y = Out(n); linear_in = ('y',)": r"A\.linear_in: 'y'; legal: x",
    "n: int = Param(); x = In(n); y = Out(n); folds = ('z',)": r"A\.folds: 'z'; legal: finish, prepare",
    "n: int = Param(); x = In(n); y = Out(n); accept_gather = 'z'": r"A\.accept_gather: 'z'; legal: an input with when=: none",
    "n: int = Param(); x = In(n); y = Out(n); accept_views = {'z': 1}": r"A\.accept_views: 'z'; legal: x, y",
    "n: int = Param(); x = In(n); y = Out(n); test = [Case(n=3)]": r"A\.test is \[Case\(n3\)\]; legal: Testing\(Case",
    "n: int = Param(); x = In(n); y = Out(n); test = Testing(3)": r"Testing\(3\): legal: a Case, a Sweep",
    "n: int = Param(); x = In(n); y = Out(n); test = Testing(Case(M=3))": r"A\.test: Case\(M3\) gives M, which is no field.* Fields: n\.",
    "n: int = Param(); x = In(n); y = Out(n); test = Testing(Sweep())": r"A\.test: Case\(size64\) gives size, which is no field",
    "n: int = Param(); x = In(n); y = Out(n); test = Testing(dict(M=3))": r"A\.test: Case\(M3\) gives M, which is no field",
    "n: int = Param(); x = In(n); y = Out(n); test = Testing(draw=['x'])": r"Testing\(draw=\['x'\]\); legal: a dict",
}


@pytest.mark.parametrize(("body", "says"), DECLARED.items(), ids=DECLARED)
def test_a_class_that_breaks_a_rule_is_refused_when_its_body_finishes(body, says):
    """By the declaration's own name."""
    with pytest.raises(DeclarationError, match=says):
        exec("class A(Operator):\n" + textwrap.indent(f"{body}\n{REFERENCE}", "    "), dict(NAMES))


USED = {
    "a rule": ("k: int = Param(default=lambda op: op.nope)", "A(size=3)", r"A\.k's rule fails at .*: AttributeError: 'A' object has no"),
    "a rule's key": ("k: int = Param(default=lambda op: {}[1])", "A(size=3)", r"A\.k's rule fails at .*: KeyError: 1\."),
    "validate": ("def validate(self): self.nope", "A(size=3)", r"A\.validate\(\) fails at .*no attribute 'nope'"),
    "validate's numbers": ("def validate(self): int('x')", "A(size=3)", r"A\.validate\(\) fails at .*: ValueError: invalid literal"),
    "compatible": (
        "def compatible(self, dev): 1 / 0",
        "A(size=64).resolved('npu2')",
        r"A\.compatible\(\) fails at acme\.py:2: ZeroDivisionError: division by zero\.",
    ),
    "a value's rule": ("v = Value(derive=lambda op: op.nope)", "A(size=64).v", r"A\.v's rule fails at acme\.py:2: AttributeError"),
    "a value": ("v = Value(derive=lambda op: 'a')", "A(size=64).v", r"A\.v: its rule gave 'a'; legal: a whole number\."),
    "a value's half": ("v = Value(derive=lambda op: 1.5)", "A(size=64).v", r"A\.v: its rule gave 1\.5; legal: a whole number\."),
    "cases": ("test = Testing(lambda cls: [Case(M=3)])", "list(A.test.cases(A))", r"A\.test: Case\(M3\) gives M, which is no field"),
    "reference": ("def reference(self, x): return self.nope", "G().reference" + ONES, r"A\.reference\(\) fails at .*'nope'"),
    "its shape": ("def reference(self, x): return x[:1]", "G().reference" + ONES, r"A\.reference\(\) returned \[1\] for y, which"),
    "nothing": ("def reference(self, x): pass", "G().reference" + ONES, r"A\.reference\(\) returned None for y; legal: an array"),
    "resolve": ("def resolve(self, dev): pass", "A(size=3).resolved('npu2')", r"A\.resolve\(\) returned None; return a copy"),
    "tolerance": ("def tolerance(self): return 0.1", f"A(size=3).check({ONES}, {ONES}, {ONES})", r"A\.tolerance\(\) gives 0\.1; legal"),
    "draw": ("test = Testing(draw=dict(x=np.ones(5)))", "A.test.draw(A(size=3), None)", r"A\.test draws x as \[5\]; legal: its shape"),
    "kernel": ("def kernel(self): return None", "build(A(size=1024), 'npu2')", r"A\.kernel\(\) gives None; legal: a Kernel"),
    "kernel's name": ("def kernel(self): return self.nope", "build(A(size=1024), 'npu2')", r"A\.array\(\) fails at .*'nope'"),
    "array": (ARRAY + "return self.nope", "build(A(n=8), 'npu2')", r"A\.array\(\) fails at .*'nope'"),
    "fifo": (ARRAY + "iron.ObjectFifo(5)", "build(A(n=8), 'npu2')", r"a fifo of 5; legal: an ObjectType"),
    **{
        f"tile of {part}": (ARRAY + made, "build(A(n=8), 'npu2')", rf"{part}\w*: tile='a'; legal: a Tile, as Tile\('mem', col=0\)")
        for part, made in {
            "fifo of": f"{FIFO}.prod(tile='a')",
            "fifo one": "iron.ObjectFifo(((4,), 'int32'), name='one').cons().forward(tile='a')",
            "worker core": "iron.Worker(lambda: None, tile='a')",
            "Buffer buffer": "iron.Buffer(4, 'int32', tile='a')",
            "lock lock": "iron.Lock(tile='a')",
            "lane 0 of x": "iron.Lane('x', 0, 'a')",
        }.items()
    },
    "core": (ARRAY + "iron.Worker(3)", "build(A(n=8), 'npu2')", r"worker core0: its core is 3; legal: a function"),
    "core's arguments": (
        ARRAY + "iron.Worker(lambda a, b: None, [1])",
        "build(A(n=8), 'npu2')",
        r"worker core0: its core function does not take the 1 of args and values= together: missing a required argument: 'b'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "use", "says"), USED.values(), ids=USED)
def test_a_part_that_fails_is_named_with_its_line(body, use, says):
    """When it is first used."""
    base = "Operator" if body.startswith(ARRAY) else "UnaryElementwise"
    body = body if "def reference" in body else f"{body}\n{REFERENCE}"
    source = f"class A({base}):\n{textwrap.indent(body, '    ')}\nclass G(Graph):\n    def body(self, x): return A(x)\n{use}\n"
    with pytest.raises(DeclarationError, match=says):
        exec(compile(source, "acme.py", "exec"), dict(NAMES))


BODIES = {
    "def body(self, x): return self.v": r"G\.body\(\) fails at acme\.py:2: AttributeError: 'G' object has no attribute 'v'",
    "def body(self, x): return x.nope": r"G\.body\(\) fails at acme\.py:2: AttributeError: 'Handle' object has no attribute 'nope'",
    "def body(self, x): return undefined": r"G\.body\(\) fails at acme\.py:2: NameError",
    "def body(self, x, *, n: int): return x": r"G\.body: keyword-only n is a per-call value; annotate it Scratchpad\[T\]",
    "body = 3": r"G\.body: legal: a method whose first parameter is self",
    "@staticmethod\n    def body(x): return x": r"G\.body: legal: a method whose first parameter is self",
    "def body(): return 1": r"G\.body: legal: a method whose first parameter is self",
}


@pytest.mark.parametrize(("body", "says"), BODIES.items(), ids=BODIES)
def test_a_body_that_cannot_be_traced_is_refused(body, says):
    """In Python's words, with the line, where the slip is the body's own."""
    with pytest.raises(DeclarationError, match=says):
        exec(compile(f"class G(Graph):\n    {body}\nG().trace(x=((3,), F32))", "acme.py", "exec"), dict(NAMES))


class Meant(Exception):
    """An author's own."""


@pytest.mark.parametrize("error", [Meant("so"), MemoryError("no room"), FileNotFoundError("gone")], ids=repr)
def test_what_is_no_slip_goes_on_as_it_is(error):
    """An exception of the author's own class, and what the system refuses."""

    class A(iron.UnaryElementwise):
        def reference(self, x):
            return x

        def validate(self):
            raise error

    with pytest.raises(type(error)) as raised:
        A(size=4)
    assert raised.value is error


def test_a_mistake_of_irons_own_is_not_put_on_the_author(monkeypatch):
    """It goes on as it is, and is told as a bug."""
    monkeypatch.setattr("iron_core.graph.record.record", lambda *given: [][0])
    exec(f"class A(UnaryElementwise):\n    {REFERENCE}", space := dict(NAMES))

    class G(iron.Graph):
        def body(self, x):
            return space["A"](x)

    monkeypatch.setitem(globals(), "__name__", "iron_core.made_up")  # the lambda above is of this module
    with pytest.raises(IndexError) as raised:
        G().trace(x=((3,), np.float32))
    assert not isinstance(raised.value, DeclarationError)
