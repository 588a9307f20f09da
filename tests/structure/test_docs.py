"""The documents tell the truth: generated pages are fresh, and the diffs they show work."""

import ast
import doctest
import functools
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.structure.pages import ROOT, python_of

import glasshouse as gh

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if ">>> " in page.read_text()]


def run(code: str, source: Path, **flags: str) -> str:
    """Return the output of a fresh interpreter that imports glasshouse from `source`."""
    path = os.pathsep.join([str(source), str(ROOT / "tests" / "conformance")])
    environment = {**os.environ, "PYTHONPATH": path, **flags}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def apply(document: str, source: Path, number: int = 0, *options: str) -> None:
    """Apply a diff that a document shows to a copy of the sources."""
    text = (ROOT / "docs" / document).read_text()
    diff = re.findall(r"```diff\n(.*?)```", text, re.S)[number]
    command = ["git", "apply", *options]
    subprocess.run(command, input=diff, text=True, cwd=source.parent, check=True)


@pytest.fixture
def source(tmp_path):
    """A copy of src to change."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_the_page_of_primitives_is_fresh():
    tool = str(ROOT / "tools" / "documents" / "make_primitive_docs.py")
    code = f"import sys, runpy; sys.argv = ['', '--check']; runpy.run_path({tool!r})['main']()"
    assert "up to date" in run(code, ROOT / "src")


def test_the_table_of_what_is_captured_is_fresh():
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_capture_docs.py"))
    assert tool["page"]() == (ROOT / "docs" / "inside" / "capture.md").read_text()


def test_the_pages_of_measurements_are_what_the_script_makes(monkeypatch):
    """Update with: python tools/documents/make_measurements.py"""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "documents"))
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_measurements.py"))
    for name, text in tool["pages"]().items():
        assert text == (ROOT / "docs" / "measurements" / name).read_text(), name


def test_every_record_of_a_benchmark_is_on_a_page_of_measurements():
    folder = ROOT / "docs" / "measurements"
    text = "".join(page.read_text() for page in folder.glob("*.md"))
    records = (ROOT / "benchmarks" / "results").glob("*.json")
    assert [x.name for x in records if f"`benchmarks/results/{x.name}`" not in text] == []


def test_the_pictures_of_schedules_and_curves_are_fresh():
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_distributed_docs.py"))
    page = (ROOT / "docs" / "inside" / "distributed.md").read_text()
    assert (
        tool["page"]({name: tool[name]() for name in ("schedules", "curves", "exchanges")}) == page
    )


def test_each_scheme_has_a_picture_on_the_page_with_a_row_for_each_rank():
    sys.path.insert(0, str(ROOT / "tools" / "documents"))
    tool = importlib.import_module("make_distributed_pictures")
    page = (ROOT / "docs" / "inside" / "distributed.md").read_text()
    assert sorted(re.findall(r"\(\.\./pictures/(\w+)\.svg\)", page)) == sorted(tool.PICTURES)
    for name, picture in tool.PICTURES.items():
        drawing = ElementTree.parse(tool.FOLDER / f"{name}.svg")
        texts = [x.text for x in drawing.iter("{http://www.w3.org/2000/svg}text")]
        ranks = [text for text in texts if re.fullmatch(r"rank \d", text)]
        assert ranks == [f"rank {rank}" for rank in range(picture.scheme.ranks)]


CHECK_COSH = """
import numpy as np, glasshouse as gh
import test_cards
from cases import cases, differentiable
own = [c for c in cases() if c.card.name == "cosh"]
smooth = [c for c in differentiable(("float64", "complex128")) if c.card.name == "cosh"]
test_cards.test_forward(gh.primitives["cosh"], "numpy")
test_cards.test_costs_are_counts(gh.primitives["cosh"])
for case in smooth:
    test_cards.test_vjp_is_the_difference_quotient(case)
    test_cards.test_jvp_is_the_difference_quotient(case)
    test_cards.test_jvp_agrees_with_vjp(case)
    test_cards.test_second_derivative_is_the_difference_quotient(case)
    test_cards.test_vmap_is_the_loop(case)
    test_cards.test_gradient_under_vmap_is_the_loop(case)
    test_cards.test_gradient_while_recording_is_the_gradient(case)
    test_cards.test_rules_get_specs_for_what_they_do_not_read(case)

