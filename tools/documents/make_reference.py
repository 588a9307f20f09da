"""Make the pages of the API reference: one for each public namespace, the command line, the flags;
and the pages of the storeys, which are the READMEs in their folders.

MkDocs runs this (plugin gen-files); the pages exist only in the built site."""

import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import click
import griffe
import mkdocs_gen_files

from glasshouse.base.flags import declared
from glasshouse.cli import main

# The namespaces that users name, in the order of the navigation, and the title of each page.
NAMESPACES = {
    "glasshouse": "gh: tensors and functions",
    "glasshouse.linalg": "gh.linalg",
    "glasshouse.fft": "gh.fft",
    "glasshouse.random": "gh.random",
    "glasshouse.special": "gh.special",
    "glasshouse.base.tree": "gh.tree",
    "glasshouse.nn": "gh.nn: layers",
    "glasshouse.nn.functional": "gh.nn.functional",
    "glasshouse.nn.init": "gh.nn.init: initial values",
    "glasshouse.nn.utils": "gh.nn.utils",
    "glasshouse.nn.utils.parametrizations": "gh.nn.utils.parametrizations",
    "glasshouse.nn.utils.parametrize": "gh.nn.utils.parametrize",
    "glasshouse.nn.utils.prune": "gh.nn.utils.prune",
    "glasshouse.nn.utils.rnn": "gh.nn.utils.rnn: sequences of several lengths",
    "glasshouse.optim": "gh.optim",
    "glasshouse.data": "gh.data",
    "glasshouse.metrics": "gh.metrics",
    "glasshouse.distributions": "gh.distributions",
    "glasshouse.cuda": "gh.cuda: what PyTorch's programs ask",
    "glasshouse.fit": "gh.fit",
    "glasshouse.profile": "gh.profile",
    "glasshouse.analyze": "gh.analyze",
    "glasshouse.estimate": "gh.estimate",
    "glasshouse.distributed": "gh.distributed",
    "glasshouse.memory": "gh.memory",
    "glasshouse.backends": "gh.backends",
    "glasshouse.autograd": "gh.autograd",
    "glasshouse.dispatch": "gh.dispatch: cards, modes, watchers",
    "glasshouse.targets": "gh.targets",
    "glasshouse.interop": "glasshouse.interop: checkpoints, other libraries",
    "glasshouse.jax": "glasshouse.jax: JAX's names",
    "glasshouse.jax.numpy": "glasshouse.jax.numpy",
    "glasshouse.jax.lax": "glasshouse.jax.lax",
    "glasshouse.jax.nn": "glasshouse.jax.nn",
    "glasshouse.jax.nn.initializers": "glasshouse.jax.nn.initializers",
    "glasshouse.jax.random": "glasshouse.jax.random",
    "glasshouse.onnx": "gh.onnx",
    "glasshouse.vision": "gh.vision",
    "glasshouse.vision.models": "gh.vision.models",
    "glasshouse.vision.boxes": "gh.vision.boxes",
    "glasshouse.speech": "gh.speech",
    "glasshouse.text": "gh.text",
    "glasshouse.text.models": "gh.text.models",
}


MOST_LETTERS = 60  # of a value's text on a page


def public_objects(name: str) -> Iterator[tuple[str, str, object]]:
    """(name, place, object) of the classes and functions of ours in a namespace; the place is the
    module that defines it and its name there. Each object is on the first page that has it."""
    for attribute, value in sorted(vars(pkgutil.resolve_name(name)).items()):
        module = getattr(value, "__module__", None) or ""
        is_public = not attribute.startswith("_") and module.startswith("glasshouse")
        if not is_public or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        place = f"{module}.{value.__qualname__}"
        if "<" not in place and place not in listed:
            listed[place] = attribute
            yield attribute, place, value


def other_values(name: str) -> Iterator[tuple[str, str]]:
    """(name, text) of a namespace's public values that are no classes, functions or modules, and of
    names for what another page has: dtypes, constants, synonyms."""
    for attribute, value in sorted(vars(pkgutil.resolve_name(name)).items()):
        if attribute.startswith("_") or inspect.ismodule(value):
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            text = repr(value)
            text = text if len(text) < MOST_LETTERS and " at 0x" not in text else ""
            yield attribute, f"`{text}`" if text else f"a {type(value).__name__}"
        elif attribute != listed.get(f"{value.__module__}.{value.__qualname__}", value.__name__):
            yield attribute, f"another name of `{value.__module__}.{value.__qualname__}`"


def write_other_values(name: str, file) -> None:
    """A heading for each of these, below one for all."""
    values = list(other_values(name))
    if values:
        print("## Values and other names\n", file=file)
    for attribute, text in values:
        place = f"{name}.{attribute}".replace("glasshouse", "gh")
        print(f"### `{attribute}` {{#{place}}}\n\n{text}\n", file=file)


def write_namespace(name: str, title: str) -> None:
    """The page of one namespace."""
    page = name.replace("glasshouse", "gh").replace(".", "_")
    with mkdocs_gen_files.open(f"reference/api/{page}.md", "w") as file:
        print(f"# {title}\n", file=file)
        for attribute, place, value in public_objects(name):
            if is_in_source(place):
                print(f"::: {place}\n", file=file)
            else:
                print(entry_of(attribute, value), file=file)
        write_other_values(name, file)


def is_in_source(place: str) -> bool:
    """Whether the source defines a name there, so that mkdocstrings finds it."""
    try:
        named = package[place.partition(".")[2]]
        return not named.is_alias or named.final_target is not None
    except (KeyError, griffe.GriffeError):
        return False


def entry_of(name: str, value) -> str:
    """The entry of a function that is made at import, as methods that write in place are."""
    try:
        signature = str(inspect.signature(value))
    except ValueError:
        signature = "(…)"
    text = inspect.getdoc(value) or ""
    return f"## `{name}` {{#{name}}}\n\n```python\n{name}{signature}\n```\n\n{text}\n"


def write_command_line() -> None:
    """The page of the `glasshouse` command: the help of each of its commands."""
    with mkdocs_gen_files.open("reference/api/command_line.md", "w") as file:
        print("# Command line\n", file=file)
        parent = click.Context(main, info_name="glasshouse")
        for name in main.list_commands(parent):
            command = main.get_command(parent, name)
            context = click.Context(command, info_name=name, parent=parent)
            print(f"## glasshouse {name}\n\n```text\n{command.get_help(context)}\n```\n", file=file)


def write_flags() -> None:
    """The page of the GH_… settings."""
    with mkdocs_gen_files.open("reference/api/flags.md", "w") as file:
        print("# Flags\n\nEnvironment variables, read at start-up.\n", file=file)
        print("| variable | default | meaning |\n| --- | --- | --- |", file=file)
        for flag in declared:
            meaning = flag.help.replace("|", "\\|")
            print(f"| `{flag.variable}` | `{flag.default!r}` | {meaning} |", file=file)


def write_storeys() -> None:
    """The pages of the storeys: their READMEs, with links as the site has them."""
    for page in sorted(Path("src/glasshouse").glob("*/README.md")):
        text = page.read_text().replace("](../../../docs/", "](../../")
        with mkdocs_gen_files.open(f"inside/storeys/{page.parent.name}.md", "w") as file:
            file.write(text)


listed: dict[str, str] = {}  # places, and the names under which pages have them
package = griffe.load("glasshouse", search_paths=["src"])
for namespace, page_title in NAMESPACES.items():
    write_namespace(namespace, page_title)
write_command_line()
write_flags()
write_storeys()
