"""Clients of a network that asks who you are: names, permissions, and what becomes of both while they are connected."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.network.security.secure_network import PASSWORD, PERMISSIONS, SecureNetwork
from trimtab import Client, Filter
from trimtab.network.admin.local_network import Network
from trimtab.network.client.client import ClientError, RefusedError
from trimtab.network.loops import run
from trimtab.network.security.certificate_making import Authority, Wanted

WITHIN_S = 10.0
REPORT = {"class": "REPORT", "owner": "ann", "confidential": False}


def test_what_is_permitted_is_published_and_delivered_across_brokers(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        crew = await Client.connect(network.address("B2"), identity=secure.identity_file("crew"))
        ann = await Client.connect(network.address("B1"), identity=secure.identity_file("ann"))
        async with crew, ann:
            assert ann.name.startswith("ann/")
            wanted = await crew.subscribe(Filter.parse("class = 'REPORT' AND confidential = false"))
            await ann.advertise(Filter.parse("class = 'REPORT' AND owner = 'ann' AND confidential IS NOT NULL"))
            await ann.publish(REPORT)
            async with asyncio.timeout(WITHIN_S):
                assert dict((await anext(wanted)).publication) == REPORT

    run(work())


def test_what_is_not_permitted_is_refused_with_what_is_missing(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        async with await Client.connect(network.address("B1"), identity=secure.identity_file("ann")) as ann:
            with pytest.raises(RefusedError, match="what is missing: class = 'REPORT' AND owner <> 'ann'"):
                await ann.subscribe(Filter.parse("class = 'REPORT'"))
            with pytest.raises(RefusedError, match="ann may not publish this; what is missing: class = 'ALERT'"):
                await ann.advertise(Filter.parse("class = 'ALERT'"))
            await ann.advertise(Filter.parse("class = 'REPORT' AND owner = 'ann' AND text IS NOT NULL"))
            await ann.publish({"class": "REPORT", "text": "whose?"})
            await ann.drain()
            assert [each.reason for each in ann.refused] == ["ann may not publish this: no permission matches it"]

    run(work())


def test_a_subscription_is_narrowed_where_the_role_says_so(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        crew = await Client.connect(network.address("B2"), identity=secure.identity_file("crew"))
        operator = await Client.connect(network.address("B1"), identity=secure.identity_file("operator"))
        async with crew, operator:
            wanted = await crew.subscribe(Filter.parse("class = 'REPORT'"))
            await operator.advertise(Filter.parse("class = 'REPORT' AND confidential IS NOT NULL AND n IS NOT NULL"))
            for n, confidential in enumerate((True, False)):
                await operator.publish({"class": "REPORT", "confidential": confidential, "n": n})
            async with asyncio.timeout(WITHIN_S):
                assert (await anext(wanted)).publication["n"] == 1

    run(work())


@pytest.mark.parametrize(
    ("who", "name", "reason"),
    [
        ("ann", "bob", "the name bob does not belong to ann; use ann/NAME"),
        ("ann", "B2", "B2 is the name of a broker"),
        ("B2", "B2", "B2 is a broker, and greets as one"),
        ("ann", "anna", "does not belong to ann"),
    ],
)
def test_a_name_belongs_to_its_identity(
    network: Network, secure: SecureNetwork, who: str, name: str, reason: str
) -> None:
    async def work() -> None:
        with pytest.raises(ClientError, match=reason):
            await Client.connect(network.address("B1"), name, identity=secure.identity_file(who))

    run(work())


def test_nobody_takes_over_the_client_of_another(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        async with await Client.connect(
            network.address("B1"), "ann/phone", identity=secure.identity_file("ann")
        ) as ann:
            with pytest.raises(ClientError, match="does not belong to bob"):
                await Client.connect(network.address("B1"), "ann/phone", identity=secure.identity_file("bob"))
            assert ann.is_connected

    run(work())


def test_who_proves_nothing_is_told_so(network: Network, secure: SecureNetwork) -> None:
    path = secure.certificates / "nobody.toml"
    path.write_text('name = "x"\nauthority = "authority.pem"\n')

    async def work() -> None:
        with pytest.raises(ClientError, match="this network asks who you are"):
            await Client.connect(network.address("B1"), identity=path)
        with pytest.raises(ClientError, match="no broker at"):
            await Client.connect(network.address("B1"))  # not encrypted

    run(work())


def test_a_password_and_a_token_do_as_well_as_a_certificate(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        by_password = secure.identity_file("ann", f'password = "{PASSWORD}"')
        async with await Client.connect(network.address("B1"), identity=by_password) as ann:
            await ann.subscribe(Filter.parse("class = 'ALERT'"))
        wrong = secure.identity_file("ann", 'password = "wrong horse battery"')
        with pytest.raises(ClientError, match="the name or the password is wrong"):
            await Client.connect(network.address("B1"), identity=wrong)
        credential = secure.token("carl", roles=["citizen"]).credential()
        assert credential is not None
        by_token = secure.identity_file("carl", f'token = "{credential.token}"')
        async with await Client.connect(network.address("B1"), identity=by_token) as carl:
            await carl.subscribe(Filter.parse("class = 'REPORT' AND owner = 'carl'"))

    run(work())


def test_a_connection_ends_with_its_token(network: Network, secure: SecureNetwork) -> None:
    credential = secure.token("carl", 1.0 - 4.0, roles=["citizen"]).credential()  # five seconds of leeway
    assert credential is not None
    path = secure.identity_file("carl", f'token = "{credential.token}"')

    async def work() -> None:
        carl = await Client.connect(network.address("B1"), identity=path)
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    await carl.drain()
                except ClientError as error:
                    assert "the proof that this is carl has ended" in str(error)
                    break
                await asyncio.sleep(0.05)
        await carl.close()

    run(work())


def test_what_is_no_longer_permitted_ends(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        async with await Client.connect(network.address("B1"), identity=secure.identity_file("bob")) as bob:
            await bob.subscribe(Filter.parse("class = 'ALERT'"))
            secure.permissions.write_text(PERMISSIONS.replace("\"class = 'ALERT'\", ", ""))
            try:
                async with asyncio.timeout(WITHIN_S):
                    while not bob.refused:
                        await asyncio.sleep(0.05)
                assert "ended: bob may not subscribe to this; what is missing: class = 'ALERT'" in bob.refused[0].reason
                with pytest.raises(RefusedError):
                    await bob.subscribe(Filter.parse("class = 'ALERT'"))
            finally:
                secure.permissions.write_text(PERMISSIONS)
                os.utime(secure.permissions, (time.time() + 5, time.time() + 5))
            await _until_permitted(bob)

    run(work())


async def _until_permitted(client: Client) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await client.subscribe(Filter.parse("class = 'ALERT'"))
                return
            except RefusedError:
                await asyncio.sleep(0.1)


def test_a_client_moves_with_its_identity(network: Network, secure: SecureNetwork) -> None:
    async def work() -> None:
        crew = await Client.connect(network.address("B1"), identity=secure.identity_file("crew"))
        operator = await Client.connect(network.address("B1"), identity=secure.identity_file("operator"))
        async with crew, operator:
            wanted = await crew.subscribe(Filter.parse("class = 'REPORT'"))
            await operator.advertise(Filter.parse("class = 'REPORT' AND confidential IS NOT NULL"))
            async with asyncio.timeout(WITHIN_S):
                await crew.move("B2", network.address("B2"))
                await operator.move("B2", network.address("B2"))
            await operator.publish({"class": "REPORT", "confidential": True})
            await operator.publish({"class": "REPORT", "confidential": False})
            async with asyncio.timeout(WITHIN_S):
                assert (await anext(wanted)).publication["confidential"] is False

    run(work())


def test_certificates_are_read_again_without_a_restart(tmp_path: Path) -> None:
    secure = SecureNetwork(tmp_path)

    def serial(address: str) -> int:
        import socket
        import ssl

        host, _, port = address.partition(":")
        context = ssl.create_default_context(cafile=str(secure.certificates / "authority.pem"))
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            assert tls.version() in ("TLSv1.2", "TLSv1.3")
            certificate = tls.getpeercert()
            assert certificate is not None
            return int(str(certificate["serialNumber"]), 16)

    with secure.running() as network:
        before = serial(network.address("B1"))
        Authority.in_folder(secure.certificates, "test").make(Wanted("B1", ("127.0.0.1",)))
        ends_s = time.monotonic() + WITHIN_S
        while serial(network.address("B1")) == before:
            assert time.monotonic() < ends_s
            time.sleep(0.1)
