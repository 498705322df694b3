"""The commands on who may do what: allowed, password, certs, audit, doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from trimtab.cli.input_lines import placed, printable, refuse
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.security.identities import Identity
    from trimtab.security.rights import Rights

PASSWORD_MIN_CHARS: Final = 8

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def allowed(  # noqa: PLR0917 (each one is an option)
    identity: Annotated[str, typer.Argument(metavar="IDENTITY", help="The name of somebody, or anonymous.")],
    what: Annotated[str, typer.Argument(metavar="publish|subscribe", help="What is to be done.")],
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="What is announced or wanted.")],
    permissions: Annotated[
        str, typer.Option("--permissions", metavar="FILE", help="The permissions file.")
    ] = "permissions.toml",
    roles: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="A role that a token names; repeatable.")
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="A variable that a token gives; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether an identity may publish or subscribe to what a filter matches, and why.

    The exit code is 0 if it may, 1 if it may not.

    \b
    Example:
      trimtab allowed ann subscribe "class = 'REPORT'" --permissions examples/permissions.toml
    """
    if what not in ("publish", "subscribe"):
        refuse(f"expected publish or subscribe, not {what!r}")
    rights = _rights_of(_identity(identity, roles or (), attributes or ()), permissions)
    try:
        wanted = Filter.parse_all(filter)
    except LanguageError as error:
        mistake = placed(error, filter)
        refuse(f"FILTER, column {mistake.column}: {mistake.reason}\n{mistake.pointer()}")
    decide = rights.advertisement if what == "publish" else rights.subscription
    decisions = [decide(each) for each in wanted]
    refused = next((each for each in decisions if each.accepted is None or each.is_narrowed), None)
    is_allowed = refused is None
    narrowed = [each.accepted.to_sql() for each in decisions if each.accepted is not None and each.is_narrowed]
    permitted = [each.to_sql() for each in (rights.publish if what == "publish" else rights.subscribe)]
    if as_json:
        answer = {
            "allowed": is_allowed,
            "reason": "" if refused is None else refused.reason,
            "narrowed": narrowed,
            "roles": list(rights.roles),
            "permitted": permitted,
        }
        typer.echo(json.dumps(answer))
    else:
        typer.echo("yes" if refused is None else f"no: {refused.reason}")
        if narrowed:
            typer.echo(f"a broker narrows it to: {' OR '.join(narrowed)}")
        typer.echo(f"roles: {', '.join(rights.roles) or 'none'}")
        for text in permitted:
            typer.echo(f"may {what}: {text}")
    raise typer.Exit(0 if is_allowed else 1)


def _identity(name: str, roles: list[str] | tuple[()], attributes: list[str] | tuple[()]) -> Identity:
    from trimtab.security.identities import ANONYMOUS, Identity, IdentityError, checked_name

    variables: dict[str, str] = {}
    for text in attributes:
        key, equals, value = text.partition("=")
        if not equals or not key:
            refuse(f"--attribute {text}: expected NAME=VALUE")
        variables[key] = value
    try:
        checked_name(name)
    except IdentityError as error:
        refuse(f"IDENTITY: {error}")
    proof: Literal["anonymous", "token"] = "anonymous" if name == ANONYMOUS else "token"
    return Identity(name, proof, roles=tuple(roles), attributes=variables)


