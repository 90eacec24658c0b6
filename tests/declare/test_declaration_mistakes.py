"""Wrong declarations and what they give: one line, which names the class, the rule, the value and what would be legal.

Each is source, then `=>` and how its message begins.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.errors import CallError, DeclarationError

#: `rows` is a number of the module's that a field is named like.
NAMES = {**{name: getattr(iron, name) for name in iron.__all__}, "np": np, "F32": np.float32, "build": build, "iron": iron, "rows": 4}
#: A class body that is whole.
WHOLE = """
n: int = Param(); x = In(n); y = Out(n)
def reference(self, x): return x
"""

#: In front of that body.
IN_FRONT = """
k: object = Param(default={})
=> A.k: default {} can be changed, and is one for all operators; legal: a number, a string, a tuple of them, or a rule, default=lambda

k: object = Param(default=set())
=> A.k: default set() can be changed, and is one for all operators; legal: a number, a string, a tuple of them, or a rule, default=lambda

k: object = Param(default=np.ones(3))
=> A.k: default array([1., 1., 1.]) can be changed, and is one for all operators; legal: a number, a string, a tuple of them, or a rule,

k: int = Param(default=lambda: 3)
=> A.k: its rule takes something else than the operator; legal: default=lambda op: ...

k: int = Param(default=lambda op, dev: 3)
=> A.k: its rule takes something else than the operator; legal: default=lambda op: ...

k: int = Param(default=int)
=> A.k: default <class 'int'>; legal: a whole number.

k: int = Param(probe='a')
=> A.k: probe 'a'; legal: a whole number.

k: int = Auto(0)
=> A.k: default 0; legal: at least 1.

k: int = Auto(domain=Width)
=> A.k: domain=<class 'iron_core.declare.domain.Width'>; legal: a Divisors, Width, Choices or Placement.

k: int = Auto(domain=Choices(1, 2))
=> A.k: domain's when=2; legal: a bool field's name, of k, n.

k: int = Auto(domain=Choices(3))
=> A.k: domain's options=3; legal: a tuple of values, as Choices((1, 2)), or a callable of (op) or (op, dev), as lambda op: op.size.

k: int = Auto(domain=Width(when='zz'))
=> A.k: domain's when='zz'; legal: a bool field's name, of k, n.

f: bool = Param(default=True); k: int = Auto(domain=Width(when=f))
=> A.k: domain's when=Param(f); legal: a bool field's name, of f, k, n.

k: str = Auto(domain=Placement(['a']))
=> A.k: domain's named=['a']; legal: a dict of Pins, as Placement({'row': Pins()}).

k: str = Auto(default='zz', domain=Placement({'a': Pins()}))
=> A.k: default 'zz'; legal: a placement that the domain names, of a.

T = DType(lambda: F32)
=> A.T: its rule takes something else than the operator; legal: default=lambda op: ...

_k: int = Param(default=3)
=> A._k: a declaration's name begins with a letter, for calls give it by keyword.

lower: int = Param(default=3)
=> A.lower: Case(...) has a keyword of that name, so no case could give the field; choose another.
"""

#: Behind it.
BEHIND = """
test = Testing(Case(n=3, lower='yes'))
=> A: Case(lower='yes'): legal: True or False.

test = Testing(Case(n=3, id=3))
=> A: Case(id=3): legal: a string, the case's name in tables.

test = Testing(Sweep(64))
=> A: Sweep(64): 1 given; legal: none by position, the others by keyword.

factor: float
=> A.factor: float declares nothing; legal: factor: float = Param().

factor: float = 2.0
=> A.factor = 2.0 is no field; legal: factor: float = Param(default=2.0), or ClassVar[float] of what no call gives.

inputs = 3
=> A.inputs: the name is Operator's own; choose another.

fields = ['n']
=> A.fields: the name is Operator's own; choose another.

def shape(self): return 3
=> A.shape: the name is Operator's own; choose another.

def resolved(self): return self
=> A.resolved: the name is Operator's own; choose another.

tolerance = Tolerance(exact=True)
=> A.tolerance is Tolerance(exact=True, terms=0.0, ulps=2.0, absolute=0.0); legal: a method, def tolerance(self).

