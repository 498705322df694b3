"""The order in which a channel's query joins its relations."""

from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.execution.channel_queries import Dataset, compile_channel

PLACE = (Field("x", "DOUBLE"), Field("y", "DOUBLE"))
DATASETS = {
    "reports": Dataset("Reports", (Field("event", "STRING"), *PLACE), active=True),
    "users": Dataset("Users", (Field("user", "STRING"), *PLACE), active=False),
}


def test_few_records_meet_those_near_them_before_all_who_want_their_kind() -> None:
    body = (
        "SELECT r.event FROM Reports r, Users u "
        "WHERE r.event = :event AND u.user = :user AND distance(r.x, r.y, u.x, u.y) <= 1000"
    )
    query, _ = compile_channel(body, (Field("event", "STRING"), Field("user", "STRING")), DATASETS)
    text = query.text("new", "subscriptions", {}, few_records=True)
    assert text.index("`Users`") < text.index("subscriptions _s")


def test_few_records_meet_their_subscriptions_before_what_those_select() -> None:
    body = "SELECT r.event, u.x FROM Reports r, Users u WHERE r.event = :event AND u.user = :user"
    query, _ = compile_channel(body, (Field("event", "STRING"), Field("user", "STRING")), DATASETS)
    text = query.text("new", "subscriptions", {}, few_records=True)
    assert text.index("subscriptions _s") < text.index("`Users`")
