"""A service answers whom it is meant for: Host, Origin and a token are checked before anything else."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from trimtab.activedata import ActiveData
from trimtab.activedata.service.access import AccessError, rules_for
from trimtab.activedata.service.http import BODY_MAX_BYTES, Service

TOKEN = "a token of more than sixteen characters"


@pytest.fixture(params=[None, TOKEN])
def service(active_with_channel: ActiveData, request: pytest.FixtureRequest) -> Iterator[Service]:
    rules = rules_for("127.0.0.1", request.param, ["active.example"], ["https://pages.example"])
    service = Service(active_with_channel, rules=rules)
    service.start()
    yield service
    service.close()


def ask(service: Service, headers: dict[str, str], path: str = "/status") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def bearer(service: Service) -> dict[str, str]:
    return {} if service.rules.token is None else {"Authorization": f"Bearer {service.rules.token}"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "Active.Example"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Origin": "https://pages.example"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_requests_of_foreign_pages_are_refused(service: Service, headers: dict[str, str], code: int) -> None:
    found, answer = ask(service, {**headers, **bearer(service)})
    assert found == code, answer
    assert code == 200 or answer["error"]


def test_a_token_is_asked_of_everybody_where_there_is_one(service: Service) -> None:
    if service.rules.token is None:
        return
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
        assert ask(service, given) == (401, {"error": "a token is needed: Authorization: Bearer TOKEN"})
    assert ask(service, bearer(service))[0] == 200


def test_what_other_machines_can_reach_needs_a_token() -> None:
    for host in ("0.0.0.0", "10.0.0.1", "::", "active.example"):
        with pytest.raises(AccessError, match="needs a token: --token-file FILE"):
            rules_for(host, None)
        assert rules_for(host, TOKEN).token == TOKEN
    with pytest.raises(AccessError, match="a token has at least 16 characters"):
        rules_for("127.0.0.1", "short")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        token = "".join(f"{name}: {value}\r\n" for name, value in bearer(service).items())
        head = f"POST /feeds/reports HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: {BODY_MAX_BYTES + 1}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
