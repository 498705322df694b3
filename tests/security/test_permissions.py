"""Roles with filters and variables, and who has which."""

import pytest

from trimtab.language import Filter
from trimtab.security.identities import Identity
from trimtab.security.permissions import Permissions, PermissionsError, read_permissions
from trimtab.security.variables import filters_for

CITY = read_permissions(
    """
    [roles.citizen]
    publish = ["class = 'REPORT' AND owner = '${name}'"]
    subscribe = ["class = 'ALERT'", "class = 'REPORT' AND owner = '${name}'"]
    channels = ["Shelters", "MyReports WHERE owner = '${name}'"]

    [roles.crew]
    subscribe = ["class = 'REPORT' AND district = '${district}'"]
    feeds = ["Report*"]
    mode = "narrow"

    [roles.operator]
    publish = ["*"]
    subscribe = ["*"]
    admin = ["read", "move"]

    [identities]
    "ann" = ["citizen"]
    "crew-*" = ["crew"]
    "ops" = ["operator"]
    "*" = []
    """
)
ANN = CITY.rights_of(Identity("ann", "password"))


def test_a_variable_is_the_identity_s_own() -> None:
    assert ANN.may_publish({"class": "REPORT", "owner": "ann"})
    assert not ANN.may_publish({"class": "REPORT", "owner": "bob"})
    assert not ANN.may_publish({"class": "REPORT"})


@pytest.mark.parametrize("name", ["x' OR 'a' = 'a", "%", "_", "a\\", "${name}", "*", "'", "]"])
def test_no_name_widens_a_permission(name: str) -> None:
    for text in ("owner = '${name}'", "owner LIKE '${name}-%'", "[owner,str-like,'_${name}']"):
        for permitted in filters_for(text, {"name": name}):
            assert not permitted.matches({"owner": "somebody-else"})
            assert not permitted.matches({"owner": "xy"}) or name == "y"


def test_an_exclusion_counts_for_the_value_that_is_filled_in() -> None:
    assert filters_for("owner = '${name}' AND owner <> 'root'", {"name": "root"}) == ()
    assert len(filters_for("owner = '${name}' AND owner <> 'root'", {"name": "ann"})) == 1


def test_a_permission_whose_variable_an_identity_lacks_permits_nothing() -> None:
    assert CITY.rights_of(Identity("crew-1", "certificate")).subscribe == ()
    rights = CITY.rights_of(Identity("crew-1", "token", attributes={"district": "north"}))
    assert rights.subscription(Filter.parse("class = 'REPORT' AND district = 'north'")).accepted is not None


def test_a_subscription_is_narrowed_to_the_permitted_part_where_the_role_says_so() -> None:
    rights = CITY.rights_of(Identity("crew-1", "token", attributes={"district": "north"}))
    decision = rights.subscription(Filter.parse("class = 'REPORT'"))
    assert decision.is_narrowed
    assert decision.accepted == Filter.parse("class = 'REPORT' AND district = 'north'")
    assert "missing" in decision.reason


def test_a_subscription_whose_permitted_part_is_empty_is_refused() -> None:
    rights = CITY.rights_of(Identity("crew-1", "token", attributes={"district": "north"}))
    assert rights.subscription(Filter.parse("class = 'ALERT'")).accepted is None


def test_rights_of_several_roles_add_up() -> None:
    rights = CITY.rights_of(Identity("ann", "token", roles=("operator", "no such role")))
    assert rights.roles == ("citizen", "operator")
    assert rights.publishes_everything


def test_who_is_anonymous_has_only_roles_of_that_name() -> None:
    everybody = read_permissions("[roles.a]\npublish = ['*']\n[identities]\n'*' = ['a']")
    assert everybody.rights_of(Identity("anonymous", "anonymous")).publish == ()
    assert everybody.rights_of(Identity("ann", "password")).publishes_everything


def test_a_channel_may_be_permitted_with_some_arguments() -> None:
    assert ANN.channel_objection("Shelters", {"near": "x"}) == ""
    assert ANN.channel_objection("MyReports", {"owner": "ann"}) == ""
    assert ANN.channel_objection("MyReports", {"owner": "bob"}) == (
        "ann may not subscribe to the channel MyReports with these arguments"
    )
    assert ANN.channel_objection("Crews", {}) == "ann may not subscribe to the channel Crews"


def test_reading_and_changing_are_apart() -> None:
    ops = CITY.rights_of(Identity("ops", "certificate"))
    requests = ("status", "snapshot", "move", "drain", "link", "voice", "replica", "unknown")
    assert {name for name in requests if ops.may_request(name)} == {"status", "snapshot", "move"}


def test_an_identity_that_nobody_knows_may_do_nothing() -> None:
    rights = Permissions().rights_of(Identity("eve", "certificate"))
    assert not rights.may_publish({"a": 1})
    assert rights.subscription(Filter.parse("a = 1")).accepted is None
    assert not rights.may_request("status")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[roles.a]\npublish = ['v >']", 'permissions.toml: roles.a.publish, "v >": column 4'),
        ("[roles.a]\nadmin = ['everything']", 'roles.a.admin, "everything": expected one of read, change'),
        ("[roles.a]\nreads = []", "roles.a: Object contains unknown field `reads`"),
        ("[identities]\nann = ['b']", 'identities."ann": there is no role b'),
        ("[users]", "unknown section users; expected [roles.NAME] and [identities]"),
        ("[roles.a]\nchannels = [' WHERE a = 1']", "expected NAME or NAME WHERE FILTER"),
        ("roles = 5", "expected a section [roles]"),
        ("x", "not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PermissionsError) as raised:
        read_permissions(text)
    assert message in str(raised.value)
