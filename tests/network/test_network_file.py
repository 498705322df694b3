"""The network file: what it says, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.broker.flow.rate_limits import Allowance
from trimtab.network.admin.local_network import plan_text
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.network_file import LinkEntry, NetworkFileError, parse_network, read_network_file
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import PolicyChoice
from trimtab.policies.relocation.config import Aim, RelocationConfig

EXAMPLES = Path(__file__).parents[2] / "examples"
NETWORKS = [path for path in sorted(EXAMPLES.glob("*.toml")) if "listen = " in path.read_text(encoding="utf-8")]
B1, B2, B3 = (f'[[broker]]\nname = "B{n}"\nlisten = "127.0.0.1:700{n}"\n' for n in (1, 2, 3))
"""Three lines each."""


def link(first: str, second: str) -> str:
    return f'[[link]]\nbetween = ["{first}", "{second}"]\n'


def mistake(text: str) -> str:
    with pytest.raises(NetworkFileError) as caught:
        parse_network(text, "net.toml")
    return str(caught.value)


def test_a_network_has_brokers_links_and_options() -> None:
    plan = parse_network(
        B1 + "cpu_mhz = 100\nbandwidth_mbps = 0.5\n" + B2 + link("B1", "B2") + '[network]\ncovering = "off"\n'
    )
    assert plan.broker("B1").listen == Address("127.0.0.1", 7001)
    assert (plan.broker("B1").cpu_mhz, plan.broker("B1").bandwidth_mbps, plan.broker("B2").cpu_mhz) == (100, 0.5, None)
    assert plan.links == (LinkEntry("B1", "B2"),)
    assert (plan.options.covering, plan.options.advertisement_covering) == (False, True)
    assert plan.config_of("B1", "s").subscription_covering is False


def test_a_network_has_a_policy_with_its_settings() -> None:
    plan = parse_network(
        B1
        + "memory_mb = 64\n[network]\nmeter_window_s = 4\n"
        + '[policy]\nname = "padres"\n[policy.padres]\nlocal_pie_period_s = 2\n'
    )
    assert plan.policy == PolicyChoice("padres", {"padres": {"local_pie_period_s": 2}})
    assert plan.policy.config(PadresConfig) == PadresConfig(local_pie_period_s=2)
    meters = plan.config_of("B1", "s").meters
    assert (meters.window_s, meters.memory_bytes) == (4, 64_000_000)
    assert parse_network(plan_text(plan)) == plan


def test_the_first_broker_of_a_link_calls_the_second() -> None:
    plan = parse_network(B1 + B2 + B3 + link("B1", "B2") + link("B3", "B1"))
    assert plan.dialled_by("B1") == (("B2", Address("127.0.0.1", 7002)),)
    assert plan.neighbours_of("B1") == ("B2", "B3")


def test_a_link_may_lead_over_another_address() -> None:
    plan = parse_network(B1 + B2 + link("B1", "B2") + 'via = "127.0.0.1:9000"\n')
    assert plan.dialled_by("B1") == (("B2", Address("127.0.0.1", 9000)),)


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.name)
def test_examples_are_right_and_can_be_written_again(path: Path) -> None:
    plan = read_network_file(path)
    assert parse_network(plan_text(plan)) == plan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[broker]\n", "net.toml:1: not TOML"),
        ("", "net.toml:1: no broker; expected at least one [[broker]]"),
        (B1 + "[nettwork]\n", "net.toml:4: unknown section nettwork; expected [[broker]], [[link]], [[standby]], "),
        (
            B1 + "[policy.delay]\nlow_ratio = 0.97\n",
            "net.toml:5: low_ratio: the lower threshold (0.97) must be below",
        ),
        (
            B1 + "[policy.delay]\nslow_ratio = 0.9\n",
            "net.toml:5: unknown key slow_ratio in policy.delay; expected low",
        ),
        (B1 + "\ncolour = 3\n", "net.toml:5: unknown key colour in broker; expected name, listen,"),
        ("[broker]\nname = 3\n", "net.toml:1: expected [[broker]] with two brackets"),
        ('[[broker]]\nname = "B1"\n', 'net.toml:1: this broker has no listen; expected listen = "..."'),
        ('[[broker]]\nname = 3\nlisten = "127.0.0.1:1"\n', "net.toml:2: name: expected a text in quotes"),
        ('[[broker]]\nname = "a b"\nlisten = "127.0.0.1:1"\n', "net.toml:2: 'a b' is not a broker's name"),
        ('[[broker]]\nname = "B"\nlisten = "127.0.0.1"\n', "net.toml:3: listen: '127.0.0.1' is not an address"),
        ('[[broker]]\nname = "B"\nlisten = "h:70000"\n', "net.toml:3: listen: 'h:70000' is not an address: ports go"),
        (B1 + "cpu_mhz = 0\n", "net.toml:4: cpu_mhz: expected a number above 0"),
        (B1 + B1.replace("7001", "7002"), "net.toml:5: a second broker named B1"),
        (B1 + B2.replace("7002", "7001"), "net.toml:6: B1 listens at 127.0.0.1:7001 already"),
        (B1 + link("B1", "B9"), "net.toml:5: a link to B9, but no broker has this name"),
        (B1 + link("B1", "B1"), "net.toml:5: a link from B1 to itself"),
        (B1 + '[[link]]\nbetween = ["B1"]\n', 'net.toml:5: expected between = ["NAME", "NAME"]'),
        (B1 + B2 + link("B1", "B2") + link("B2", "B1"), "net.toml:10: a second link between B2 and B1"),
        (
            B1 + B2 + B3 + link("B1", "B2") + link("B2", "B3") + link("B3", "B1"),
            "net.toml:15: this link closes a cycle: B3 - B2 - B1 - B3; brokers must form a tree",
        ),
        (B1 + '[network]\ncovering = "yes"\n', 'net.toml:5: covering: expected "on" or "off"'),
        (B1 + '[network]\nslow_policy = "wait"\n', "net.toml:5: slow_policy: expected one of block, drop-oldest"),
        (B1 + '[network]\nuplink = "fifo"\n', "net.toml:5: uplink: expected one of turns, deadlines"),
        (B1 + "[network]\nclients_max_count = 0\n", "net.toml:5: clients_max_count: expected a whole number"),
        (B1 + '[policy]\nname = "magic"\n', "net.toml:4: no policy is called magic; expected one of none, "),
        (B1 + "[network]\nsilent_after_s = 0\n", "net.toml:5: silent_after_s: expected a number above 0"),
        (B1 + "[network]\nmeter_window_s = -1\n", "net.toml:5: meter_window_s: expected a number above 0"),
        (
            B1 + "[policy.padres]\npie_periods = 3\n",
            "net.toml:5: unknown key pie_periods in policy.padres; exp",
        ),
        (
            B1 + '[policy.padres]\nlocal_pie_period_s = "3 s"\n',
            "net.toml:5: local_pie_period_s: expected a number",
        ),
        (B1 + "[policy.padres]\npress_sample_count = 2.5\n", "net.toml:5: press_sample_count: expected a whole number"),
        (
            B1 + "[policy.padres]\nsmoothing_alpha = 0.5\nlower_overload_ratio = 0.97\n",
            "net.toml:6: lower_overload_ratio: the lower overload ratio (0.97) must be below the higher one (0.95)",
        ),
        (B1 + "[protection]\nnewcomer_rate_per_s = 0\n", "net.toml:5: newcomer_rate_per_s must be above 0"),
        (
            B1 + "[protection]\nspeed_limit = 3\n",
            "net.toml:5: unknown key speed_limit in protection; expected newcomer_",
        ),
        (
            B1 + '[protection]\nknown = { "a" = { rate_per_s = 0, bytes_per_s = 1 } }\n',
            "net.toml:5: known: rate_per_s must be above 0",
        ),
        ("policy = 3\n" + B1, 'net.toml:1: a policy is chosen by a section [policy] with name = "3"'),
        ("policy.padres = 3\n" + B1, "net.toml:1: expected name, or a section [policy.padres] with settings"),
        (
            B1 + "[policy.press]\nspeed = 3\n",
            "net.toml:4: no policy has a table press; expected one",
        ),
        (
            B1 + "[padres]\nspeed = 3\n",
            "net.toml:4: the settings of this policy belong into a section [pol",
        ),
        (B1 + "[delay]\n", "net.toml:4: the settings of this policy belong into a section [policy.delay]"),
        (B1 + "[relocation]\n", "net.toml:4: the settings of this policy belong into a section [pol"),
        (
            B1 + '[network]\npolicy = "padres"\n',
            'net.toml:5: a policy is chosen by a section [policy] with name = "padres"',
        ),
        (B1 + '[network]\nacknowledges = "sure"\n', "net.toml:5: acknowledges: expected one of received, safe"),
        (
            B1 + '[network]\nacknowledges = "durable"\n',
            'net.toml:5: acknowledges = "durable" and disk = "FOLDER" go tog',
        ),
        (B1 + '[network]\ndisk = "/tmp"\n', 'net.toml:5: acknowledges = "durable" and disk = "FOLDER" go together'),
        (B1 + "[network]\nstop_within_s = 0\n", "net.toml:5: stop_within_s: "),
        (
            B1 + "[network]\nwire_version_max = 1\n",
            "net.toml:5: wire_version_max: expected a version that this program",
        ),
        (
            B1 + "wire_version_max = 9\n",
            "net.toml:4: wire_version_max: expected a version that this program speaks, 2 ",
        ),
        (
            B1 + "[network]\ndisk_max_mb = -1\n",
            "net.toml:5: disk_max_mb: expected a whole number of megabytes, 0 for no",
        ),
        (B1 + "[network]\ndisk_max_mb = 0.5\n", "net.toml:5: disk_max_mb: expected a whole number, not a number"),
        (B1 + "[network]\ndisk_max_mb = 9\n", 'net.toml:5: disk_max_mb is for disk = "FOLDER", and there is none'),
        (
            B1 + '[network]\nacknowledges = "safe"\nslow_policy = "drop-oldest"\n[replication]\n',
            'net.toml:6: acknowledges = "safe" needs slow_policy = "block"',
        ),
        (
            B1 + '[network]\nacknowledges = "safe"\n[replication]\nprotocol = "basic"\n',
            'net.toml:7: protocol: acknowledges = "safe" needs "synchronous", not "basic"',
        ),
        (B1 + '[replication]\nprotocol = "quick"\n', "net.toml:5: protocol: expected one of basic, synchronous, incr"),
        (B1 + '[replication]\nprovisioner = "me"\n', "net.toml:5: provisioner: expected one of none, process, standby"),
        (B1 + "[replication]\ncrash_after = 1\n", "net.toml:5: unknown key crash_after in replication; expected proto"),
        (B1 + "[replication]\ncrash_after_s = 0\n", "net.toml:5: crash_after_s: every time of replication is positive"),
        (B1 + '[replication]\nprovisioner = "command"\n', 'net.toml:5: the provisioner "command" needs a command = ["'),
        (
            B1 + '[replication]\nprovisioner = "command"\ncommand = ["run", "{name}"]\n',
            "net.toml:4: command: '{name}' has a field that is not one of {broker}, {protocol}",
        ),
        (
            B1 + '[replication]\nprovisioner = "standby"\n',
            'net.toml:5: provisioner = "standby" needs at least one [[sta',
        ),
        (B1 + "[[standby]]\n", 'net.toml:4: this standby has no listen; expected listen = "..."'),
        (B1 + '[[standby]]\nlisten = "here"\n', "net.toml:5: listen: 'here' is not an address"),
        (B1 + '[[standby]]\nlisten = "127.0.0.1:7001"\n', "net.toml:5: B1 listens at 127.0.0.1:7001 already"),
        ("protection = 3\n" + B1, "net.toml:1: expected a section [protection]"),
        (B1 + "[policy.relocation]\nrest_s = -1\n", "net.toml:5: rest_s must be finite and not negative, not -1"),
        (
            B1 + '[policy.relocation]\naim = { priority = "speed" }\n',
            "net.toml:5: priority: expected one of load, delay",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, expected: str) -> None:
    assert mistake(text).startswith(expected)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetworkFileError, match=r"nowhere.toml: cannot be read: No such file"):
        read_network_file(tmp_path / "nowhere.toml")


def test_settings_of_relocation_and_aims_of_single_publishers_survive_as_text() -> None:
    text = (
        B1
        + """
