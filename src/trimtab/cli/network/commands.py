"""The commands on a running network: up, broker, sub, pub, status."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from trimtab.cli.input_lines import STDIN, placed, printable, refuse
from trimtab.cli.network.replace import replica_order
from trimtab.language import Filter, LanguageError, Publication
from trimtab.language.durations import parse_duration_s
from trimtab.protocol.channels import STREAM_MARK, is_stream, parse_channel
from trimtab.protocol.messages import WireValue

if TYPE_CHECKING:
    from trimtab.network.links.address import Address
    from trimtab.network.network_file import NetworkPlan
    from trimtab.records.files import RecordFiles

WRITE_RECORDS_AFTER_S: Final = 5.0
"""While a process runs, its records can be read so long after they were made."""

ROWS_PER_FILE_COUNT: Final = 20_000
"""Few enough to be written again while they come."""

Parsed = TypeVar("Parsed")
Result = TypeVar("Result")

NetworkArgument = Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")]
BrokerOption = Annotated[str, typer.Option("--broker", metavar="HOST:PORT", help="Where the broker listens.")]
RecordsOption = Annotated[
    str | None, typer.Option("--records", metavar="DIR", help="Write records there, as Parquet; see docs/records.md.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
OptionalNetwork = Annotated[
    str | None,
    typer.Argument(metavar="NETWORK.toml", help="The network file; one broker at 127.0.0.1:7001 if missing."),
]
ExampleOption = Annotated[
    str | None,
    typer.Option("--example", metavar="NAME", help="A network that is installed with trimtab: see trimtab examples."),
]


def up(network: OptionalNetwork = None, example: ExampleOption = None, records: RecordsOption = None) -> None:
    """Start all brokers of a network file on this host, one process each, until Ctrl-C.

    Without a file it is one broker, B1 at 127.0.0.1:7001. Prints a line `ready` when all links are up, and what to type
    next if no file was given. In a terminal a table of rates and queues follows.

    \b
    Example:
      trimtab up
      trimtab up examples/seven.toml
      trimtab up --example seven
    """
    from trimtab.cli.network.up import next_steps, run_network

    plan, file = network_of(network, example)
    warn_of_pieces(plan)
    hints = "" if network is not None else next_steps(plan, example)
    with record_files(records, "up", file or "one-broker"):
        raise typer.Exit(run_network(plan, file, records, hints))


def broker(  # noqa: PLR0917 (each one is an option)
    name: Annotated[str, typer.Argument(metavar="NAME", help="A broker of the network file.")],
    network: NetworkArgument,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what is wrong.")] = False,
    records: RecordsOption = None,
    replica: Annotated[
        str | None, typer.Option("--replica", metavar="PROTOCOL", help="Replace an earlier life of the broker.")
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option("--neighbours", metavar="NAME=HOST:PORT,...", help="Whom a replica calls; else as in the file."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where it listens; else as the file says.")
    ] = None,
    assist: Annotated[
        bool, typer.Option("--assist", help="With --replica: do not replace the broker, share its load.")
    ] = False,
    reorder: Annotated[
        bool, typer.Option("--reorder", help="With --assist: put publications in order again behind the two.")
    ] = False,
    epoch: Annotated[
        int,
        typer.Option("--epoch", metavar="NUMBER", min=1, help="Numbers the incarnations of a broker, for --replica."),
    ] = 1,
    or_at: Annotated[str | None, typer.Option("--or-at", hidden=True)] = None,
    stop_with: Annotated[int | None, typer.Option("--stop-with", hidden=True)] = None,
) -> None:
    """Run one broker of a network file until Ctrl-C or SIGTERM; prints `ready` when all its links are up.

    With --replica it takes the place of a broker that has failed, by the protocol basic, synchronous or incremental.

    \b
    Example:
      trimtab broker B1 examples/seven.toml
      trimtab broker B3 examples/failover.toml --replica synchronous
    """
    import logging

    from trimtab.cli.network.restart import failures_told, serve_to_the_end
    from trimtab.network.server.broker_process import ProcessOptions

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    if name not in names:
        refuse(f"{network}: no broker is named {name}; there are {', '.join(names)}")
    order = replica_order(
        plan,
        name,
        replica,
        neighbours=neighbours,
        listen=listen,
        or_at=or_at,
        assists=assist,
        reorders=reorder,
        epoch=epoch,
    )
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(message)s")
    options = [*(["--quiet"] if quiet else []), *(["--records", records] if records is not None else [])]
    with (
        failures_told(lambda: f"broker {name} cannot listen at {listen or plan.broker(name).listen}"),
        record_files(records, name if order is None else f"{name}-{os.getpid()}", network) as recorder,
    ):
        started = ProcessOptions(network, order, stop_with, recorder, tuple(options))
        serve_to_the_end(network, name, started, lambda: typer.echo("ready"))


def sub(  # noqa: PLR0917 (each one is an option)
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="FILTER", help="What is wanted; any of them may match.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="HOST:PORT", help="Where the broker listens.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="HOST:PORT", help="Ask there where to connect.")
    ] = None,
    site: Annotated[
        str | None, typer.Option("--site", metavar="X,Y", help="Where this is, for a coordinator that places nearby.")
    ] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="NAME(ARGUMENT => VALUE, ...)", help="A channel; repeatable."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, metavar="N", help="End after N deliveries.")] = None,
    for_s: Annotated[float | None, typer.Option("--for", metavar="SECONDS", help="End after this time.")] = None,
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="TIME", help="How long publications may take, as in 1.5s or 200ms."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The subscriber's name; one that nobody has if missing."),
    ] = None,
    records: RecordsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Subscribe and print each delivery as one line.

    Writes `subscribed` to standard error once the filters are in force at every broker on the way to the publishers.
    With --json each line is an object with publication, publisher, sequence, delay_s and hops.
    With --count and --for together the exit code is 1 if fewer came in time.
    With --within deliveries that took longer are marked, and counted at the end; the policy `delay` balances by it.

    \b
    Example:
      trimtab sub --broker 127.0.0.1:7003 "class = 'STOCK' AND volume > 300000" --count 5 --json
      trimtab sub --broker 127.0.0.1:7003 --channel 'EmergencyOfType(event => "flood")'
      trimtab sub --coordinator 127.0.0.1:7100 --site 3,4 "class = 'STOCK'"
      trimtab sub --broker 127.0.0.1:7003 "class = 'WAVE' AND height > 2" --within 1.5s
    """
    from trimtab.cli.network.clients import subscribe_and_print
    from trimtab.network.client.client import Client

    if for_s is not None and not 0 < for_s < math.inf:
        refuse("--for: expected a number of seconds above 0")
    wanted = [each for number, text in enumerate(filters or (), 1) for each in _parsed(f"FILTER {number}", text, _all)]
    streams = [_channel(text) for text in channels or ()]
    within_s = _duration_s("--within", within) if within is not None else None
    if within_s is not None and not wanted:
        refuse("--within is for filters: the results of channels have no latency requirement")
    if not wanted and not streams:
        refuse("expected a FILTER or --channel: what is wanted?")
    if (broker is None) == (coordinator is None):
        refuse("give either --broker or --coordinator")
    if site is not None and coordinator is None:
        refuse("--site is for --coordinator")
    where = _address(broker) if broker is not None else _address(coordinator or "", "--coordinator")
    place = _site(site) if site is not None else None
    _check_name(name)

    async def connect() -> Client:
        if coordinator is not None:
            return await Client.connect_through(where, name, site=place)
        return await Client.connect(where, name)

    with record_files(records, f"sub-{os.getpid()}") as recorder:
        run_client(
            subscribe_and_print(connect, wanted, streams, count, for_s, recorder, as_json=as_json, within_s=within_s)
        )