from test_compiled_cards import WAYS, compiled, forward
real = [c for c in own if "complex" not in c.dtype]
gh.backends.load("lazy").strict = True
for case, (got,) in zip(real, compiled(forward, real), strict=True):
    test_cards.close(got, case.card.ref(*case.arrays()), case.dtype)
gh.backends.load("lazy").strict = False
for way in WAYS:
    results = compiled(way, [c for c in smooth if c.dtype in ("float64", "complex128")])
    assert all(np.isfinite(y).all() for ys in results for y in ys)
test_cards.test_card_is_complete(gh.primitives["cosh"])
test_cards.test_wrong_operands_are_refused(gh.primitives["cosh"])
print(len(own) > 10, len(smooth) > 2)
"""


@pytest.mark.slow
def test_the_primitive_of_the_guide_works_in_every_way(source):
    apply("how_to/write_a_primitive.md", source)
    assert run(CHECK_COSH, source) == "True True"


USE_OWN_CARDS = """
x = gh.tensor(np.linspace(-2, 2, 8).astype(np.float32), requires_grad=True)
y = gh.exp(softsign(x)) + leaky(x, slope=0.25)
y.sum().backward()
a = x.numpy()
s, up = softsign.ref(a), np.where(a > 0, 1, 0.25)
print(
    np.allclose(y.numpy(), np.exp(s) + leaky.ref(a, slope=0.25)),
    np.allclose(x.grad.numpy(), np.exp(s) * (1 - abs(s)) ** 2 + up),
    gh.backends.current().fallbacks,
)
"""


@pytest.mark.slow
def test_the_cards_outside_the_package_are_compiled():
    """In strict: none of them is a step of the host."""
    (block,) = python_of(ROOT / "docs" / "how_to" / "write_a_primitive.md")
    code = f"import glasshouse as gh\n{block}\n{USE_OWN_CARDS}"
    got = run(code, ROOT / "src", GH_COMPILE="always", GH_STRICT="1", GH_BACKEND="lazy")
    assert got == "True True no fallbacks"


USE_RUNNING_SUM = """
import numpy as np, sys, glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.ops.collective import running_sum
from glasshouse.ops.exchange import sent_bytes
from glasshouse.ops.process import process

def rank_does(name):
    world, rank = process.world, process.rank
    transport, before = process.transport(world), process.transport(world).sent_bytes
    x = gh.tensor(np.arange(5, dtype=np.float32) + rank, requires_grad=True)
    y = running_sum(x * 1, group=world)
    (y * (rank + 1)).sum().backward()
    count = transport.sent_bytes - before
    with gh.FlopCounter() as counter:
        running_sum(gh.asarray(x.numpy()), group=world).numpy()
    message = ""
    try:
        (running_sum if rank else dist.all_reduce)(gh.ones(3), group=world).numpy()
    except gh.CollectiveError as error:
        message = str(error)
    return y.numpy().tolist(), x.grad.numpy().tolist(), dict(counter.sent_bytes()), message

if __name__ == "__main__":
    for name in ("local", "shared_files"):
        (y0, g0, sent, text), (y1, g1, _, _) = dist.spawn(rank_does, 2, name, transport=name)
        print(y0 == [0, 1, 2, 3, 4], y1 == [1, 3, 5, 7, 9], g0 == [3] * 5, g1 == [2] * 5)
        print(sent == {("running_sum", "world"): 20}, "running_sum(float32, shape (3,))" in text)
"""


@pytest.mark.slow
def test_the_collective_of_the_guide_works_over_every_transport(source, tmp_path):
    apply("how_to/write_a_collective.md", source)
    script = tmp_path / "use_running_sum.py"
    script.write_text(USE_RUNNING_SUM)
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    assert set(run(code, source).split()) == {"True"}


USE_FMAX = """
import numpy as np, torch
from glasshouse.torch.aten.table import TABLE

x = torch.tensor([1.0, float("nan"), 3.0, 2.0], requires_grad=True)
y = torch.tensor([2.0, 2.0, float("nan"), 2.0], requires_grad=True)

