"""Random worlds: a module of classes, functions and containers, a function that reads them, and
calls of it between which the world is changed.

A seed gives the same world always. Each thing in it is of a kind, which can be left out by name."""

import random
import re
from pathlib import Path

HERE = Path(__file__).parent
LIBRARIES = {"gh": "glasshouse", "torch": "torch"}
SIMPLE = re.compile(r"^([\w#.\[\]']+)\.(\w+)$")
ITEM = re.compile(r"^([\w#.]+)\[([^\[\]:]+)\]$")
LOCAL = re.compile(r"\b(?:arg|n|x)\b")
READS = {  # other ways to look at an attribute `a` of `E`
    "getattr": ["getattr(E, 'a')", "operator.attrgetter('a')(E)"],
    "getattr with default": ["getattr(E, 'a', 9)"],
    "hasattr": ["hasattr(E, 'a')"],
    "vars": ["'a' in vars(E)", "vars(E).get('a', 9)", "E.__dict__.get('a')", "'a' in dir(E)"],
    "static": ["inspect.getattr_static(E, 'a', None)", "object.__getattribute__(E, 'a')"],
}
ITEMS = ["operator.getitem(E, K)", "E.__getitem__(K)", "operator.itemgetter(K)(E)", "K in E"]
USES = """
out.append(R)
out.append(R)
x = x * R
x = x + R
x = x + (1 if R else 2)
out.append(f'{R}')
out.append([R for k in range(2)])
out.append((lambda: R)())
out.append(R == <int>)
out.append(R is None)
out.append(type(R).__name__)
out.append(isinstance(R, int))
out.append(R if n else 0)
out.append(R and n)
out.append((n, R))
print(R)
if R:
    x = x + 1
else:
    out.append('no')
for k in range(2):
    x = x + R
match R:
    case <int>:
        x = x * 2
    case int():
        out.append('int')
    case _:
        out.append('other')
def inner(k=1):
    return R
out.append(inner())
def drawn():
    yield R
    yield 1
out.extend(drawn())
if (v := R):
    out.append(v)
if n > 1:
    out.append(R)
else:
    x = x - 1
for k in range(3):
    out.append(R)
    if k:
        break
with contextlib.suppress(Exception):
    out.append(R)
    out.append(1)
x = x + HELPER
out.append(HELPER)
out.append(HELPER)
""".strip()
TRY = (
    "try:\n    BODY\nexcept Exception as error:\n    out.append((type(error).__name__, str(error)))"
)


def blocks_of(text: str) -> list[str]:
    """Statements of a text, each with the lines that belong to it."""
    results: list[str] = []
    for line in text.splitlines():
        joined = line[0] == " " or line.startswith(("else", "out.append(inner", "out.extend(drawn"))
        if joined and results:
            results[-1] += "\n" + line
        else:
            results.append(line)
    return results


class Kind:
    """One kind of thing: its definition, and how it is read, written and changed."""

    def __init__(self, name: str, define: str, **parts: list[str]):
        self.name, self.define, self.parts = name, define, parts


def kinds_of(text: str) -> list[Kind]:
    """The kinds of a text of templates."""
    results = []
    for section in text.split("\n== ")[1:]:
        head, *parts = section.strip().split("\n-- ")
        name, _, define = head.partition("\n")
        lines = dict(part.split("\n", 1) for part in parts)
        parts = {k: v.replace("\\n", "\n").split(" ; ") for k, v in lines.items()}
        results.append(Kind(name, define, **parts))
    return results


def members_of(text: str) -> list[tuple]:
    """(marks, name, values, reads) of what classes may define."""
    rows = [line.split(" ~ ") for line in text.splitlines() if line and line[0] != "#"]
    rows = [(head.split(), values.split(" ; "), reads.split(" ; ")) for head, values, reads in rows]
    return [(head[:-1], head[-1], values, reads) for head, values, reads in rows]


def kind_of_member(member: tuple) -> str:
    return " ".join([*member[0], member[1]])