def _check_name(name: str | None) -> None:
    if name is not None and (not name or is_stream(name)):
        refuse(f"--name: a client's name is not empty and does not begin with {STREAM_MARK}")


def _duration_s(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except LanguageError as error:
        refuse(f"{option}: {error}")


def _channel(text: str) -> tuple[str, dict[str, WireValue]]:
    try:
        return parse_channel(text)
    except ValueError as error:
        refuse(f"--channel {text}: {error}")


def pub(  # noqa: PLR0917 (each one is an option)
    broker: BrokerOption,
    publications: Annotated[
        list[str], typer.Argument(metavar="PUBLICATION", help="What is published; - for lines of standard input.")
    ],
    advertise: Annotated[
        list[str] | None,
        typer.Option("--advertise", metavar="FILTER", help="What is announced; made from the publications if missing."),
    ] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="With --advertise: publications may have any further attributes.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The publisher's name; one that nobody has if missing.")
    ] = None,
    records: RecordsOption = None,
) -> None:
    """Publish, and say how many publications were accepted; the exit code is 0 when all were.

    A publisher may be moved to another broker while it publishes: see trimtab move.

    \b
    Example:
      trimtab pub --broker 127.0.0.1:7001 "[class,'STOCK'],[symbol,'YHOO'],[volume,300001]"
      trimtab pub --broker 127.0.0.1:7001 '{"class": "ORDER", "address": {"city": "Ayr"}, "tags": ["new"]}'
      trimtab pub --broker 127.0.0.1:7001 --advertise "class = 'STOCK'" --open '{"class": "STOCK", "price": 5}'
      generate-quotes | trimtab pub --broker 127.0.0.1:7001 --name quotes -
    """
    from trimtab.cli.network.clients import publish_all, publish_lines
    from trimtab.network.client.client import Client

    address = _address(broker)
    _check_name(name)
    if is_open and not advertise:
        refuse("--open is for --advertise: without it everything that is published is announced")
    announced = [each for text in advertise or () for each in _parsed("--advertise", text, _all)]
    if STDIN in publications and publications != [STDIN]:
        refuse("- (standard input) cannot stand beside other publications")
    texts = [] if publications == [STDIN] else publications
    values = [_parsed(f"PUBLICATION {n}", text, Publication.parse) for n, text in enumerate(texts, 1)]
    with record_files(records, f"pub-{os.getpid()}") as recorder:

        async def connect() -> Client:
            client = await Client.connect(address, name)
            if recorder is not None:
                client.on_move = recorder.record
            return client

        if texts:
            run_client(publish_all(connect, announced, values, is_open=is_open))
        run_client(publish_lines(connect, announced, is_open=is_open))


