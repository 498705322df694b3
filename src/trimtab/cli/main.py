"""The `trimtab` command: its subcommands, and how it ends when its reader or its user leaves."""

import os
import sys
from typing import Annotated

import typer

from trimtab import __version__
from trimtab.cli import (
    active_commands,
    bench_commands,
    coordinator_command,
    demo_command,
    drain_command,
    lab_commands,
    language_commands,
    link_commands,
    load_command,
    log_commands,
    move_command,
    network_commands,
    plan_command,
    policy_command,
    replace_commands,
    restart_commands,
    simulation_commands,
    tour,
)
from trimtab.matching.engines import EngineError

# Plain help and error texts: brackets in what the user typed are filters, not markup.
app = typer.Typer(
    name="trimtab",
    help="A content-based publish/subscribe network that balances itself.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("match")(language_commands.match)
app.command("relate")(language_commands.relate)
app.command("cover")(language_commands.cover)
app.command("demo")(demo_command.demo)
app.command("tour")(tour.tour)
app.command("up")(network_commands.up)
app.command("broker")(network_commands.broker)
app.command("sub")(network_commands.sub)
app.command("pub")(network_commands.pub)
app.command("status")(network_commands.status)
app.command("load")(load_command.load)
app.command("plan")(plan_command.plan)
app.command("policy")(policy_command.policy)
app.add_typer(active_commands.app, name="active")
app.command("coordinator")(coordinator_command.coordinator)
app.add_typer(link_commands.app, name="link")
app.add_typer(log_commands.app, name="log")
app.command("replace")(replace_commands.replace)
app.command("assist")(replace_commands.assist)
app.command("restart")(restart_commands.restart)
app.command("drain")(drain_command.drain)
app.command("standby")(replace_commands.standby)
app.command("move")(move_command.move)
app.add_typer(bench_commands.app, name="bench")
app.add_typer(simulation_commands.app, name="sim")
app.add_typer(lab_commands.app, name="lab")
simulation_commands.add_record_commands(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trimtab {__version__}")
        raise typer.Exit


@app.callback()
def _options_for_every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with its exit code.

    A reader that has left (`| head`) is no error to speak of. An engine that the environment or an option asks for, and
    that there is not, is the user's mistake.
    """
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except EngineError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
