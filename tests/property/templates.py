"""Templates of expressions, statements and methods, of which random functions are made.

A hole `<num>` is an expression of that kind, `<num=>` a new variable of it, `<int>` a literal,
`<size>` a small number; a line `<block>` is a block of statements, a line `<break>` sometimes
breaks the graph.
"""

KINDS = "num real cond vec tensor list table text obj key gen".split()
# What an expression is where no more may be nested, and what it is made of elsewhere.
LEAVES = {
    "num": [
        "<int>", "n", "n", "len(items)", "x.shape[0]", "TOTAL", "sum(items)", "x.ndim",
        "len(word)",
    ],
    "real": [
        "1.5", "r", "r", "x.shape[0]/2",
    ],
    "cond": [
        "n>1", "items", "word", "'a'in table", "True", "n%2",
    ],
    "vec": [
        "x", "x", "x", "W[:x.shape[0]]",
    ],
    "tensor": [
        "x", "W", "x[:2]", "gh.ones(<size>)",
    ],
    "list": [
        "items", "items", "[n,3]", "[]", "LOG",
    ],
    "table": [
        "table", "table", "{'a':n}", "CACHE",
    ],
    "text": [
        "word", "'ab'", "str(n)",
    ],
    "obj": [
        "box", "box", "SHARED", "Box(n)",
    ],
    "key": [
        "n", "'a'", "(n,)", "word",
    ],
    "gen": [
        "iter(items)", "(v for v in items)", "count_up(<size>)",
    ],
}  # fmt: skip
# The same in helpers, which see globals only.
GLOBALS = {
    "num": [
        "<int>", "TOTAL", "len(LOG)",
    ],
    "real": [
        "1.5",
    ],
    "cond": [
        "LOG", "True",
    ],
    "vec": [
        "W",
    ],
    "tensor": [
        "W",
    ],
    "list": [
        "LOG",
    ],
    "table": [
        "CACHE",
    ],
    "text": [
        "'ab'",
    ],
    "obj": [
        "SHARED",
    ],
    "key": [
        "'a'",
    ],
    "gen": [
        "iter(LOG)",
    ],
}  # fmt: skip
SIZES = [
    "<int>", "n % 4", "abs(<num>) % 5", "min(len(items), 4)", "x.shape[0]", "min(abs(n), 6)",
]  # fmt: skip
EXPRESSIONS = {
    "num": [
        "(<num> + <num>)", "(<num> - <num>)", "(<num> * <num> % 97)", "-<num>", "abs(<num>)",
        "(<num> // (<num> or 2))", "(<num> % 5)", "max(<num>, <num>)", "min(<num>, <num>)",
        "(<num> if <cond> else <num>)", "(<num> or <num>)", "(<num> and <num>)", "len(<list>)",
        "sum(v for v in <list> if isinstance(v, int))", "<tensor>.shape[0]", "len(<tensor>)",
        "<tensor>.size", "<tensor>.ndim", "<table>.get('a', <num>)", "<list>.count(<num>)",
        "int(<cond>)", "<obj>.value", "<obj>.twice", "<obj>.add(<num>).value", "Box.count",
        "round(<real>)", "int(<real>)", "sum(range(<size>))", "len(<text>)", "next(<gen>, <num>)",
        "sum(<gen>)", "max(<list>, default=<num>)", "len({*<list>, <num>})",
        "functools.reduce(operator.add, <list>, <num>)", "(lambda v, k=<num>: v + k)(<num>)",
        "apply(lambda v: v + <num>, <num>)", "slice(<num>).stop", "divmod(<num>, 3)[1]",
        "len(gh.arange(<size>))", "len(gh.chunk(<tensor>, <size> + 1))", "hash(<num>)",
        "operator.index(<num>)", "helper(<num>, k=<num>)", "Color(<num> % 3).value",
        "Pair(<num>, <num>).b", "Point(<num>).a", "getattr(<obj>, 'missing', <num>)",
        "<tensor>.shape[-1] * 2", "ord(<text>[0] if word else 'a')", "[*<list>, <num>][-1]",
        "dict(a=<num>)['a']", "sum(map(lambda v: v * 2, <gen>))", "len(list(zip(<list>, <gen>)))",
        "bisect.bisect([1, 3, 5], <num>)", "(<num> >> 1)", "(<num> ^ <num>)",
        "int(<tensor>.sum().item())",
    ],
    "real": [
        "(<real> + <num>)", "(<num> / 4)", "(<real> * 0.5)", "float(<num>)", "abs(<real>)",
        "math.sqrt(abs(<num>))", "math.floor(<real>) * 0.5", "<vec>.sum().item()",
        "max(<real>, <num>)", "math.pi", "(<real> if <cond> else <num> / 2)",
        "pow(<real>, 2) % 100",
    ],
    "cond": [
        "<num> > <num>", "<num> == <num>", "not <cond>", "(<cond> and <cond>)",
        "(<cond> or <cond>)", "<num> in <list>", "<key> in <table>", "<list>", "<table>",
        "<vec>.sum() > <int>", "<tensor>.shape[0] > <num>", "<num> < <num> <= <num>",
        "<text> == <text>", "<key> == <key>", "<obj> is <obj>", "isinstance(<obj>, Box)",
        "any(v > <num> for v in items)", "all(<list>)", "<list> == <list>", "<list> is items",
        "<tensor>.shape == <tensor>.shape", "<real> > <num>", "<text>.startswith('a')",
        "hasattr(<obj>, 'extra')", "bool(<num>)", "<list> < <list>", "gh.is_grad_enabled()",
        "<vec>.dtype == gh.float32", "callable(<obj>)", "{1, <num>} <= {1, 2, 3}",
        "(<num>, <num>) < (<num>, <num>)", "Point(<num>) in {Point(1): 0}", "<table> == <table>",
        "<num> != <obj>.value", "type(<obj>) is Box", "gh.any(<tensor> > <int>)",
    ],
    "vec": [
        "(<vec> + <num>)", "(<vec> * 0.5)", "(<vec> + <vec>)", "(<vec> - <vec>)", "-<vec>",
        "abs(<vec>)", "gh.where(<vec> > <int>, <vec>, <vec>)", "gh.roll(<vec>, <num>)",
        "gh.flip(<vec>)", "gh.maximum(<vec>, <vec>)", "<vec>.reshape(-1)",
        "(<vec> * <real> * 0.25)", "(<num> - <vec>)", "gh.stack([<vec>, <vec>])[<int> % 2]",
        "gh.concat([<vec>, <tensor>])[: x.shape[0]]", "(<vec> if <cond> else <vec>)",
        "[<vec>, <vec>][<num> % 2]", "gh.clip(<vec>, -3, 3)", "apply(lambda v: v + <num>, <vec>)",
        "<vec>.reshape(x.shape)", "<vec>[:len(x)]", "gh.pad(<vec>, (0, 0))",
        "gh.expand_dims(<vec>, 0)[0]", "nn.functional.relu(<vec>)", "sum([<vec>, <vec>])",
        "<obj>.scale(<vec>)", "gh.sum(gh.stack([<vec>, <vec>]), axis=0)",
        "gh.repeat(<vec>, 2)[: x.shape[0]]", "<vec>.detach()", "ACT(<vec>)",
    ],
    "tensor": [
        "<vec>", "<vec>[:<size>]", "<vec>[<size>:]", "gh.arange(<size>)", "gh.zeros(<size>)",
        "(<tensor> * 2)", "(<tensor> + <num>)", "<vec>.sum()", "<vec>.reshape(1, -1)",
        "gh.ones((<size>, 2))", "gh.full(<size>, <num>)", "gh.concat([x, <vec>[:<size>]])",
        "gh.pad(<vec>, (0, <size>))", "gh.roll(<tensor>, <num>)", "gh.repeat(<vec>, <size>)",
        "gh.expand_dims(<tensor>, 0)", "gh.squeeze(<tensor>)", "<vec>[::-1]", "gh.asarray(<list>)",
        "gh.chunk(<vec>, 2)[0]", "gh.stack([<vec>] * (<size> + 1))", "<tensor>.reshape(-1)",
        "gh.zeros(<tensor>.shape)", "gh.cumulative_sum(<vec>)", "(<vec> > <int>)", "<vec>[<num>]",
        "gh.max(<vec>)", "gh.argmax(<vec>)", "<vec>[<vec> > <int>]", "<tensor>.astype(gh.int32)",
        "gh.swapaxes(<vec>.reshape(1, -1), 0, 1)",
    ],
    "list": [
        "[v + 1 for v in <list>]", "[<num>, <num>]", "list(<gen>)", "<list>[:<num>]",
        "<list>[::-1]", "(<list> + [<num>])", "sorted(<list>)", "list(range(<size>))",
        "list(reversed(<list>))", "(<list> * (<size> % 3))", "[*<list>, *<gen>]",
        "list(map(helper, <list>))", "list(<tensor>.shape)",
        "[i for i, v in enumerate(<list>) if v]", "list(itertools.islice(<gen>, <size>))",
        "list(itertools.accumulate(<list>))", "list(filter(None, <list>))",
        "sorted(<list>, key=lambda v: -v)", "list(itertools.chain(<list>, <gen>))",
        "list(<table>)", "[k for k, g in itertools.groupby(<list>)]",
        "[v for v in <list> for _ in range(<size>)]", "<obj>.log", "copy.copy(<list>)",
        "list(<obj>.walk(<size>))", "list(collections.deque(<list>, maxlen=2))",
        "sorted({*<list>})", "[len(v) for v in [<text>, <list>]]",
        "[v.shape[0] for v in gh.chunk(<vec>, <size> + 1)]", "<tensor>.tolist()",
        "list(collections.Counter(<list>).values())",
    ],
    "table": [
        "{'a': <num>}", "{**<table>, 'k': <num>}", "{str(v): v for v in <list>}",
        "dict(zip('abc', <list>))", "dict.fromkeys('ab', <num>)", "(<table> | {'o': <num>})",
        "collections.OrderedDict(<table>)", "dict(<table>)", "collections.Counter(<text>)",
        "vars(<obj>)", "dict(enumerate(<list>))", "{<key>: <num>, <key>: <num>}",
        "copy.copy(<table>)", "collections.defaultdict(int, <table>)", "Ordered(a=<num>)",
        "<obj>.__dict__",
    ],
    "text": [
        "f'{n}:{word}'", "str(<num>)", "(<text> + 'z')", "repr(<list>)", "<text>.upper()",
        "'-'.join(<table>)", "f'{n:>4}'", "f'{TOTAL!r}{items}'", "'%s,%d' % (<text>, <num>)",
        "<text>[::-1]", "repr(<obj>)", "str(<tensor>.shape)", "type(<obj>).__name__",
        "'{} {x}'.format(<num>, x=<text>)", "''.join(sorted(<text>))", "(<text> * (<size> % 3))",
        "f'{r:.2f}'", "<text>.replace('a', 'bb')", "str(<tensor>.dtype)", "str(<key>)",
    ],
    "obj": [
        "Box(<num>)", "<obj>.add(<num>)", "(<obj> if <cond> else <obj>)", "Child(<num>)",
        "[<obj>, <obj>][<num> % 2]", "copy.copy(<obj>)", "Box.make(<num>)",
    ],
    "key": [
        "Point(<num>)", "(<num>, 'a')", "<num>", "<text>", "frozenset([<num>])",
        "Color(<num> % 3)", "Pair(<num>, 'b')",
    ],
    "gen": [
        "count_up(<size>)", "(v * <num> for v in <list>)", "chained(<list>, <gen>)",
        "iter(<list>)", "map(helper, <list>)", "itertools.chain(<list>, <gen>)",
        "itertools.islice(itertools.count(<num>), <size>)", "zip_add(<gen>, <list>)",
        "<obj>.walk(<size>)", "reversed(<list>)", "itertools.takewhile(bool, <gen>)",
        "filter(lambda v: v > <num>, <gen>)", "itertools.repeat(<num>, <size>)",
    ],
}  # fmt: skip
BREAK = [
    "gh.graph_break()", "record(<num>)", "print(<num>)", "len({W * 1: 1})", "gh.graph_break()",
]  # fmt: skip
STATEMENTS = [
    "<num=> = <num>", "<num=> = <num>", "<vec=> = <vec>", "<vec=> = <vec>", "<tensor=> = <tensor>",
    "<real=> = <real>", "<list=> = <list>", "<table=> = <table>", "<text=> = <text>",
    "<obj=> = <obj>", "<gen=> = <gen>", "<key=> = <key>", "x = <vec>", "n = <num> % 7",
    "items.append(<num>)", "items.insert(0, <num>)", "items.reverse()",
    "items[:] = [i + 1 for i in items]", "items += [<num>]", "items.pop() if items else None",
    "<list>.extend(<list>[:2])", "items.sort()", "del items[<num>:]",
    "items[-1:] = [<num>, <num>]", "<list>[0] = <num>", "items.remove(<num>)",
    "table['b'] = <num>", "table.pop('a', None)", "table.setdefault(<key>, <num>)",
    "table['t'] = <tensor>", "table.update({str(k): v for k, v in zip('xy', items)})",
    "table[<key>] = <num>", "del table['a']", "table |= {'u': <num>}", "CACHE[<key>] = <num>",
    "table.clear()", "CACHE.pop(<key>, 0)", "box.add(<num>)", "box.value = <num>",
    "box.extra = <num>", "<obj>.value += <num>", "box.log.clear()",
    "setattr(<obj>, 'extra', <num>)", "delattr(<obj>, 'extra')", "box.log.append(<num>)",
    "box.held = <tensor>", "Box.count += 1", "SHARED.value = <num>", "<obj>.twice = <num>",
    "vars(<obj>)['z'] = <num>", "global TOTAL\nTOTAL = <num> % 11", "LOG.append(<num>)",
    "del LOG[3:]", "print(<num>, <text>)", "print(<list>)", "calls += 1", "x[<size>:] = <num>",
    "x += <num>", "x[0] = <vec>[-1]", "<vec=> = <vec>\nx *= 2", "assert <cond>, <text>",
    "<num=>, *_ = <list>", "(<num=>, <num=>) = (<num>, <num>)", "operator.iadd(items, [<num>])",
    "<num=> = calls = <num>", "record(<tensor>.shape)", "n += <num> % 3",
    "_, <list=> = <num>, <list>",
]  # fmt: skip
# Compound statements, with an empty line between two.
BLOCKS = """\
if <cond>:
    <block>

if <cond>:
    <block>
else:
    <block>

if <cond>:
    <block>
elif <cond>:
    <block>
else:
    <block>

for <num=> in range(<size>):
    <block>

for <num=> in list(items):
    <block>

for <num=> in itertools.islice(<gen>, 4):
    <block>
    if <cond>:
        break
else:
    <block>

for <text=> in sorted(table, key=str):
    <block>
    if <cond>:
        continue
    <block>

for <num=>, <text=> in enumerate('abc'[:<size>]):
    <block>

for <tensor=> in <tensor>:
    <block>
    break

for <num=> in <list>[:3]:
    <block>
    <break>

left = <size>
while left > 0:
    left -= 1
    <block>

if (<num=> := <num>) > 1:
    <block>

try:
    <block>
    <raise>
except <caught>:
    <block>

try:
    <block>
    <raise>
    <block>
except <caught> as error:
    print(type(error).__name__, error)
    <block>

try:
    <block>
    <raise>
except <caught>:
    <block>
else:
    <block>
finally:
    <block>

try:
    <block>
finally:
    <block>

try:
    <raise>
except <caught> as error:
    raise ValueError(<num>) from error

try:
    try:
        <raise>
    finally:
        <block>
except <caught>:
    <block>

try:
    <raise>
except <caught>:
    try:
        <raise>
    except <caught>:
        <break>
        <block>

with gh.no_grad():
    <block>

with manager(<num>) as <num=>:
    <block>

with Managed(<num>):
    <block>
    <raise>

with manager(<num>), Managed(<num>) as <obj=>:
    <block>
    <break>

with contextlib.suppress(KeyError, IndexError):
    <raise>
    <block>

with contextlib.ExitStack() as stack:
    <num=> = stack.enter_context(manager(<num>))
    <block>

with gh.enable_grad():
    <block>

match <num>:
    case 1 | 2:
        <block>
    case int(v) if v > 2:
        <block>
    case _:
        <block>

match [<num>, <table>]:
    case [v, {'a': w}]:
        <block>
    case [v, *_]:
        <block>

match <obj>:
    case Child(value=v):
        <block>
    case Box(value=0):
        <block>

def inner(v, k=<num>):
    nonlocal calls
    calls += 1
    <break>
    return v + k + len(items)
<num=> = inner(<num>)

def inner():
    yield <num>
    <break>
    yield calls
    yield from <gen>
for <num=> in itertools.islice(inner(), 5):
    <block>

def inner(*args, **kwargs):
    return len(args) + len(kwargs)
<num=> = inner(*<list>, a=<num>)

<gen=> = chained(<list>, <gen>)
<num=> = next(<gen>, 0)
<block>

g = sender(<num>)
next(g)
<num=> = g.send(<num>)
<block>
g.close()

g = sender(<num>)
next(g)
try:
    <num=> = g.throw(<error>)
except <caught>:
    <block>

class Local(Box):
    extra = <num>
    def scale(self, v):
        <break>
        return super().scale(v) + calls
<vec=> = Local(<num>).scale(<vec>)

<vec=> = [f(<vec>) for f in (gh.sin, abs, ACT)][<num> % 3]
""".strip("\n").split("\n\n")
RAISES = [
    "items[9]", "table['zz']", "1 // (<num> % 2)", "raise <error>", "calls += 1", "int(<text>)",
    "helper(<num>)", "<obj>.nothing", "x.reshape(<num>, -1)", "assert <cond>", "next(iter([]))",
    "<list>.index(<num>)", "raise", "[][<num>]", "x + gh.ones(17)", "len(<num>)", "undefined",
    "del <obj>.missing", "Color(<num>)", "({}).popitem()",
]  # fmt: skip
CAUGHT = [
    "(IndexError, KeyError)", "Exception", "ZeroDivisionError", "Exception",
    "(ValueError, TypeError)", "LookupError", "AttributeError", "Own",
]  # fmt: skip
ERRORS = [
    "ValueError(<num>)", "KeyError(<key>)", "Own(<num>)", "IndexError", "RuntimeError(<text>)",
]  # fmt: skip
# Methods of the user's class: parameters, bodies, and what they add to the tables.
METHODS = {
    "__add__": ("self, other", [
        "return Box(self.value + getattr(other, 'value', other))", "return self.add(other)",
    ], {
        "obj": ["(<obj> + <num>)"],
        "statement": ["box += <num>"],
    }),
    "__iadd__": ("self, other", [
        "self.value += other\nreturn self",
    ], {
        "statement": ["box += <num>"],
    }),
    "__radd__": ("self, other", [
        "return Box(other + self.value)",
    ], {
        "obj": ["(<num> + <obj>)", "sum([<obj>], 0)"],
    }),
    "__matmul__": ("self, other", [
        "return self.value * other % 97", "return NotImplemented",
    ], {
        "num": ["(<obj> @ <num>)"],
    }),
    "__eq__": ("self, other", [
        "return self.value == getattr(other, 'value', other)", "return NotImplemented",
    ], {
        "cond": [
            "<obj> == <obj>", "<obj> in [<num>, <obj>]", "[<obj>] == [<num>]", "<obj> != <num>",
        ],
        "num": ["[<num>, <obj>].index(<obj>)", "[<obj>].count(<num>)"],
    }),
    "__hash__": ("self", [
        "return hash(self.value)", "return 1",
    ], {
        "table": ["{<obj>: <num>}", "dict.fromkeys([<obj>, <obj>], <num>)"],
        "key": ["<obj>"],
        "cond": ["<obj> in {<obj>: 1}"],
    }),
    "__lt__": ("self, other", [
        "return self.value < other.value",
    ], {
        "cond": ["<obj> < <obj>"],
        "num": ["max(<obj>, <obj>).value", "sorted([<obj>, <obj>])[0].value"],
    }),
    "__bool__": ("self", [
        "return self.value > 1", "return bool(self.log)", "return 1",
    ], {
        "cond": ["<obj>", "not <obj>"],
        "num": ["(1 if <obj> else 2)", "(1 if not <obj> else 2)"],
        "obj": ["(<obj> or <obj>)"],
        "statement": ["while box:\n    box.value = 0\n    break"],
    }),
    "__len__": ("self", [
        "return self.value % 4", "return len(self.log)",
    ], {
        "num": ["len(<obj>)"],
        "cond": ["<obj>"],
    }),
    "__contains__": ("self, k", [
        "return k == self.value", "return k in self.log", "return k",
    ], {
        "cond": ["<num> in <obj>", "<num> not in <obj>"],
        "num": ["(1 if <num> not in <obj> else 2)"],
    }),
    "__getitem__": ("self, k", [
        "return self.value + k", "return self.log[k]",
        "if k > 3:\n    raise IndexError(k)\nreturn k",
    ], {
        "num": ["<obj>[<num>]"],
        "statement": ["box[<num>] += <num>"],
    }),
    "__setitem__": ("self, k, v", [
        "self.value = v", "self.last = k, v", "self.log[k:] = [v]",
    ], {
        "statement": [
            "box[<num>] = <num>", "<obj>[<num>] = <vec>", "for box[0] in <list>:\n    pass",
            "operator.setitem(box, 1, <num>)",
        ],
    }),
    "__delitem__": ("self, k", [
        "self.value = k", "del self.log[k]",
    ], {
        "statement": ["del box[<num>]"],
    }),
    "__iter__": ("self", [
        "return iter(self.log)", "yield self.value\nyield from self.log", "return count_up(2)",
    ], {
        "list": ["list(<obj>)", "[*<obj>]"],
        "statement": ["<num=>, *_ = box"],
        "cond": ["<num> in <obj>"],
    }),
    "__call__": ("self, v=1", [
        "return v + self.value", "self.value += 1\nreturn v",
    ], {
        "num": ["<obj>(<num>)"],
        "vec": ["<obj>(<vec>)"],
    }),
    "__getattr__": ("self, name", [
        "raise AttributeError(name)",
        "if name.startswith('_'):\n    raise AttributeError(name)\nreturn len(name)",
    ], {
        "num": ["<obj>.nothing"],
    }),
    "__setattr__": ("self, name, v", [
        "super().__setattr__(name, v)", "object.__setattr__(self, name, v)",
        "self.__dict__[name] = v",
    ], {}),
    "__delattr__": ("self, name", [
        "super().__delattr__(name)",
    ], {
        "statement": ["del box.extra"],
    }),
    "__getattribute__": ("self, name", [
        "return super().__getattribute__(name)",
    ], {}),
    "__index__": ("self", [
        "return self.value % 3",
    ], {
        "num": ["[1, 2, 3][<obj>]", "operator.index(<obj>)"],
        "vec": ["x[<obj>] + x"],
    }),
    "__neg__": ("self", [
        "return Box(-self.value)",
    ], {
        "obj": ["(-<obj>)"],
    }),
    "__format__": ("self, spec", [
        "return spec + str(self.value)",
    ], {
        "text": ["f'{box:a}'", "format(<obj>, 'b')"],
    }),
    "__float__": ("self", [
        "return self.value * 0.5",
    ], {
        "real": ["float(<obj>)"],
    }),
    "__missing__": ("self, k", [
        "return k",
    ], {}),
    "__set_name__": ("self, owner, name", [
        "pass",
    ], {}),
}  # fmt: skip

