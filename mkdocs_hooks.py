"""What mkdocs does beyond its own: pages made from the code, and links to files of the repository.

A page may link to a file beside `docs` (`../src/trimtab/broker/core.py`). On the site such a file is not there: its
name stays, and a name of nothing is an error.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent
_LINK: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:src|tests|examples)[^)#]*|(?:\.\./)+[A-Z]+\.md)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code."""
    for path, text in (("reference/commands.md", _commands()), ("reference/api.md", _api())):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Keep the names of files of the repository, which are not on the site, and check that they exist."""
    here = (Path(config["docs_dir"]) / page.file.src_path).parent

    def named(found: re.Match[str]) -> str:
        if not (here / found[2]).exists():
            raise PluginError(f"{page.file.src_path}: there is no file {found[2]}")
        return found[1] if found[1].startswith("`") else f"`{found[1]}`"

    return _LINK.sub(named, markdown)


def _commands() -> str:
    """Every command with its help."""
    import typer

    from trimtab.cli.main import app

    lines = ["# Commands", "", "Made from the commands' own help.", ""]

    def add(command: Any, name: str) -> None:
        context = typer.Context(command, info_name=name)
        lines.extend([f"## {name}", "", *(f"    {line}" for line in command.get_help(context).splitlines()), ""])
        for each in getattr(command, "commands", {}).values():
            add(each, f"{name} {each.name}")

    add(typer.main.get_command(app), "trimtab")
    return "\n".join(lines)


def _api() -> str:
    """Every public name of the package with what its documentation says."""
    import trimtab

    lines = ["# Python", "", "Everything that `from trimtab import ...` offers, made from the code.", ""]
    for name in trimtab.__all__:
        thing = getattr(trimtab, name)
        if isinstance(thing, str):
            continue
        lines += [f"## {name}", "", *_documented(name, thing)]
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if not member.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                    lines += [f"### {name}.{member}", "", *_documented(member, function)]
    return "\n".join(lines)


def _documented(name: str, thing: Any) -> list[str]:
    try:
        said = [f"    {name}{inspect.signature(thing)}", ""] if callable(thing) else []
    except (TypeError, ValueError):
        said = []
    lines = (inspect.getdoc(thing) or "").splitlines()
    is_code = [line.startswith((" ", ">")) for line in lines]
    return [
        *said,
        *(f"    {x}" if code else x.replace("<", "&lt;") for x, code in zip(lines, is_code, strict=True)),
        "",
    ]
