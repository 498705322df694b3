"""The commands that give a newcomer something to begin with: `trimtab examples` and `trimtab init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.input_lines import refuse


def examples(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this one; all are listed if missing.")
    ] = None,
    copy_to: Annotated[
        str | None, typer.Option("--copy-to", metavar="DIR", help="Copy all examples there; what is there stays.")
    ] = None,
) -> None:
    """List the examples that are installed with trimtab, print one, or copy them all to a folder.

    \b
    Example:
      trimtab examples
      trimtab examples seven
      trimtab examples --copy-to my-examples
    """
    from trimtab.network.admin.examples import all_examples, copy_examples, network_examples, subject_of

    if copy_to is not None:
        try:
            copied = copy_examples(Path(copy_to))
        except OSError as error:
            refuse(f"--copy-to {copy_to}: {error.strerror or error}")
        typer.echo(f"{len(copied)} examples copied to {copy_to}")
        return
    found, networks = all_examples(), network_examples()
    if name is not None:
        if name not in found:
            refuse(f"no example is named {name}; there are {', '.join(found)}")
        typer.echo(found[name].read_text(encoding="utf-8"), nl=False)
        return
    typer.echo("Networks, started with `trimtab up --example NAME`:")
    for each, path in networks.items():
        typer.echo(f"  {each}\n      {subject_of(path)}")
    typer.echo("\nOther files, copied with `trimtab examples --copy-to DIR`:")
    for each, path in found.items():
        if each not in networks:
            typer.echo(f"  {path.name}\n      {subject_of(path)}")


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The network file that is written.")] = "network.toml",
) -> None:
    """Write a network file of three brokers with comments that tell what can be set.

    A file that exists is not written over.

    \b
    Example:
      trimtab init
      trimtab up network.toml
    """
    from trimtab.network.admin.examples import NEW_NETWORK

    path = Path(file)
    try:
        with path.open("x", encoding="utf-8") as new:
            new.write(NEW_NETWORK.replace("network.toml", path.name))
    except FileExistsError:
        refuse(f"{file}: is there already, and stays as it is; give another name")
    except OSError as error:
        refuse(f"{file}: cannot be written: {error.strerror or error}")
    typer.echo(f"{file} describes three brokers. Start them with: trimtab up {file}")
