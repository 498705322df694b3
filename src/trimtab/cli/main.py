"""The `trimtab` command: its subcommands, and how it ends when its reader or its user leaves."""

import os
import sys
from typing import Annotated

import typer

from trimtab import __version__
from trimtab.cli import language_commands, security_commands
from trimtab.cli.active import commands as active_commands
from trimtab.cli.bench import commands as bench_commands
from trimtab.cli.extras import what_to_install
from trimtab.cli.lab import commands as lab_commands
from trimtab.cli.lab.figures import figures
from trimtab.cli.network import commands as network_commands
from trimtab.cli.network import links as link_commands
from trimtab.cli.network import log as log_commands
from trimtab.cli.network.coordinator import coordinator
from trimtab.cli.network.drain import drain
from trimtab.cli.network.examples import examples, init
from trimtab.cli.network.move import move
from trimtab.cli.network.policy import policy
from trimtab.cli.network.replace import assist, replace, standby
from trimtab.cli.network.restart import restart
from trimtab.cli.operations.demo import demo
from trimtab.cli.operations.load import load
from trimtab.cli.operations.plan import plan
from trimtab.cli.operations.tour import tour
from trimtab.cli.plain_help import PlainTyper
from trimtab.cli.records.story import sessions, story
from trimtab.cli.simulation import commands as simulation_commands
from trimtab.matching.engines import EngineError
from trimtab.network.security.errors import IdentityFileError, NotPermittedError, SecurityFileError

# Plain help and error texts: brackets in what the user typed are filters, not markup.
app = PlainTyper(
    name="trimtab",
    help="A content-based publish/subscribe network that balances itself.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("match")(language_commands.match)
app.command("relate")(language_commands.relate)
app.command("cover")(language_commands.cover)
app.command("demo")(demo)
app.command("tour")(tour)
app.command("init")(init)
app.command("examples")(examples)
app.command("up")(network_commands.up)
app.command("broker")(network_commands.broker)
app.command("sub")(network_commands.sub)
app.command("pub")(network_commands.pub)
app.command("status")(network_commands.status)
app.command("load")(load)
app.command("plan")(plan)
app.command("policy")(policy)
app.add_typer(active_commands.app, name="active")
app.command("coordinator")(coordinator)
app.add_typer(link_commands.app, name="link")
app.add_typer(log_commands.app, name="log")
app.command("replace")(replace)
app.command("assist")(assist)
app.command("restart")(restart)
app.command("drain")(drain)
app.command("standby")(standby)
app.command("move")(move)
app.command("allowed")(security_commands.allowed)
app.add_typer(security_commands.certs, name="certs")
app.command("password")(security_commands.password)
app.command("audit")(security_commands.audit)
app.command("doctor")(security_commands.doctor)
app.add_typer(bench_commands.app, name="bench")
app.add_typer(simulation_commands.app, name="sim")
app.add_typer(lab_commands.app, name="lab")
app.command("sessions")(sessions)
app.command("story")(story)
app.command("figures")(figures)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trimtab {__version__}")
        raise typer.Exit


@app.callback()
def _options_for_every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    identity: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="FILE", help="Who you are: an identity file (docs/security.md); else TRIMTAB_AS names it."
        ),
    ] = None,
) -> None:
    if identity is not None:
        os.environ["TRIMTAB_AS"] = identity


def main() -> None:
    """Run the command line and exit with its exit code.

    A reader that has left (`| head`) is no error to speak of. An engine that the environment or an option asks for, and
    that there is not, is the user's mistake. A library that an extra brings is said to be missing in one line.
    """
    os.umask(0o077)  # filters, publications and keys are in what commands write: it is for this user alone
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (EngineError, IdentityFileError, SecurityFileError) as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = what_to_install(error.name or "", next((each for each in sys.argv[1:] if each[:1] != "-"), ""))
        if not missing:
            raise
        typer.echo(missing, err=True)
        sys.exit(2)
    except NotPermittedError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