# What a function may use besides, and what that uses.
HELPERS = """\
class Box:
    count = 0
    def __init__(self, value):
        self.value = value
        self.log = []
    @classmethod
    def make(cls, v):
        return cls(v + 1)
    @property
    def twice(self):
        <break>
        return self.value * 2
    @twice.setter
    def twice(self, v):
        <break>
        self.value = v
    def add(self, n):
        self.value = self.value + n
        self.log.append(n)
        return self
    def scale(self, v):
        return v * self.value
    def walk(self, k):
        for i in range(k):
            <break>
            yield i + self.value
    def __repr__(self):
        return f"{type(self).__name__}({self.value})"
    <methods>

class Ordered(collections.OrderedDict):
    def __setitem__(self, k, v):
        <break>
        super().__setitem__(k, v)

class Managed:
    def __init__(self, v):
        self.v = v
    def __enter__(self):
        <break>
        return Box(self.v)
    def __exit__(self, kind, error, trace):
        LOG.append(kind and kind.__name__)
        <break>
        return <swallows>

class Child(Box):
    def scale(self, v):
        <break>
        return super().scale(v) * 2
    def __setattr__(self, name, v):
        <break>
        super().__setattr__(name, v)

@contextlib.contextmanager
def manager(v):
    LOG.append("in")
    <break>
    try:
        yield v + 1
    finally:
        <break>
        LOG.append("out")

def count_up(k):
    for i in range(k):
        <break>
        yield i

def chained(a, b):
    yield from a
    <break>
    result = yield from b
    LOG.append(result)

def zip_add(a, b):
    for v, w in zip(a, b):
        yield v + w
    return <num>

def sender(v):
    try:
        got = yield v
        <break>
        yield got + 1
    except (ValueError, KeyError) as error:
        yield len(str(error))
    finally:
        LOG.append("closed")

def helper(v, *, k=<int>):
    <break>
    return v + k

def apply(fn, v):
    return fn(v)
"""
