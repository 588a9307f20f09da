"""Make the pages of the API reference: one for each public namespace, the command line, the flags.

MkDocs runs this (plugin gen-files); the pages exist only in the built site."""

import inspect
import pkgutil
from collections.abc import Iterator

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
    "glasshouse.nn": "gh.nn: layers",
    "glasshouse.nn.functional": "gh.nn.functional",
    "glasshouse.optim": "gh.optim",
    "glasshouse.data": "gh.data",
    "glasshouse.metrics": "gh.metrics",
    "glasshouse.fit": "gh.fit",
    "glasshouse.profile": "gh.profile",
    "glasshouse.analyze": "gh.analyze",
    "glasshouse.estimate": "gh.estimate",
    "glasshouse.distributed": "gh.distributed",
    "glasshouse.memory": "gh.memory",
    "glasshouse.backends": "gh.backends",
    "glasshouse.vision": "gh.vision",
    "glasshouse.speech": "gh.speech",
    "glasshouse.text": "gh.text",
}


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
            listed.add(place)
            yield attribute, place, value


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


def is_in_source(place: str) -> bool:
    """Whether the source defines a name there, so that mkdocstrings finds it."""
    try:
        return package[place.partition(".")[2]] is not None
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


listed: set[str] = set()
package = griffe.load("glasshouse", search_paths=["src"])
for namespace, page_title in NAMESPACES.items():
    write_namespace(namespace, page_title)
write_command_line()
write_flags()
