"""The README, the site's pages under Start and How to, those of the storeys, and the framework from
scratch: their code prints what they show.

The blocks ```python of a page run in order, in one namespace and an empty folder. A block
```output after one shows what it prints, with `...` for what differs from run to run. A block ```py
is not run, nor one that begins with >>> or names a file: test_docs.py has those."""

import contextlib
import doctest
import importlib.util
import io
import re
import runpy
from pathlib import Path

import click
import pytest
from tests.structure.pages import DOCS, blocks_of

import glasshouse as gh
from glasshouse.cli import main

README = DOCS.parent / "README.md"
STOREYS = sorted((DOCS.parent / "src" / "glasshouse").glob("*/README.md"))
BY_EXAMPLE = [DOCS / "inside" / name for name in ("capture_by_example.md", "programs.md")]
FROM_SCRATCH = DOCS / "inside" / "from_scratch.md"
PAGES = sorted([*DOCS.glob("start/*.md"), *DOCS.glob("how_to/*.md"), DOCS / "index.md", README])
MOST_LINES = 150
SLOW = ("fit_into_memory", "generate_text", "quantise_a_model", "train_an_application")
LIBRARIES = {"torch", "sklearn", "PIL", "jax", "transformers", "onnx"}


def name_of(page: Path) -> str:
    name = page.relative_to(DOCS.parent).with_suffix("").as_posix()
    return name.removeprefix("docs/").removeprefix("src/glasshouse/")


def run(code: str, space: dict) -> str:
    """Return the output of a block."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, space)
    return printed.getvalue()


def check_outputs(page: Path, space: dict) -> None:
    """Run the blocks of a page in order, and compare what they print with what it shows."""
    checker, printed = doctest.OutputChecker(), ""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for language, text, line in blocks_of(page):
        source = "\n" * line + text  # so that a traceback has the page's line
        if language == "python" and not text.startswith((">>>", "# ")):
            printed = run(compile(source, str(page), "exec"), space)
        elif language == "py":
            compile(source, str(page), "exec")
        elif language == "output":
            assert checker.check_output(text, printed, options), f"{page}:{line}\n{printed}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in (*PAGES, *STOREYS, *BY_EXAMPLE)
    ],
)
def test_code_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    code = "".join(text for language, text, _ in blocks_of(page) if language == "python")
    for library in LIBRARIES & set(re.findall(r"^(?:import|from) (\w+)", code, re.M)):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    with gh.backends.use("lazy"):
        check_outputs(page, {"__name__": "__main__"})


@pytest.mark.parametrize("compiler", ["c", "none"])
def test_the_framework_from_scratch_prints_what_its_page_shows(compiler, monkeypatch):
    if compiler == "none":
        monkeypatch.setenv("PATH", "")
    space: dict = {"__name__": "__main__"}
    check_outputs(FROM_SCRATCH, space)
    if compiler == "none":
        assert space["COMPILER"] is None
    elif space["COMPILER"] is None:
        pytest.skip("there is no C compiler")
    functions = [program.function for program in space["programs"].values()]
    assert functions and all((x is None) == (compiler == "none") for x in functions)


def test_the_table_of_the_framework_from_scratch_names_files_that_exist():
    table = FROM_SCRATCH.read_text().partition("## Where the real parts are")[2]
    files = re.findall(r"`([\w/]+\.(?:py|c))`", table)
    roots = (DOCS.parent / "src" / "glasshouse", DOCS.parent)
    lost = [file for file in files if not any((root / file).is_file() for root in roots)]
    assert len(files) > 30
    assert lost == []


def commands_of(page: Path) -> list[list[str]]:
    """The command lines of ours that a page shows, as words."""
    lines = "".join(text for language, text, _ in blocks_of(page) if language == "sh").splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    return [x[x.index("glasshouse") + 1 :] for x in words if "glasshouse" in x and "pip" not in x]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page):
    for words in commands_of(page):
        command: click.Command = main
        for word in words:
            if not isinstance(command, click.Group) or word.startswith("-"):
                break
            command = command.get_command(click.Context(command), word)
            assert command is not None, words
        options = {option for x in command.params for option in x.opts} | {"--help", "--version"}
        own = words[: words.index("--")] if "--" in words else words
        assert {x.partition("=")[0] for x in own if x.startswith("--")} <= options, words


@pytest.mark.parametrize("page", [*PAGES, *STOREYS], ids=name_of)
def test_a_page_is_short_and_its_pictures_have_texts(page):
    text = page.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert len(re.findall(r"^# ", re.sub(r"```.*?```", "", text, flags=re.S), re.M)) == 1
    assert not re.search(r"!\[\]\(", text)


def test_the_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)", README.read_text())
    assert [x for x in links if not (README.parent / x).is_file()] == []


def test_every_page_is_in_the_navigation():
    settings = (DOCS.parent / "mkdocs.yml").read_text()
    listed = set(re.findall(r"([\w/]+\.md)\s*$", settings, re.M))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    prefixes = ("reference/api", "inside/storeys")
    assert {x for x in listed if not x.startswith(prefixes)} == pages
    pages_of_storeys = {f"inside/storeys/{page.parent.name}.md" for page in STOREYS}
    assert {x for x in listed if x.startswith("inside/storeys")} == pages_of_storeys


@pytest.mark.parametrize("page", STOREYS, ids=name_of)
def test_the_page_of_a_storey_names_files_and_pages_that_exist(page):
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]+)", text)
    order = text.partition("\nRead ")[2].partition("\n\n")[0]
    files = re.findall(r"`([\w/]+\.(?:py|c|h))`", order)
    assert [x for x in [*links, *files] if not (page.parent / x).is_file()] == []


def test_every_storey_has_a_page():
    folders = {x.parent.name for x in (DOCS.parent / "src" / "glasshouse").glob("*/*.py")}
    assert folders - {page.parent.name for page in STOREYS} == set()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_without_a_warning(tmp_path):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    settings = load_config(str(DOCS.parent / "mkdocs.yml"), strict=True, site_dir=str(tmp_path))
    build(settings)
    assert (tmp_path / "index.html").is_file()
    judge = runpy.run_path(str(DOCS.parent / "tools" / "judges" / "reference_names.py"))
    assert judge["missing_names"](tmp_path) == []