def _rights_of(identity: Identity, file: str) -> Rights:
    from trimtab.security.permissions import PermissionsError, read_permissions

    try:
        permissions = read_permissions(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        refuse(f"{file}: cannot be read: {reason}; name the permissions file with --permissions")
    except PermissionsError as error:
        refuse(printable(str(error)))
    return permissions.rights_of(identity)


certs = typer.Typer(
    name="certs",
    help="Make certificates for a network that has none.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@certs.command("init")
def certs_init(
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    folder: Annotated[
        str | None,
        typer.Option("--dir", metavar="DIR", help="Where they go; else the folder that the network file names."),
    ] = None,
    people: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="NAME", help="Somebody who gets a certificate and an identity file; repeatable."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="One more host at which brokers are found; repeatable."),
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Make certificates again that there are.")] = False,
) -> None:
    """Make a small authority, and a certificate for each broker of a network file and for its operator.

    What there is already stays as it is, unless --renew is given. Running processes read new certificates by
    themselves. Keys can be read by you alone. Keep authority.key elsewhere: who has it can be anybody.

    \b
    Example:
      trimtab certs init examples/secure.toml --for ann
    """
    from trimtab.network.network_file import NetworkFileError, read_network_file
    from trimtab.network.security.access_control import STAND_BY
    from trimtab.network.security.certificate_files import CertificateFileError
    from trimtab.network.security.certificate_making import Authority, Wanted, identity_file, write_private
    from trimtab.policies.multistage.config import COORDINATOR_NAME
    from trimtab.security.identities import IdentityError, checked_name

    try:
        plan = read_network_file(network)
        target = Path(folder or plan.security.certificates)
        if not str(folder or plan.security.certificates):
            refuse(f'{network} has no [security] with certificates = "FOLDER"; name one there, or give --dir')
        where = {entry.name: list(dict.fromkeys((entry.address.host, entry.listen.host))) for entry in plan.brokers}
        for link in plan.links:
            if link.via is not None:
                where[link.second].append(link.via.host)
        wanted = [Wanted(name, (*found, *(hosts or ()))) for name, found in where.items()]
        wanted += [
            Wanted(f"{STAND_BY}{number}", (address.host, *(hosts or ())))
            for number, address in enumerate(plan.standbys, 1)
        ]
        if plan.policy.name == "coordinated":
            wanted.append(Wanted(COORDINATOR_NAME, (*where[plan.brokers[0].name], *(hosts or ()))))
        others = dict.fromkeys(["operator", *map(checked_name, people or ())])
        for name in others:
            if name in where:
                refuse(f"--for {name}: {name} is a broker")
        authority = Authority.in_folder(target, Path(network).stem)
        made: list[str] = []
        for each in (*wanted, *(Wanted(name) for name in others)):
            if renew or not (target / f"{each.name}.pem").exists():
                authority.make(each)
                made.append(each.name)
        for name in others:
            write_private(target / f"{name}.toml", identity_file(name))
    except ImportError:
        refuse("trimtab certs needs the extra secure: pip install 'trimtab[secure]'")
    except (NetworkFileError, CertificateFileError, IdentityError) as error:
        refuse(printable(str(error)))
    except OSError as error:
        refuse(f"{error.filename or target}: {error.strerror}")
    typer.echo(f"{target}: {', '.join(made) if made else 'nothing to make, all is there'}")
    typer.echo(f"keep {target / 'authority.key'} elsewhere: who has it can be anybody")


def password(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose password it is.")],
    file: Annotated[str, typer.Option("--file", metavar="FILE", help="The password file of the network.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the name out.")] = False,
) -> None:
    """Set the password of a name, read from the terminal or from one line of standard input.

    The file holds scrypt hashes, and running brokers read it again by themselves.

    \b
    Example:
      trimtab password ann --file passwords.txt
    """
    import getpass
    import secrets
    import sys

    from trimtab.network.security.certificate_making import write_private
    from trimtab.security.identities import IdentityError, checked_name
    from trimtab.security.passwords import SALT_BYTES, PasswordHash, read_passwords

    path = Path(file)
    try:
        checked_name(name)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if name not in read_passwords(text, file) and remove:
            refuse(f"{file} has no {name}")
        lines = [line for line in text.splitlines() if not line.startswith(f"{name}:")]
        if not remove:
            said = getpass.getpass(f"password of {name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
            if len(said) < PASSWORD_MIN_CHARS:
                refuse(f"expected a password of at least {PASSWORD_MIN_CHARS} characters")
            lines.append(f"{name}:{PasswordHash.of(said, secrets.token_bytes(SALT_BYTES))}")
        write_private(path, "".join(f"{line}\n" for line in lines).encode())
    except IdentityError as error:
        refuse(f"NAME: {error}")
    except (ValueError, UnicodeDecodeError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{file}: {error.strerror}")


def audit(
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    who: Annotated[str | None, typer.Option("--who", metavar="IDENTITY", help="Only what this one asked for.")] = None,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="Only the last so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show who asked for which change of a network, when, from where, and what came of it.

    Refused requests stand there as well. The records are those of brokers of this host.

    \b
    Example:
      trimtab audit examples/secure.toml --last 10
    """
    import datetime

    import msgspec

    from trimtab.network.network_file import NetworkFileError, read_network_file
    from trimtab.network.security.audit import read_audit

    try:
        plan = read_network_file(network)
        folder = plan.security.audit
        if not folder:
            refuse(f"{network} has no [security] with certificates or audit: nothing is recorded")
        records = [each for each in read_audit(Path(folder)) if who is None or each.who == who][-last:]
    except NetworkFileError as error:
        refuse(printable(str(error)))
    except OSError as error:
        refuse(f"{error.filename}: {error.strerror}")
    for each in records:
        if as_json:
            typer.echo(msgspec.json.encode(each).decode())
            continue
        at = datetime.datetime.fromtimestamp(each.at_s).strftime("%Y-%m-%d %H:%M:%S")
        mark = "" if each.is_allowed else "refused: "
        line = f"{at} {each.broker} {each.who or '(nobody asked)'} from {each.address}: {each.request} {each.details}"
        typer.echo(printable(f"{line} -> {mark}{each.result}"))


def doctor(
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    as_json: JsonOption = False,
) -> None:
    """Look through the configuration of a network for what would leave it open, or will stop working.

    The exit code is 1 if something is wrong, 0 if there are only warnings. It looks at files of this host, and asks
    nobody.

    \b
    Example:
      trimtab doctor examples/secure.toml
    """
    import time

    import msgspec

    from trimtab.network.network_file import NetworkFileError, read_network_file
    from trimtab.network.security.doctor import examine

    try:
        findings = list(examine(read_network_file(network), time.time()))
    except NetworkFileError as error:
        refuse(printable(str(error)))
    for finding in findings:
        typer.echo(msgspec.json.encode(finding).decode() if as_json else printable(f"{finding.level}: {finding.text}"))
    raise typer.Exit(int(any(finding.level == "wrong" for finding in findings)))
