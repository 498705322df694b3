"""The permissions file: roles with what they may do, and who has which role.

    [roles.citizen]
    publish = ["class = 'REPORT' AND owner = '${name}'"]
    subscribe = ["class = 'ALERT'"]
    channels = ["EmergencyNear", "MyReports WHERE owner = '${name}'"]

    [identities]
    "ann" = ["citizen"]
    "crew-*" = ["crew"]
    "anonymous" = ["visitor"]

Rights of several roles add up. An identity that the file does not know has none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.language import Filter, LanguageError
from trimtab.security.administration import ADMIN_ENTRIES
from trimtab.security.identities import ANONYMOUS, Identity
from trimtab.security.rights import ChannelRule, Mode, Rights, fits_name
from trimtab.security.variables import UnknownVariableError, check_text, filters_for

ENTRIES_MAX_COUNT: Final = 256
"""Filters in one list of a role."""

_WHERE: Final = " WHERE "


class PermissionsError(ValueError):
    """A permissions file that cannot be used; the message names the file, the role and what was expected."""


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a role may do, as it is written; filters may have variables."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    mode: Mode = "refuse"


class Permissions(msgspec.Struct, frozen=True):
    """All roles, and which identities have them, by name or by how names begin (`"crew-*"`).

    >>> permissions = read_permissions('''
    ... [roles.citizen]
    ... publish = ["class = 'REPORT' AND owner = '${name}'"]
    ... [identities]
    ... "*" = ["citizen"]
    ... ''')
    >>> rights = permissions.rights_of(Identity("ann", "password"))
    >>> [str(each) for each in rights.publish]
    ["[class,eq,'REPORT'],[owner,eq,'ann']"]
    """

    roles: Mapping[str, Role] = {}
    identities: Mapping[str, tuple[str, ...]] = {}

    def roles_of(self, identity: Identity) -> tuple[str, ...]:
        """The roles of an identity, as the file and its proof say; a pattern never means whoever is anonymous."""
        found: dict[str, None] = {}
        for pattern, roles in self.identities.items():
            is_meant = pattern == identity.name or (identity.name != ANONYMOUS and fits_name(pattern, identity.name))
            if is_meant:
                found.update(dict.fromkeys(roles))
        found.update(dict.fromkeys(role for role in identity.roles if role in self.roles))
        return tuple(found)

    def rights_of(self, identity: Identity) -> Rights:
        """What an identity may do."""
        names = self.roles_of(identity)
        roles = [self.roles[name] for name in names]
        variables = identity.variables
        return Rights(
            identity.name,
            names,
            publish=_filters([text for role in roles for text in role.publish], variables),
            subscribe=_filters([text for role in roles for text in role.subscribe], variables),
            channels=tuple(rule for role in roles for text in role.channels for rule in _channel(text, variables)),
            feeds=tuple(dict.fromkeys(name for role in roles for name in role.feeds)),
            datasets=tuple(dict.fromkeys(name for role in roles for name in role.datasets)),
            admin=tuple(dict.fromkeys(entry for role in roles for entry in role.admin)),
            mode="narrow" if any(role.mode == "narrow" for role in roles) else "refuse",
        )


def read_permissions(text: str, file_name: str = "permissions.toml") -> Permissions:
    """Read a permissions file; raises `PermissionsError`.

    >>> read_permissions("[roles.a]\\npublish = ['v >']")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    trimtab.security.permissions.PermissionsError: permissions.toml: roles.a.publish, "v >": column 4: ...
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PermissionsError(f"{file_name}: not TOML: {error}") from None
    unknown = [key for key in data if key not in ("roles", "identities")]
    if unknown:
        raise PermissionsError(f"{file_name}: unknown section {unknown[0]}; expected [roles.NAME] and [identities]")
    roles = {name: _role(file_name, name, table) for name, table in _table(file_name, data, "roles").items()}
    identities = {
        name: _roles_of(file_name, name, listed, roles)
        for name, listed in _table(file_name, data, "identities").items()
    }
    return Permissions(roles, identities)


def _table(file_name: str, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise PermissionsError(f"{file_name}: expected a section [{key}]")
    return table


def _role(file_name: str, name: str, table: Any) -> Role:
    where = f"{file_name}: roles.{name}"
    try:
        role = msgspec.convert(table, Role)
    except msgspec.ValidationError as error:
        raise PermissionsError(f"{where}: {error}") from None
    for kind, texts in (("publish", role.publish), ("subscribe", role.subscribe)):
        if len(texts) > ENTRIES_MAX_COUNT:
            raise PermissionsError(f"{where}.{kind}: at most {ENTRIES_MAX_COUNT} filters")
        for text in texts:
            _check(f"{where}.{kind}", text, text)
    for text in role.channels:
        channel, _, condition = text.partition(_WHERE)
        if not channel.strip():
            raise PermissionsError(f'{where}.channels, "{text}": expected NAME or NAME WHERE FILTER')
        if condition:
            _check(f"{where}.channels", text, condition)
    for entry in role.admin:
        if entry not in ADMIN_ENTRIES:
            raise PermissionsError(f'{where}.admin, "{entry}": expected one of {", ".join(ADMIN_ENTRIES)}')
    return role


def _check(where: str, shown: str, text: str) -> None:
    try:
        check_text(text)
    except LanguageError as error:
        raise PermissionsError(f'{where}, "{shown[:80]}": {error}') from None


def _roles_of(file_name: str, name: str, listed: Any, roles: Mapping[str, Role]) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(role, str) for role in listed):
        raise PermissionsError(f'{file_name}: identities."{name}": expected a list of roles')
    for role in listed:
        if role not in roles:
            raise PermissionsError(f'{file_name}: identities."{name}": there is no role {role}')
    return tuple(listed)


def _filters(texts: list[str], variables: Mapping[str, str]) -> tuple[Filter, ...]:
    """What several texts permit together; one whose variable the identity does not have permits nothing."""
    found: dict[Filter, None] = {}
    for text in texts:
        try:
            found.update(dict.fromkeys(filters_for(text, variables)))
        except UnknownVariableError:
            continue
    return tuple(found)


def _channel(text: str, variables: Mapping[str, str]) -> tuple[ChannelRule, ...]:
    name, _, condition = text.partition(_WHERE)
    if not condition:
        return (ChannelRule(name.strip()),)
    filters = _filters([condition], variables)
    return (ChannelRule(name.strip(), filters),) if filters else ()
