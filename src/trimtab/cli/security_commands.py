"""The commands on who may do what: allowed, password, certs, audit, doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimtab.cli.input_lines import placed, printable, refuse
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.security.identities import Identity
    from trimtab.security.rights import Rights

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
