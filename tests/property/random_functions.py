"""Random Python functions over tensors, numbers, containers, classes, generators and contexts.

A seed gives the same text always.
"""

import random
import re

from templates import (
    BLOCKS,
    BREAK,
    CAUGHT,
    ERRORS,
    EXPRESSIONS,
    GLOBALS,
    HELPERS,
    KINDS,
    LEAVES,
    METHODS,
    RAISES,
    SIZES,
    STATEMENTS,
)

HOLE = re.compile(r"<(\w+)(=?)>")
DEPTHS = [1, 1, 2, 2, 3]  # of expressions


class RandomFunction:
    """A random function `fn(x, n, items, table, box, word, r)`, with what it uses, as text."""

    def __init__(self, seed: int, gradients: bool = False):
        self.random = random.Random(seed)
        self.scope = {kind: list(LEAVES[kind]) for kind in KINDS}
        self.count = 0
        self.expressions = {kind: list(EXPRESSIONS[kind]) for kind in KINDS}
        self.statements = list(STATEMENTS)
        self.breaking = self.random.choice([0.0, 0.1, 0.1, 0.5])
        if gradients:
            self.statements += ["<vec>.sum().backward()", "W.grad = None", "x.grad = None"] * 2
            self.expressions["cond"] += ["<vec>.requires_grad", "W.grad is None"] * 2
            self.expressions["vec"] += ["LAYER(<vec>.sum().reshape(1)) + <vec>"] * 2
        helpers = self.helpers()
        body = self.body()
        self.text = "".join(used(helpers, body + "SHARED = Box(2)\n"))

    def helpers(self) -> list[str]:
        """Definitions that a function may use, the user's class with some special methods."""
        scope, self.scope, self.depths = self.scope, GLOBALS, [0]
        texts = [self.fill(text, 0) for text in HELPERS.split("\n\n")]
        self.scope, self.depths = scope, DEPTHS
        return texts

    def methods(self) -> str:
        """Some special methods, whose uses come into the tables."""
        text = ""
        for name in self.random.sample(sorted(METHODS), self.random.choice([0, 1, 2, 3, 5])):
            parameters, bodies, adds = METHODS[name]
            body = self.fill("<break>\n" + self.random.choice(bodies), 0)
            text += f"def {name}({parameters}):\n" + indented(body, 4)
            for kind, templates in adds.items():
                table = self.statements if kind == "statement" else self.expressions[kind]
                table += templates * 4
        return text

    def body(self) -> str:
        """The function itself."""
        block = self.block(0, 2 + self.random.randrange(6))
        names = list(
            {f: 0 for kind in KINDS for f in self.scope[kind] if f[0] == "v" and f[1:].isdigit()}
        )
        if self.random.random() < 0.5:
            names = self.random.sample(names, len(names) // 2)
        results = [*names, self.expression("vec", 1), self.expression("num", 1), "x", "n"]
        block += f"return {', '.join(results)}\n"
        head = "def fn(x, n, items, table, box, word, r):\n    calls = 0\n"
        return head + indented(hoisted(block), 4)

    def block(self, depth: int, count: int) -> str:
        """Statements; what they define is mostly used inside only."""
        before = {kind: len(names) for kind, names in self.scope.items()}
        text = "".join(self.statement(depth) for _ in range(count))
        if depth and self.random.random() < 0.95:
            for kind, length in before.items():
                del self.scope[kind][length:]
        return text

    def statement(self, depth: int) -> str:
        chance = self.random.random()
        if chance < self.breaking:
            template = self.random.choice(BREAK)
        elif chance > 0.65 and depth < 3:
            template = self.random.choice(BLOCKS)
        else:
            template = self.random.choice(self.statements)
        return self.fill(template, depth)

    def fill(self, template: str, depth: int) -> str:
        """The lines of a template, with its holes filled."""
        lines = []
        for line in template.splitlines():
            space = len(line) - len(line.lstrip())
            if line.strip() == "<block>":
                text = self.block(depth + 1, 1 + self.random.randrange(2))
            elif line.strip() == "<break>":
                broken = self.random.random() < self.breaking
                text = self.line(self.random.choice(BREAK)) if broken else ""
            elif line.strip() == "<methods>":
                text = self.methods()
            else:
                text = self.line(line.strip())
            lines.append(indented(text, space))
        return "".join(lines)

    def line(self, template: str) -> str:
        """A statement on one line. What it defines can be used after it."""
        new: list[tuple[str, str]] = []

        def filled(hole):
            kind, defines = hole.groups()
            if not defines:
                return self.expression(kind, self.random.choice(self.depths))
            self.count += 1
            new.append((kind, f"v{self.count}"))
            return new[-1][1]

        text = HOLE.sub(filled, template)
        for kind, name in new:
            self.scope[kind] += [name] * 3
        return text + "\n"

    def expression(self, kind: str, depth: int) -> str:
        if kind == "int":
            return str(self.random.randrange(-3, 6))
        if kind == "size":
            template = self.random.choice(SIZES)
            depth = min(depth, 1)
        elif kind in ("raise", "caught", "error", "swallows"):
            tables = {"raise": RAISES, "caught": CAUGHT, "error": ERRORS}
            template = self.random.choice(tables.get(kind, ["False", "False", "True", "<num>"]))
        elif depth <= 0:
            template = self.random.choice(self.scope[kind])
        else:
            template = self.random.choice(self.expressions[kind])
        return HOLE.sub(lambda hole: self.expression(hole[1], depth - 1), template)


def used(helpers: list[str], body: str) -> list[str]:
    """The helpers that a body names, and those that these name, in order; then the body."""
    names = [re.search(r"^(?:class|def) (\w+)", text, re.M)[1] for text in helpers]
    wanted, text = set(), body
    while True:
        new = {n for n in names if n not in wanted and re.search(rf"\b{n}\b", text)}
        if not new:
            break
        wanted |= new
        text = "".join(helpers[names.index(n)] for n in new)
    return [h for n, h in zip(names, helpers, strict=True) if n in wanted] + [body]


def indented(text: str, space: int) -> str:
    return "".join(" " * space + line + "\n" for line in text.splitlines())


def hoisted(block: str) -> str:
    """A block whose declarations of globals stand at its start, once, as Python wants it."""
    lines = block.splitlines()
    kept = [line for line in lines if line.strip() != "global TOTAL"]
    return "\n".join(["global TOTAL"] * (len(kept) < len(lines)) + kept) + "\n"
