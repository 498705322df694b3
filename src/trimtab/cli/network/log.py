"""The commands for the log that a broker keeps on its disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from trimtab.network.server.log_verification import FileReport, LogReport

app = PlainTyper(help="Look after what durable brokers have on disk.")


@app.callback()
def _group() -> None:
    pass


@app.command("verify")
def log_verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a broker's log, or of several.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a log without touching it: what is in each file, and what of it is damaged; it may be in use.

    A torn tail is what was being written when a broker or the power failed; nobody was told that it is stored.
    The exit code is 0 if there is no damage, 1 if there is, 2 if the folder is no log.

    \b
    Example:
      trimtab log verify /var/lib/trimtab/B1
    """
    import msgspec

    from trimtab.broker.log.log_contents import PublicationLogError
    from trimtab.network.server.log_verification import verify

    try:
        reports = verify(Path(folder))
    except (PublicationLogError, ValueError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(msgspec.json.encode({"logs": reports}).decode())
    else:
        for report in reports:
            for line in _lines(report):
                typer.echo(printable(line))
    if any(report.is_damaged for report in reports):
        raise typer.Exit(1)


def _lines(report: LogReport) -> list[str]:
    lines = [report.folder]
    for file in report.files:
        lines += [f"  {line}" for line in _file_lines(file)]
    lines += [f"  {name}: was found damaged at a start, and is kept" for name in report.set_aside]
    return lines


def _file_lines(file: FileReport) -> list[str]:
    if file.problem:
        return [f"{file.name}: {file.problem}" if file.name else file.problem]
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in file.records.items())
    format_ = f"format {file.version}" if file.version else "no known format"
    lines = [f"{file.name}: {file.size_bytes:,} bytes, {format_}: {counts or 'no records'}"]
    if file.unended_count:
        lines.append(f"  publications that have not ended: {file.unended_count:,}")
    if file.torn is not None:
        lines.append(f"  torn tail: {file.torn.size_bytes:,} bytes from byte {file.torn.offset_bytes} on")
    lines += [
        f"  DAMAGE: {each.size_bytes:,} bytes from byte {each.offset_bytes} on: {each.reason}" for each in file.damage
    ]
    return lines
