"""Control messages travel as ordinary publications (thesis, section 3.4)."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from trimtab import Filter, Publication
from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.decisions import LoadIndex, Status
from trimtab.policies.padres.messages import (
    AnyControl,
    CallForHelp,
    ClientTold,
    ExchangeEnd,
    ExchangeStart,
    GlobalDone,
    GlobalReply,
    GlobalRequest,
    MoveOrder,
    MoveReport,
    Offer,
    OffloadCancel,
    OffloadDone,
    OffloadReply,
    OffloadRequest,
    OffloadStart,
    ProfileReply,
    ProfileRequest,
    control_filter,
    control_from_values,
    control_to_values,
)

RESOURCES = BrokerResources(
    input_rate_per_s=20.0,
    input_rate_bytes_per_s=6_000.0,
    matching_delay_s=0.02,
    subscription_count=100,
    output_rate_bytes_per_s=30_000.0,
    bandwidth_bytes_per_s=60_000.0,
    matching_delay_slope_s=0.0002,
)
OFFER = Offer(RESOURCES, (Filter.parse("[class,eq,'STOCK'],[volume,>,1000]"), Filter.parse("[name,str-contains,'x']")))
WHO: dict[str, Any] = {"session": "B1/1/1", "sender": "B1"}
MESSAGES: list[AnyControl] = [
    OffloadRequest(**WHO, action=LoadIndex.MATCH),
    OffloadReply(**WHO, status=Status.OK, offer=OFFER),
    OffloadReply(**WHO, status=Status.NOT_AVAILABLE),
    OffloadStart(**WHO, clients=("alice", "bob")),
    OffloadDone(**WHO, arrived=("alice",)),
    OffloadCancel(**WHO, reason="no client moves"),
    OffloadCancel(**WHO, reason="nothing helps", fruitless=True),
    CallForHelp(**WHO),
    GlobalRequest(**WHO, cluster="C1", edge_brokers=("B1", "B2")),
    GlobalReply(**WHO, cluster="C2", status=Status.OK, edge_brokers=("B3",)),
    GlobalDone(**WHO, reason="all balanced"),
    GlobalDone(**WHO, reason="full", saturated=True),
    ExchangeStart(**WHO, cluster="C2"),
    ExchangeEnd(**WHO, cluster="C2"),
    ProfileRequest(**WHO, heard=3),
    ProfileReply(
        **WHO,
        status=Status.OK,
        resources=RESOURCES,
        number=4,
        since=3,
        came=(ClientTold("alice", OFFER.filters),),
        left=("bob",),
    ),
    ProfileReply(**WHO, status=Status.BUSY),
    MoveOrder(**WHO, moves=(("alice", "B2"), ("bob", "B3"))),
    MoveReport(**WHO, stayed=("bob",)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_travels_as_a_publication_to_the_broker_it_is_for(message: AnyControl) -> None:
    publication = Publication(control_to_values(message, to="B2"))
    assert control_filter("B2").matches(publication)
    assert not control_filter("B1").matches(publication)
    assert control_from_values(Publication.parse(str(publication))) == message


def test_every_kind_of_message_is_tested_here() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(AnyControl))


@pytest.mark.parametrize(
    "wrong",
    [
        {"class": "STOCK"},
        {"body": 7},
        {"body": "{"},
        {"body": '{"kind":"nonsense","session":"s","sender":"B1"}'},
        {"body": '{"kind":"reply","session":"s","sender":"B1","status":"OK","offer":{"resources":{},"filters":[]}}'},
    ],
)
def test_what_is_no_control_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a control message"):
        control_from_values({**control_to_values(MESSAGES[0], to="B2"), **wrong})


def test_a_wrong_filter_in_an_offer_is_refused() -> None:
    values = control_to_values(MESSAGES[1], to="B2")
    values["body"] = str(values["body"]).replace('"str-contains"', '"resembles"')
    with pytest.raises(ValueError, match="not a control message"):
        control_from_values(values)