def overriding(name: str, value: str) -> list[str]:
    """Return the body of an override that calls its base; "" where that is no function."""
    if value.startswith("lambda self"):
        return [f"def {name}(self, *a): return super().{name}(*a)"]
    if value.startswith("classmethod"):
        return ["@classmethod", f"def {name}(cls, *a): return super().{name}(*a)"]
    return [] if name[0] == "_" else ["@property", f"def {name}(self): return super().{name}"]


KINDS = kinds_of((HERE / "world_templates.txt").read_text())
MEMBERS = members_of((HERE / "world_members.txt").read_text())
PRELUDE = (HERE / "world_prelude.txt").read_text()
STATEMENTS = blocks_of(USES)
HOLDERS = {  # where an object of a class is found, and what that needs
    "in a list": ("box#[0]", "box# = [a#]"),
    "in a dict": ("tab#['k']", "tab# = {'k': a#}"),
    "in a namespace": ("ns#.o", "ns# = types.SimpleNamespace(o=a#, c=A#)"),
    "made inside": ("A#()", ""),
    "argument": ("arg", ""),
    "from a function": ("get#()", "def get#(): return a#"),
    "of a subclass": ("Sub#()", "class Sub#(A#): pass"),
}
NAMES = [
    *(kind.name for kind in KINDS), *dict.fromkeys(map(kind_of_member, MEMBERS)), *HOLDERS, *READS,
    "super", "changes inside",
]  # fmt: skip
DIFFERING: dict[str, list[str]] = {}
LEFT_OUT = {name: why for why, names in DIFFERING.items() for name in names}
AUDIT_DIFFERING: dict[str, list[str]] = {}  # kinds that are not audited yet, by why
NOT_AUDITED = LEFT_OUT | {name: why for why, names in AUDIT_DIFFERING.items() for name in names}