tolerance = 0.1
=> A.tolerance is 0.1; legal: a method, def tolerance(self).

def tolerance(self, x): return Tolerance()
=> A.tolerance(self, x) does not take what it is given; legal: def tolerance(self).

test = Testing(Case(n=3), tolerance=0.1)
=> A: Testing(tolerance=0.1); legal: a Tolerance, as Tolerance(terms=1).

ops = 3
=> A.ops is 3; legal: a method, def ops(self).

def validate(self, dev): pass
=> A.validate(self, dev) does not take what it is given; legal: def validate(self).

def validate(): pass
=> A.validate() does not take what it is given; legal: def validate(self).

def composed(self): pass
=> A.composed(self) does not take what it is given; legal: def composed(self, x).

def magnitude(self): pass
=> A.magnitude(self) does not take what it is given; legal: def magnitude(self, x).

folds = 'finish'
=> A.folds = 'finish'; legal: a tuple of names, as ('finish',), of finish, prepare.

partial = (y,)
=> A.partial: out y; legal: y.

partial = ('y',)
=> A.reference(self, x) does not take what it is given; legal: def reference(self, x, *, y).

elementwise = 'no'
=> A.elementwise = 'no'; legal: True or False, as its base's False.

reports = {'z': 'bad'}
=> A.reports: 'z'; legal: y.

reports = ['y']
=> A.reports = ['y']; legal: a dict whose keys are of y.

accept_views = {'x': 1}
=> A.accept_views: x by 1; legal: ViewMembers of the class's fields and members.

accept_gather = 'x'
=> A.accept_gather: 'x'; legal: an input with when=: none.

v = Value(derive=lambda: 3)
=> A: Value(derive=a callable of other arguments); legal: a callable of the operator, as lambda op: op.size // 16.

v = Value(derive=lambda op, dev: 3)
=> A: Value(derive=a callable of other arguments); legal: a callable of the operator, as lambda op: op.size // 16.

v = Value(lambda op: 3)
=> A: Value(a lambda): a rule by position; legal: Value(derive=lambda op: ...).