[policy.relocation]
grape_threshold_count = 50
[policy.relocation.publishers."P 7"]
priority = "delay"
weight_percent = 75
"""
    )
    plan = parse_network(text, "net.toml")
    assert plan.policy.config(RelocationConfig).aim_of("P 7") == Aim("delay", 75)
    assert plan.policy.config(RelocationConfig).grape_threshold_count == 50
    assert parse_network(plan_text(plan)) == plan


def test_settings_of_replication_survive_as_text() -> None:
    text = (
        B1
        + """
[network]
acknowledges = "safe"
[replication]
crash_after_s = 0.5
provisioner = "command"
command = ["start-one", "{broker}", 'with "quotes"']
[[standby]]
listen = "127.0.0.1:7101"
"""
    )
    plan = parse_network(text, "net.toml")
    assert plan.replication is not None
    assert plan.replication.command == ("start-one", "{broker}", 'with "quotes"')
    assert plan.config_of("B1", "1").replication == plan.replication
    assert plan.config_of("B1", "1").acknowledges == "safe"
    assert plan.standbys == (Address("127.0.0.1", 7101),)
    assert parse_network(plan_text(plan)) == plan


def test_without_a_section_nobody_watches() -> None:
    assert parse_network(B1).config_of("B1", "1").replication is None


def test_limits_of_clients_survive_as_text() -> None:
    text = """
[protection]
newcomer_rate_per_s = 20
[protection.known."buoy-*"]
rate_per_s = 500
bytes_per_s = 1e6
"""
    plan = parse_network(B1 + text, "net.toml")
    assert plan.protection is not None
    assert plan.protection.newcomer_rate_per_s == 20
    assert plan.protection.allowance_of("buoy-7") == Allowance(rate_per_s=500, bytes_per_s=1e6)
    assert parse_network(plan_text(plan)) == plan
    assert plan.config_of("B1", "1").protection == plan.protection
    assert parse_network(B1).protection is None


def test_keys_of_earlier_versions_are_accepted_and_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    text = "[network]\nrecovers_after_s = 3\n[replication]\nlook_every_s = 0.2\nclients_return_within_s = 5\n" + B1
    plan = parse_network(text, "net.toml")
    assert plan.replication == ReplicationSettings(look_every_s=0.2)
    assert [record.getMessage().rpartition(": ")[0] for record in caplog.records] == [
        "net.toml:2: recovers_after_s has no effect any more",
        "net.toml:5: clients_return_within_s has no effect any more",
    ]