class RandomWorld:
    """The text of a world, and its steps: calls of its function, and changes between them.

    `without` are names of kinds to leave out: kinds of things, members, holders, ways to read."""

    def __init__(self, seed: int, library: str = "gh", without=frozenset()):
        self.random = random.Random(f"world {seed}")
        unknown = set(without) - set(NAMES)
        assert not unknown, f"no kinds: {unknown}"
        self.without, self.library = without, LIBRARIES[library]
        self.members = [m for m in MEMBERS if kind_of_member(m) not in without]
        self.helpers: list[str] = []
        self.arguments = ["None"]
        things = [self.thing(i) for i in range(1, 2 + self.random.choice([0, 0, 1, 1, 2]))]
        count = self.random.randrange(2, 6)
        body = "".join(self.statement(self.pick(things)) for _ in range(count))
        self.text = self.module(things, body)
        self.steps = self.schedule(things)

    def pick(self, options):
        return self.random.choice(options)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def fill(self, text: str) -> str:
        """A template with its holes filled."""
        text = re.sub(r"<int>", lambda _: str(self.random.randrange(1, 9)), text)
        return text.replace("<name>", f"'n{self.random.randrange(9)}'").replace("LIB", self.library)

    # -- things ------------------------------------------------------------------------------------

    def thing(self, number: int) -> Kind:
        """A thing of some kind, its parts for its number."""
        kinds = [kind for kind in KINDS if kind.name not in self.without]
        if self.members and (self.chance(0.5) or not kinds):
            return self.class_with_members(number)
        kind = self.pick(kinds)
        parts = {
            name: [x.replace("#", str(number)) for x in lines] for name, lines in kind.parts.items()
        }
        return Kind(kind.name, kind.define.replace("#", str(number)), **parts)

    def class_with_members(self, number: int) -> Kind:
        """A class with a base and perhaps a metaclass, with some members; how objects are found."""
        rows = [self.pick(self.members) for _ in range(self.pick([1, 1, 2, 3]))]
        marks = {mark for row in rows for mark in row[0]}
        bodies: dict[str, list[str]] = {"Base": [], "A": [], "Meta": []}
        reads, changes = [], []
        objects, classes, setup = self.holders(number)
        for mark, name, values, expressions in rows:
            owners = ["Meta"] if "metaclass" in mark else ["Base", "A"]
            owner = self.pick([*owners, *owners, None])
            if owner is not None:
                bodies[owner].append(f"{name} = {self.pick(values)}")
                if owner == "Base" and self.chance(0.3) and "super" not in self.without:
                    bodies["A"] += overriding(name, values[0])
            for text in self.random.sample(expressions, min(3, len(expressions))):
                # A letter in quotes or in a name is none of the two.
                text = re.sub(r"\bO\b", lambda _: self.pick(objects), text)
                reads.append(re.sub(r"(?<!')\bC\b", lambda _: self.pick(classes), text))
            for target in owners:
                changes += self.member_changes(f"{target}{number}", name, values)
            if "metaclass" not in mark and self.chance(0.5):
                changes += self.object_changes(f"a{number}", name, values)
        if self.chance(0.3):
            changes += self.class_changes(number)
        base = (
            "dict" if "dict" in marks else self.pick(["object"] * 8 + ["list", "int", "Exception"])
        )
        meta = f", metaclass=Meta{number}" if "metaclass" in marks or self.chance(0.1) else ""
        slots = "__slots__ = ('z',)" if self.chance(0.1) else "pass"
        heads = {
            "Meta": f"class Meta{number}(type):" if meta else "",
            "Base": f"class Base{number}({base}):",
            "A": f"class A{number}(Base{number}{meta}):",
        }
        define = [
            "\n    ".join([head, slots if name != "Meta" else "pass", *bodies[name]])
            for name, head in heads.items()
            if head
        ]
        define.append(f"a{number} = A{number}()")
        reads = [text.replace("#", str(number)) for text in reads]
        return Kind("class", "\n".join([*define, *setup]), read=reads, change=changes)

    def holders(self, number: int) -> tuple[list[str], list[str], list[str]]:
        """Expressions of an object and of its class, and what these need."""
        objects, classes, setup = ["a#", "a#"], ["A#", "A#"], []
        for name in self.random.sample(sorted(HOLDERS), 2):
            if name not in self.without:
                expression, needed = HOLDERS[name]
                objects += [expression] * 2
                setup.append(needed)
                if name == "argument":
                    self.arguments += [f"a{number}", f"A{number}()"] * 2
                if name == "of a subclass":
                    classes.append("Sub#")
                if name == "in a namespace":
                    classes.append("ns#.c")
        classes.append(self.pick(["type(a#)", "a#.__class__"]))
        return objects, classes, [text.replace("#", str(number)) for text in setup]

    def member_changes(self, owner: str, name: str, values: list[str]) -> list[str]:
        """Changes of what a class has under a name."""
        value = self.pick(values)
        return [
            f"{owner}.{name} = {value}",
            f"setattr({owner}, '{name}', {self.pick(values)})",
            f"del {owner}.{name}",
            f"save({owner}, '{name}'); {owner}.{name} = {value}",
            f"save({owner}, '{name}'); del {owner}.{name}",
            f"mock.patch.object({owner}, '{name}', {value}, create=True).start()",
            f"{owner}.__dict__['{name}'].__code__ = ({value}).__code__",
            f"{owner}.__dict__['{name}'].__defaults__ = (<int>,)",
        ]

    def object_changes(self, owner: str, name: str, values: list[str]) -> list[str]:
        value = self.pick(values)
        return [
            f"{owner}.{name} = {value}",
            f"vars({owner})['{name}'] = {value}",
            f"del {owner}.{name}",
        ]

    def class_changes(self, number: int) -> list[str]:
        changes = [
            "A#.__bases__ = (Other,)", "a#.__class__ = Other", "a#.__class__ = Base#", "A# = Other",
            "a# = A#()", "A#.__bases__ = (Base#, Other)", "a# = Base#()", "a#.__dict__.clear()",
        ]  # fmt: skip
        return [text.replace("#", str(number)) for text in changes]

    # -- the function ------------------------------------------------------------------------------

    def statement(self, thing: Kind) -> str:
        """One statement of the function, that reads or writes a thing."""
        parts = thing.parts
        at = self.random.random()
        if "do" in parts and at < 0.2:
            text = self.pick(parts["do"])
        elif "vec" in parts and (at < 0.6 or "read" not in parts):
            text = self.pick(
                [f"x = {self.pick(parts['vec'])}", f"out.append({self.pick(parts['vec'])})"]
            )
        elif at < 0.25 and thing.parts["change"] and self.changes_inside(thing):
            text = self.pick(thing.parts["change"])
        else:
            text = self.use(self.reading(self.pick(parts["read"])))
        text = self.fill(text)
        if self.chance(0.5):
            text = TRY.replace("BODY", text.replace("\n", "\n    "))
        return text + "\n"

    def changes_inside(self, thing: Kind) -> bool:
        """Whether the function itself changes a thing: not where that ends the life of an object,
        which goes on while a function is captured."""
        return "changes inside" not in self.without and thing.name != "weak reference"

    def reading(self, text: str) -> str:
        """An expression, or another that looks at the same."""
        if (match := SIMPLE.match(text)) and self.chance(0.35):
            way = self.pick([name for name in READS if name not in self.without] or [None])
            if way is not None:
                other = self.pick(READS[way])
                return re.sub(r"\bE\b", match[1], other.replace("'a'", f"'{match[2]}'"))
        if (match := ITEM.match(text)) and self.chance(0.2):
            key = f"({match[2]})" if "," in match[2] else match[2]
            other = self.pick(ITEMS).replace("K", key)
            return re.sub(r"\bE\b", match[1], other)
        return text

    def use(self, read: str) -> str:
        """A statement in which an expression is read."""
        text = self.pick(STATEMENTS)
        if "HELPER" in text:
            if LOCAL.search(read):
                return f"out.append({read})"
            name = f"helper{len(self.helpers)}"
            self.helpers.append(f"def {name}():\n    return {read}\n")
            return text.replace("HELPER", f"{name}()")
        one = read if re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^][]*\])?", read) else f"({read})"
        return re.sub(r"\bR\b", lambda _: one, text)

    def module(self, things: list[Kind], body: str) -> str:
        names = {*re.findall(r"^(\w+) [-+*/|&^]?= ", body.replace("    ", ""), re.M)} - {"x", "out"}
        names |= {*re.findall(r"\bdel (\w+)$", body, re.M)}
        names = sorted(name for name in names if name[-1].isdigit() or name in ("act", "bin"))
        lines = [f"global {', '.join(names)}"] if names else []
        lines += ["out = []", *body.splitlines(), "return x, out"]
        head = self.fill("def fn(x, n=<int>, arg=None):\n")
        fn = head + "".join(f"    {line}\n" for line in lines)
        if self.chance(0.15):
            inner = "".join(f"    {line}" for line in fn.splitlines(True))
            fn = f"def outer():\n{inner}    return fn\nfn = outer()\n"
        defined = self.fill("\n".join(thing.define for thing in things))
        return f"{defined}\n{self.fill(''.join(self.helpers))}{fn}"

    # -- calls and changes -------------------------------------------------------------------------

    def schedule(self, things: list[Kind]) -> list[str]:
        """6 to 10 calls; before most, from the second on, the world is changed."""
        steps, results = [], []
        argument, n = self.pick(self.arguments), self.pick("123")
        for i in range(self.random.randrange(6, 11)):
            if i and self.chance(0.55):
                for _ in range(self.pick([1, 1, 1, 2])):
                    steps.append(self.change(things, results))
            if self.chance(0.2):
                argument = self.pick(self.arguments)
            if self.chance(0.1):
                n = self.pick("123")
            size = ", 1" if self.chance(0.05) else ""
            inputs = self.pick(["", f", {n}"]) if argument == "None" else f", {n}, {argument}"
            steps.append(f"call(X({self.pick('011')}{size}){inputs})")
        return steps

    def change(self, things: list[Kind], results: list[str]) -> str:
        """A change, or one that undoes an earlier one."""
        begun = {"save(": "restore()", ".start()": "mock.patch.stopall()"}
        undo = [end for start, end in begun.items() if any(start in text for text in results)]
        if undo and self.chance(0.4):
            return self.pick(undo)
        changes = self.pick(things).parts["change"]
        text = self.fill(self.pick([*changes, *(results[-2:] if self.chance(0.3) else [])]))
        results.append(text)
        return text