v = Value(np.float32)
=> A: Value(float32): cores read words of 32 bits; legal: np.int32, np.uint32 (a float's bits as int32).

v = Value(np.int64)
=> A: Value(int64): cores read words of 32 bits; legal: np.int32, np.uint32 (a float's bits as int32).

valid = Extent(3)
=> A: Extent(3): legal: a field of the class, as in Extent(M): a Param that an operand's shape has.

valid = Extent(x)
=> A: Extent(in x): legal: a field of the class, as in Extent(M): a Param that an operand's shape has.

valid = Extent(n); other = Extent(n)
=> A.other: n is bounded by valid already; legal: one Extent each.

test = Case(n=3)
=> A.test is Case(n3); legal: Testing(Case(...), ...).

test = Testing([Case(n=3)])
=> A: Testing([Case(n3)]): legal: a Case, a Sweep, a dict of fields, or a callable of the class.

test = Testing(cases=[Case(n=3)])
=> A: Testing(cases=...): no keyword of it. Legal: tolerance, draw.

tests = Testing(Case(n=3))
=> A.tests is a Testing, which is looked for as A.test; legal: test = Testing(...).

test = Testing(Case(3))
=> A: Case(3): 1 given; legal: none by position, the others by keyword.

test = Testing(Case(n='a'))
=> A.test: Case(na) gives n='a'; legal: a whole number.

test = Testing(Case(n=0))
=> A.test: Case(n0) gives n=0; legal: a dimension, a whole number of at least 1.

test = Testing(Case(n=3, x=3))
=> A.test: Case(n3-x3) gives x, which is no field of it. Fields: n.

valid = Extent(n); test = Testing(Case(n=3, bounds=3))
=> A: Case(bounds=3): legal: a dict of extents, as bounds=dict(valid=3).

valid = Extent(n); test = Testing(Case(n=3, bounds=dict(valid=9)))
=> A.test: Case(n3-valid9) bounds valid by 9; legal: 0 to 3.

valid = Extent(n); test = Testing(Case(n=3, bounds=dict(valid='a')))
=> A.test: Case(n3-valida) bounds valid by 'a'; legal: 0 to 3.

test = Testing(lambda: [])
=> A: Testing(a lambda): legal: a callable of the class, lambda cls: [Case(...)].

test = Testing(draw=dict(normal=('z',)))
=> A.test draws z, which is none of its inputs. Legal: x, by normal=, centered= or by name.

test = Testing(draw=dict(normal='x'))
=> A.test: draw= has normal='x'; legal: a tuple of inputs, of x.

test = Testing(draw=dict(x=lambda op: np.ones(3)))
=> A.test draws x by a callable of other arguments; legal: an array, or a callable of (op, rng).

test = Testing(draw=lambda: {})
=> A: Testing(draw=a lambda); legal: a dict, as draw=dict(normal=('x',)), or a callable of the operator.

test = Testing(draw=dict(x='random'))
=> A.test draws x by 'random'; legal: an array, or a callable of (op, rng).

row = Scratchpad[np.int32]
=> A.row: Scratchpad[...] annotates a keyword of a graph's body; legal here: row = Scratchpad(np.int32).

row: Scratchpad[np.int32]
=> A.row: Scratchpad[...] annotates a keyword of a graph's body; legal: row = Scratchpad(np.int32).

row = Scratchpad(np.int64)
=> A: Scratchpad[int64]: a per-call value is a 32-bit integer; legal: np.int32, np.uint32.

row = Scratchpad
=> A.row is Scratchpad itself; call it, as in row = Scratchpad(...).

valid = Extent
=> A.valid is Extent itself; call it, as in valid = Extent(...).

v = Value
=> A.v is Value itself; call it, as in v = Value(...).

row = Scratchpad(np.int32, within='zz')
=> A.row: within='zz'; legal: an operand of the class, as declared above it.

row = Scratchpad(np.int32)
=> A.reference(self, x) does not take what it is given; legal: def reference(self, x, *, row).

__slots__ = ('a',)
=> A.__slots__: the name is Operator's own; choose another.

z = In(x)
=> A.z: dimension in x; legal: a field, an int > 0, OptionalDim, Select.
"""

#: Whole bodies.
BODIES = """
n: int = Param(); x = In(*n); y = Out(n)
=> A: Param(n) taken apart: a field has no value while its class is made.

n: int = Param(); x = In(len(n)); y = Out(n)
=> A: Param(n) as a length: a field has no value while its class is made.

n: int = Param(); x = In(max(n, 3)); y = Out(n)
=> A: Param(n) < 3: a field has no value while its class is made.

pass
=> A has no output; legal: at least one, as y = Out(n); a base of operators marks what it leaves open @abstractmethod.

n: int = Param(); x = In(n)
def reference(self, x): return x
=> A has no output; legal: at least one, as y = Out(n); a base of operators marks what it leaves open @abstractmethod.

n: int = Param(); x = In(n); y = Out(n)
def refrence(self, x): return x
=> A has no reference(). refrence() is not it. Legal: def reference(self, x), in numpy; a base of operators marks what it leaves open

n: int = Param(); x = In(n); y = Out(n)
def reference(self): return 1
=> A.reference(self) does not take what it is given; legal: def reference(self, x).

n: int = Param(); x = In(n); y = Out(n)
def reference(self, x, y): return x
=> A.reference(self, x, y) does not take what it is given; legal: def reference(self, x).

n: int = Param(); x = In(n); y = Out(n)
def reference(x): return x
=> A.reference(x) does not take what it is given; legal: def reference(self, x).

n: int = Param(); a = In(n); b = In(n); y = Out(n)
def reference(self, b, a): return b-a
=> A.reference(self, b, a): argument 1 is a, not b; legal: def reference(self, a, b).

n: int = Param(); x = In(n); y = Out(n)
reference = 3
=> A.reference is 3; legal: a method, def reference(self, x).

n: int = Param(); x = In(n); y = Out(n)
@property
def reference(self): return 3
=> A.reference is a property; legal: a method, def reference(self, x).

n: int = Param(); m: int = Param(); x = In((n, m)); y = Out(n)
def reference(self, x): return x
=> A.x: dimension (Param(n), Param(m)); legal: a field, an int > 0, OptionalDim, Select; each by itself, not in a list.

n: int = Param(); x = In(n*2); y = Out(n)
def reference(self, x): return x
=> A: Param(n) * 2: a field has no value while its class is made. Legal: a field with a rule, as half: int = Param(default=lambda op:

n: int = Param(); x = In(n//2); y = Out(n)
def reference(self, x): return x
=> A: Param(n) // 2: a field has no value while its class is made. Legal: a field with a rule, as half: int = Param(default=lambda op:

n: int = Param(); x = In(); y = Out(n)
def reference(self, x): return x
=> A.x: no dimensions; legal: at least one, as a field or an int > 0.

T = DType(); n: int = Param(); x = In(T); y = Out(n)
def reference(self, x): return x
=> A.x: dimension DType(T); legal: a field, an int > 0, OptionalDim, Select.

n: int = Param(); x = In(n, dtype=n); y = Out(n)
def reference(self, x): return x
=> A.x: dtype=Param(n); legal: a DType field, as T = DType(), a dtype or a Format.

n: int = Param(); x = In(n, dtpye=F32); y = Out(n)
def reference(self, x): return x
=> A: In(dtpye=...): no keyword of it. Did you mean dtype? Legal: dtype, when, tile, per, depth, replicate, broadcast, feed, prepare,

n: int = Param(defualt=3); x = In(n); y = Out(n)
def reference(self, x): return x
=> A: Param(defualt=...): no keyword of it. Did you mean default? Legal: default, array, repr, probe.

n: int = Param(3, 4); x = In(n); y = Out(n)
def reference(self, x): return x
=> A: Param(3, 4): 2 given; legal: at most 1 by position (default), the others by keyword: default, array, repr, probe.

n: int = Param(); T = DType(block=True); x = In(n); y = Out(n)
def reference(self, x): return x
=> A: DType(block=...): no keyword of it. Did you mean blocks? Legal: default, blocks.

x = In(q); q: int = Param(); y = Out(q)
def reference(self, x): return x
=> A: q is read and not declared above. Legal: q: int = Param() above what is made of it; or an import.

x = In(rows); rows: int = Param(); y = Out(rows)
def reference(self, x): return x
=> A.rows is declared below where rows is read, which was the module's; legal: rows above what is made of it.

q: int
x = In(q); y = Out(q)
def reference(self, x): return x
=> A: q is read and not declared above. An annotation declares nothing: legal: q: int = Param().

n: int = Param(); x = In(n); x = Out(n)
def reference(self, x): return x
=> A.x is declared already, and would be hidden by a second Operand; legal: each name once.

n: int = Param(); x = In(n); y = Out(n)
n: int = Param(default=2)
def reference(self, x): return x
=> A.n is declared already, and would be hidden by a second ParamField; legal: each name once.

n: int = Param(); xx = In(n); y = Out(n); linear_in = 'xx'
def reference(self, x): return x
=> A.linear_in = 'xx'; legal: a tuple of names, as ('xx',), of xx.

n: int = Param(); m: int = Param(); x = In(n,m); y = Out(n)
valid = Extent(n, m)
def reference(self, x): return x
=> A: Extent(Param(n), Param(m)): 2 given; legal: at most 1 by position (field), the others by keyword: field, multiples.

n: int = Param(); k: int = Auto(domain=Divisors(of=n)); x = In(n); y = Out(n)
def reference(self, x): return x
=> A.k: domain's of=Param(n); legal: a number, or a callable of (op) or (op, dev), as lambda op: op.size.

n: int = Param(); k: int = Auto(domain=Divisors(of=lambda a,b,c: 3)); x = In(n); y = Out(n)
def reference(self, x): return x
=> A.k: domain's of=a lambda; legal: a number, or a callable of (op) or (op, dev), as lambda op: op.size.

k: int = Auto(derived=True)
n: int = Param(); x = In(n); y = Out(n)
def reference(self, x): return x
test = Testing(Case(n=3, k=4))
=> A.test: Case(n3-k4) gives k, which resolve() always derives. Fields: n.

m: int = Param()
n: int = Param(); x = In(n); y = Out(n)
def reference(self, x): return x
test = Testing(Case(n=3))
=> A.test: Case(n3) gives no m, which every operator needs.

x2 = In(3)
k: int = Param(default=0)
n: int = Param(); x = In(n); z = In(n, when=k); y = Out(n)
def reference(self, a, x, z): return x
=> A.z: when=Param(k); legal: a bool field, as gated: bool = Param(default=False).

n: int = Param(); x = In(n, tile=n, depth=0); y = Out(n)
def reference(self, x): return x
=> A.x: depth=0; legal: how many objects its fifo holds, an int of at least 1.

n: int = Param(); x = In(n, tile=n, depth='2'); y = Out(n)
def reference(self, x): return x
=> A.x: depth='2'; legal: how many objects its fifo holds, an int of at least 1.

n: int = Param(); x = In(n, tile=n, via='zz'); y = Out(n)
def reference(self, x): return x
=> A.x: via='zz'; legal: the operand whose stream carries it, of x, y.

n: int = Param(); x = In(n, per=n); y = Out(n)
def reference(self, x): return x
=> A.x: per= cuts a stream into lanes, and without tile= it has none; legal: tile= too.

n: int = Param(); x = In(n, tile=[n]); y = Out(n)
def reference(self, x): return x
=> A.x: tile= has [Param(n)]; legal: a field, an int > 0, or a tuple of them.

n: int = Param(); x = In(n, tile='n'); y = Out(n)
def reference(self, x): return x
=> A.x: tile= has 'n'; legal: a field, an int > 0, or a tuple of them.

T=DType(); n: int = Param(); x = In(n, tile=T); y = Out(n)
def reference(self, x): return x
=> A.x: tile= has DType(T); legal: a field, an int > 0, or a tuple of them.

n: int = Param(); x = In(OptionalDim(n, 3)); y = Out(n)
def reference(self, x): return x
=> A: OptionalDim(Param(n), 3): 2 given; legal: at most 1 by position (field), the others by keyword: field.

f: bool = Param(default=False); n: int = Param(); x = In(Select(f, n, n)); y = Out(n)
def reference(self, x): return x
=> A.x: Select(Param(f), Param(n), Param(n)); legal: a bool field, and two tuples of dimensions.

f: bool = Param(default=False); n: int = Param(); x = In(Select(f, (n,))); y = Out(n)
def reference(self, x): return x
=> A: Select(...) needs when_false; it takes flag, when_true, when_false.

f: int = Param(default=0); n: int = Param(); x = In(Select(f, (n,), (n,))); y = Out(n)
def reference(self, x): return x
=> A.x: Select(Param(f), (Param(n),), (Param(n),)); legal: a bool field, and two tuples of dimensions.

n: int = Param(); x = In(n); z = Out(x)
def reference(self, x): return x
=> A.z: dimension in x; legal: a field, an int > 0, OptionalDim, Select.

n: int = Param(); x = In(n, dtype=None); z = Out(n)
def reference(self, x): return x
=> A.x: dtype=None: not a dtype Iron carries. Legal: bfloat16, float32, float16, int8, uint8, int32, uint32.

s: bool = Param(); x = In(s); z = Out(s)
def reference(self, x): return x
=> A.x: dimension Param(s) is annotated bool; legal: an int field, an int > 0.

s: float = Param(); x = In(s); z = Out(s)
def reference(self, x): return x
=> A.x: dimension Param(s) is annotated float; legal: an int field, an int > 0.

n: int = Param(); x = In(self.n); y = Out(n)
def reference(self, x): return x
=> A: self is read and not declared above. A class body is read before there is a class: legal: the bare name of what is declared above,

n: int = Param(); x = In(A.n); y = Out(n)
def reference(self, x): return x
=> A: A is read and not declared above. A class body is read before there is a class: legal: the bare name of what is declared above, as

n: int = Param(); x = In(n); y = Out(x.shape)
def reference(self, x): return x
=> A.y: dimension <bound method Operand.shape of in x>; legal: a field, an int > 0, OptionalDim, Select.
"""

#: Whole programs: what is found when the class is used, and when its array is built.
PROGRAMS = """
from __future__ import annotations
class A(Operator):
    n: int = Param()
    x: In[n]
=> A.x: In[n] is an annotation, which declares nothing; legal: x = In(n).

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def tolerance(self): return Tolerance(rtol=1)
A(n=4).check(np.ones(4, iron.bfloat16),np.ones(4),np.ones(4))
=> Tolerance(rtol=...): no keyword of it. Legal: exact, terms, ulps, absolute.

class Mix:
    def array(self, target): pass
class A(Operator, Mix):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
=> A: Mix.array() is hidden by Operator's, which stands in front of it; legal: class A(Mix, Operator).

class B(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
class A(B):
    z = In(n)
=> A: n is read and not declared above. It is B's: legal: B.n.

class A(Operator, lazy=True):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
=> class A(..., lazy=...): no keyword of a class of operators.

class A(UnaryElementwise):
    pass
=> A has no reference(). Legal: def reference(self, x), in numpy; a base of operators marks what it leaves open @abstractmethod.

class A(UnaryElementwise):
    def reference(self, a, b): return a
=> A.reference(self, a, b) does not take what it is given; legal: def reference(self, x).

class A(UnaryElementwise):
    def reference(self, x): return x
    def kernel(self, dev): pass
=> A.kernel(self, dev) does not take what it is given; legal: def kernel(self).

class A(UnaryElementwise):
    def reference(self, x): return x
    kernel = 3
=> A.kernel is 3; legal: a method, def kernel(self).

class A(UnaryElementwise):
    def reference(self, x): return x
    size = 4
=> A.size hides a field; give it a default instead.

class A(UnaryElementwise):
    def reference(self, x): return x
    words = ('count',)
=> A.words is ('count',); legal: a method, def words(self).

class A(UnaryElementwise):
    def reference(self, x): return x
    line_unit = 'a'
=> A.line_unit = 'a'; legal: a whole number, as its base's 16.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        ObjectFifo(self.x.tile, name='a'); ObjectFifo(self.x.tile, name='a')
build(A(n=8), 'npu2')
=> two parts of one array are named 'a'; give each its own name=.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        a=ObjectFifo(self.x.tile, name='a')
        b=ObjectFifo(self.x.tile, name='b')
        a.prod(tile=self.x.lane(0))
        b.prod(tile=self.x.lane(0))
        def core(i, j, k): i.acquire(); j.acquire(); k.acquire()
        c=ObjectFifo(self.y.tile, name='c'); c.cons(tile=self.y.lane(0))
        Worker(core, [a.cons(), b.cons(), c.prod()])
build(A(n=8), 'npu2')
=> A: lane 0 of x is an end of fifo a and of fifo b; legal: each lane once, and split() or forward() for what goes on from there.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        a=ObjectFifo(self.x.tile, name='a'); a.prod(tile=self.x.lane(5))
build(A(n=8), 'npu2')
=> A.x: lane 5; legal: 0 to 0.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        a=ObjectFifo(self.x.tile, name='a'); a.prod(tile=self.x.lane('a'))
build(A(n=8), 'npu2')
=> A.x: lane 'a'; legal: 0 to 0.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        def core(): pass
        Worker(core, name='w'); Worker(core, name='w')
build(A(n=8), 'npu2')
=> two parts of one array are named 'w'; give each its own name=.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        def core(a): pass
        Worker(core, 3)
build(A(n=8), 'npu2')
=> worker core0: args=3; legal: a list, [x.cons(), y.prod()].

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        Buffer(4,'int32',name='b'); Buffer(4,'int32',name='b')
build(A(n=8), 'npu2')
=> two parts of one array are named 'b'; give each its own name=.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        a=ObjectFifo(self.x.tile, name='a')
        a.prod(tile=self.x.lane(0))
        a.prod(tile=self.x.lane(0))
build(A(n=8), 'npu2')
=> fifo a: its producer exists; depth= and tile= belong in the first prod().

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        ObjectFifo(self.x.tile, depth=0)
build(A(n=8), 'npu2')
=> fifo of0: depth=0; legal: at least 1.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        ObjectFifo(self.x.tile, depth='2')
build(A(n=8), 'npu2')
=> fifo of0: depth='2'; legal: at least 1.

class A(Operator):
    n: int = Param(); x = In(n, tile=4); y = Out(n, tile=4)
    def reference(self, x): return x
    def array(self, target):
        a=ObjectFifo(self.x.tile, name='a'); a.prod()
build(A(n=8), 'npu2')
=> fifo a has no consumer.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def array(self, target):
        self.x.tile
build(A(n=8), 'npu2')
=> A.x has no tile=; it is no stream of its own.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def validate(self): return False
A(n=3)
=> A.validate() returned False, which nobody asks for; legal: to raise ParamError for what is wrong (Unresolvable in compatible()), and

class A(Operator):
    k: int = Param(default=lambda op: 'a')
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
A(n=3)
=> A.k: its rule gave 'a'; legal: a whole number.

import attrs
@attrs.define
class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
A(n=3)
=> A is decorated as an attrs class or a dataclass, and is one already; legal: no decorator.

class A(Operator):
    s: str = Param(); x = In(s); z = Out(s)
    def reference(self, x): return x
=> A.x: dimension Param(s) is annotated str; legal: an int field, an int > 0.

class B(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
class A(Operator):
    m: int = Param(); x = In(B.n); y = Out(m)
    def reference(self, x): return x
=> A.x: Param(n) is not a field of the class; legal: one assigned in its body. Fields: m.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return 'abc'
OperatorImage(A(n=4), backend='reference')(np.ones(4, iron.bfloat16))
=> A.reference() returned 'abc' for y; legal: an array of numbers.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return ['a','b','c','d']
OperatorImage(A(n=4), backend='reference')(np.ones(4, iron.bfloat16))
=> A.reference() returned dtype('<U1') for y; legal: an array of numbers.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def magnitude(self, x): return np.ones(3)
A(n=4).check(np.ones(4, iron.bfloat16),np.ones(4),np.ones(4))
=> A.magnitude() returned [3] for y, which is [4].

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def magnitude(self, x): return x.nope
A(n=4).check(np.ones(4, iron.bfloat16),np.ones(4),np.ones(4))
=> A.magnitude() fails at acme.py:4: AttributeError: 'numpy.ndarray' object has no attribute 'nope'.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    def tolerance(self): return Tolerance(0.1)
A(n=4).check(np.ones(4, iron.bfloat16),np.ones(4),np.ones(4))
=> Tolerance(exact=0.1): legal: True or False; a number is given as terms=, ulps= or absolute=.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    test = Testing(draw=dict(x=lambda op, rng: np.ones(3)))
A.test.draw(A(n=4), np.random.default_rng(0))
=> A.test draws x as [3]; legal: its shape, [4].

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    test = Testing(draw=dict(x=lambda op, rng: op.nope))
A.test.draw(A(n=4), np.random.default_rng(0))
=> A.test's draw of x fails at acme.py:4: AttributeError: 'A' object has no attribute 'nope'.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    test = Testing(lambda cls: [3])
list(A.test.cases(A))
=> A.test: a lambda gave [3]; legal: a list of Cases, Sweeps or dicts.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    test = Testing(lambda cls: cls.nope)
list(A.test.cases(A))
=> A.test's cases fails at acme.py:4: AttributeError: type object 'A' has no attribute 'nope'.

class A(Operator):
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
    test = Testing(lambda cls: None)
list(A.test.cases(A))
=> A.test: a lambda gave None; legal: a list of Cases, Sweeps or dicts.

class A(Operator):
    t: int = Auto(3, domain=Choices(lambda op: op.nope))
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
iron.domains(A(n=4).resolved('npu2'),'npu2')
=> A.domain fails at acme.py:2: AttributeError: 'A' object has no attribute 'nope'.

class A(Operator):
    t: int = Auto(3, domain=Divisors(of=lambda op: None))
    n: int = Param(); x = In(n); y = Out(n)
    def reference(self, x): return x
iron.domains(A(n=4).resolved('npu2'),'npu2')
=> A.t: domain's of gave None; legal: a whole number of at least 1.

class A(UnaryElementwise):
    T = np.float32
    def reference(self, x): return x
=> A.T hides a field; give it a default instead.

class A(UnaryElementwise):
    alpha: float = Param()
    test = Testing(Case(size=3))
    def reference(self, x): return x
=> A.test: Case(size3) gives no alpha, which every operator needs.

class A(UnaryElementwise):
    x = Out(4)
    def reference(self, x): return x
=> A.reference(self, x) does not take what it is given; legal: def reference(self).

class A(Rowwise):
    w = every_row(dtpye='a')
    def reference(self, x, w): return x
=> A: In(dtpye=...): no keyword of it. Did you mean dtype? Legal: dtype, when, tile, per, depth, replicate, broadcast, feed, prepare,

class A(Rowwise):
    w = every_row()
    def reference(self, x): return x
=> A.reference(self, x) does not take what it is given; legal: def reference(self, x, w).
"""


def wrong() -> Iterator[tuple[str, str]]:
    """(program, how its message begins)."""
    templates = (
        (IN_FRONT, lambda source: body(f"{source}\n{WHOLE}")),
        (BEHIND, lambda source: body(f"{WHOLE}\n{source}")),
        (BODIES, body),
        (PROGRAMS, lambda source: source),
    )
    for table, program in templates:
        for entry in table.strip().split("\n\n"):
            source, _, says = entry.rpartition("\n=> ")
            yield program(source), says


def body(source: str) -> str:
    return "class A(Operator):\n" + textwrap.indent(source, "    ")


@pytest.mark.parametrize(("program", "says"), [pytest.param(*case, id=f"{i}-{case[1][:40]}") for i, case in enumerate(wrong())])
def test_a_wrong_declaration_is_told_in_one_line(program, says):
    """When its body finishes, or where only a call can show it."""
    with pytest.raises(DeclarationError) as caught:
        exec(compile(program, "acme.py", "exec"), dict(NAMES))
    message = str(caught.value)
    assert message.startswith(says) and "\n" not in message


RIGHT = {
    "a ufunc": "n: int = Param(); x = In(n); y = Out(n); reference = np.abs",
    "a static method": "n: int = Param(); x = In(n); y = Out(n)\n@staticmethod\ndef reference(x): return x",
    "names of its own": "n: int = Param(); x = In(n); y = Out(n)\ndef reference(self, tensor): return tensor",
    "any arguments": "n: int = Param(); x = In(n); z = In(n); y = Out(n)\ndef reference(self, *inputs): return inputs[0]",
    "a default of the module's": "rows: int = Param(default=rows); y = Out(rows)\ndef reference(self): return np.zeros(self.rows)",
    "a class attribute": f"{WHOLE}\nfrom typing import ClassVar\nlanes: ClassVar[int] = 4\nplain = 3",
    "a list of names": f"{WHOLE}\nlinear_in = ['x']",
    "a method of a mixin": "n: int = Param(); x = In(n); y = Out(n)\ndef reference(self, x): return x\ndef kernel(self, tile): pass",
}


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_taken(source):
    """A rule refuses no more than it says."""
    exec(compile(body(source), "acme.py", "exec"), dict(NAMES))


BASE = """
from abc import ABC, abstractmethod
class Base(Operator{}):
    n: int = Param()
    x = In(n)
    @abstractmethod
    def scaled(self): pass
    def reference(self, x): return self.scaled() * x
class A(Base):
    y = Out(Base.n)
    def scaled(self): return 2
"""


@pytest.mark.parametrize("more", ["", ", ABC"])
def test_a_base_leaves_open_what_it_marks(more):
    """It needs no output; its subclasses are made, and it is not."""
    space = dict(NAMES)
    exec(BASE.format(more), space)
    assert space["A"](n=3).scaled() == 2
    with pytest.raises(CallError, match=r"Base is a base of operators, which leaves scaled\(\) to them; legal: a subclass that has it"):
        space["Base"](n=3)
    with pytest.raises(CallError, match=r"UnaryElementwise is a base of operators, which leaves reference\(\)"):
        iron.UnaryElementwise(size=3)
    with pytest.raises(DeclarationError, match=r"B has no scaled\(\), which its base leaves open"):
        exec("class B(Base):\n    y = Out(3)", space)