def larger(x, y):
    return torch.fmax(x, y) * 2

def results_of(function):
    x.grad = y.grad = None
    z = function(x, y)
    z.sum().backward()
    return [t.detach().numpy().copy() for t in (z, x.grad, y.grad)]

compiled = torch.compile(larger, backend="glasshouse", options={"strict": True})
pairs = zip(results_of(larger), results_of(compiled))
print("fmax.default" in TABLE, all(np.array_equal(a, b, equal_nan=True) for a, b in pairs))
"""


@pytest.mark.slow
def test_the_operator_of_the_page_is_compiled(source):
    pytest.importorskip("torch")
    apply("inside/files_touched.md", source)
    assert run(USE_FMAX, source) == "True True"


USE_INVERT = """
from glasshouse.capture.rules.opcodes import unknown_operation
print(unknown_operation((lambda x: ~x).__code__))
"""


def test_the_operation_of_the_page_is_what_captures_it(source):
    assert run(USE_INVERT, source) == ""
    apply("inside/files_touched.md", source, 1, "--reverse")
    assert run(USE_INVERT, source) == "UNARY_INVERT"


USE_PRECISE = """
import numpy as np, glasshouse as gh
assert "precise" in gh.backends.available()
with gh.backends.use("precise") as backend:
    x = gh.tensor(np.full(10_000, 0.1, np.float32), requires_grad=True)
    total = x.sum()
    total.backward()
    print(abs(total.item() - 1000.0) < 1e-3, x.grad.sum().item(), backend.fallbacks["sum"])
    (x @ x).item()
    assert "run of matmul: no kernel for float32" in str(backend.fallbacks), backend.fallbacks

import test_cards
for card in gh.primitives.values():
    test_cards.test_forward(card, "precise")
"""


@pytest.mark.slow
def test_the_backend_of_the_guide_works(source):
    apply("how_to/write_a_backend.md", source)
    assert run(USE_PRECISE, source) == "True 10000.0 0"


def name_of(page: Path) -> str:
    return page.name


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_examples_give_what_is_printed(page):
    with gh.backends.use("lazy"):
        done = doctest.testfile(str(page), module_relative=False)
    assert done.attempted > 0 and done.failed == 0


def missing(dotted: str) -> bool:
    """Whether `gh.a.b` is nowhere."""
    value = gh
    for part in dotted.split(".")[1:]:
        if not hasattr(value, part):
            return True
        value = getattr(value, part)
    return False


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_parses_and_every_name_of_ours_is_there(page):
    for block in python_of(page):
        ast.parse(block)
    names = set(re.findall(r"\bgh(?:\.[A-Za-z_]\w*)+", page.read_text()))
    assert [name for name in sorted(names) if missing(name)] == []


@functools.cache
def files_of_the_project() -> list[str]:
    """The paths of all files, with a slash before them; environments and caches are left out."""
    results = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name[:1] != "." and name != "__pycache__"]
        results += [f"/{(Path(folder) / name).relative_to(ROOT)}" for name in names]
    return results


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_files_that_are_named_exist(page):
    named = set(re.findall(r"`([\w/]+\.(?:py|c|h|md|toml|txt))`", page.read_text()))
    files = files_of_the_project()
    lost = [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)]
    assert lost == []


GUIDES = {
    "how_to/write_a_layer.md": 1,
    "how_to/write_a_lowerer.md": 5,
    "how_to/write_a_pass.md": 2,
    "how_to/write_a_target.md": 3,
    "inside/read_the_bytecode.md": 2,
}


@pytest.mark.parametrize("document", GUIDES)
def test_guides_show_what_stands_in_the_examples(document):
    """Each block that names a file is part of it, but for indentation and empty lines."""
    text = (ROOT / "docs" / document).read_text()
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.S)
    assert len(blocks) == GUIDES[document]
    for name, code in blocks:
        lines, shown = (
            [line.strip() for line in source.splitlines() if line.strip()]
            for source in ((ROOT / name).read_text(), code)
        )
        assert any(lines[i : i + len(shown)] == shown for i in range(len(lines))), code