def status(network: OptionalNetwork = None, example: ExampleOption = None, as_json: JsonOption = False) -> None:
    """Tell how the brokers of a network are: links, clients, tables, rates, queues, and what balancing does.

    The exit code is 1 if a broker does not answer or a link is down.

    \b
    Example:
      trimtab status examples/seven.toml
    """
    import asyncio

    import msgspec

    from trimtab.network.admin.local_network import ask_all

    plan, _ = network_of(network, example)
    warn_of_pieces(plan)
    found = asyncio.run(ask_all(plan))
    if as_json:
        brokers = {name: None if each is None else msgspec.to_builtins(each) for name, each in found.items()}
        typer.echo(json.dumps({"brokers": brokers, "links": [[link.first, link.second] for link in plan.links]}))
    else:
        from rich.console import Console

        from trimtab.cli.network.balancing_table import balancing_table, has_policy
        from trimtab.cli.network.channels_table import channels_table, has_channels
        from trimtab.cli.network.up import (
            assistances_table,
            disks_table,
            failures_table,
            fences_table,
            has_assistances,
            has_disk_news,
            has_failures,
            has_fences,
            peers_table,
            status_table,
        )

        console = Console()
        console.print(status_table(found))
        if has_policy(found):
            console.print(balancing_table(found))
        if has_channels(found):
            console.print(channels_table(found))
        if has_failures(found):
            console.print(failures_table(found))
        if has_assistances(found):
            console.print(assistances_table(found))
        if has_fences(found):
            console.print(fences_table(found))
        if has_disk_news(found):
            console.print(disks_table(found))
        console.print(peers_table(found))
    if any(each is None or each.links_missing for each in found.values()):
        raise typer.Exit(1)


def network_of(file: str | None, example: str | None) -> tuple[NetworkPlan, str | None]:
    """The network of a file, of an example, or of one broker without a file; and its file, if it has one."""
    from trimtab.network.admin.examples import network_examples, one_broker

    if example is None:
        return (one_broker(), None) if file is None else (plan_of(file), file)
    if file is not None:
        refuse("give either a network file or --example")
    found = network_examples()
    if example not in found:
        refuse(f"--example: no network is named {example}; there are {', '.join(found)}")
    return plan_of(str(found[example])), str(found[example])


def warn_of_pieces(plan: NetworkPlan) -> None:
    """Say so if some brokers cannot reach others: what is published in one piece is not delivered in another."""
    pieces = plan.pieces()
    if len(pieces) > 1:
        named = " | ".join(", ".join(piece) for piece in pieces)
        typer.echo(f"warning: the network is in {len(pieces)} pieces without a link between them: {named}", err=True)


def plan_of(path: str) -> NetworkPlan:
    """The network that a file describes; a wrong file ends the command."""
    from trimtab.network.network_file import NetworkFileError, commanded_network

    try:
        return commanded_network(path)
    except NetworkFileError as error:
        refuse(str(error))


@contextmanager
def record_files(folder: str | None, process: str, network: str = "") -> Iterator[RecordFiles | None]:
    """Where a process keeps its records, closed at the end, or None if none are wanted."""
    if folder is None:
        yield None
        return
    from trimtab.protocol.records import RecordsError
    from trimtab.records.files import RecordFiles

    try:
        with RecordFiles(
            folder,
            process,
            run=Path(network).stem,
            write_after_s=WRITE_RECORDS_AFTER_S,
            rows_per_file_count=ROWS_PER_FILE_COUNT,
        ) as files:
            yield files
    except RecordsError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None


def _address(text: str, option: str = "--broker") -> Address:
    from trimtab.network.links.address import Address

    try:
        return Address.parse(text)
    except ValueError as error:
        refuse(f"{option}: {error}")


def _site(text: str) -> tuple[float, float]:
    try:
        x, y = (float(each) for each in text.split(","))
    except ValueError:
        refuse(f"--site {text}: expected two numbers, X,Y")
    if not (math.isfinite(x) and math.isfinite(y)):
        refuse(f"--site {text}: expected two numbers, X,Y")
    return x, y


def _all(text: str) -> tuple[Filter, ...]:
    return Filter.parse_all(text)


def _parsed(what: str, text: str, parse: Callable[[str], Parsed]) -> Parsed:
    try:
        return parse(text)
    except LanguageError as error:
        mistake = placed(error, text)
        refuse(f"{what}, column {mistake.column}: {mistake.reason}\n{mistake.pointer()}")


def run_client(work: Coroutine[Any, Any, int]) -> None:
    """Run a client's work; its result is the exit code."""
    from trimtab.network.client.client import ClientError
    from trimtab.network.loops import run

    try:
        code = run(work)
    except ClientError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(code)
