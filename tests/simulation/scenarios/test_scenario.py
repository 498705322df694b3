"""Scenario files: what they mean, and how their mistakes are reported."""

from pathlib import Path

import pytest

from trimtab.simulation.scenarios.documents import ScenarioError, bundled_documents
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import parse_scenario, read_scenario

TWO_BROKERS = """
duration_s = 30.0
symbols_count = 3

[[broker]]
name = "B1"
listen = "127.0.0.1:7001"

[[broker]]
name = "B2"

[[link]]
between = ["B1", "B2"]
"""


def test_figure_2_2_delivers_what_the_thesis_says() -> None:
    run = ScenarioRun(read_scenario("figure-2-2"))
    summary = run.run()
    assert summary.violations == []
    last = {s.id: s.last for s in run.world.checker.subscriptions.values()}
    assert last == {"sub1/s1": {"P": 3}, "sub2/s1": {"P": 3}}
    assert (summary.publications, summary.deliveries) == (3, 3)
    assert [entry.id for entry in run.world.brokers["B1"].broker.tables.subscriptions.values()] == ["sub1/s1"]


MESSAGES = [
    name
    for name, document in bundled_documents().items()
    if document.kind == "messages" and not name.startswith("ews-attack-")
]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_shipped_scenario_keeps_all_promises(name: str) -> None:
    fewer = {"ews-burst": {"crisis.coarseness": "20"}, "ews-calm": {"crisis.coarseness": "4"}}.get(name, {})
    summary = ScenarioRun(read_scenario(name, {"duration_s": "30", **fewer})).run()
    assert summary.violations == []
    assert (summary.deliveries or 0) > 0


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    scenario = read_scenario("link-cut", {"duration_s": "8"})
    first, again, other = (ScenarioRun(scenario, seed).run().trace_hash for seed in (3, 3, 4))
    assert first == again != other


def test_a_rate_changes_at_a_time() -> None:
    text = TWO_BROKERS + (
        '[[publishers]]\ncount = 1\nbroker = "B1"\nrate_per_min = 60.0\n'
        '[[rate]]\nat_s = 10.0\npublisher = "P0"\nrate_per_min = 600.0\n'
    )
    with pytest.raises(ScenarioError, match="no publisher is called P0"):
        parse_scenario(text)
    scenario = parse_scenario(text.replace('publisher = "P0"\nrate_per_min = 600.0', "factor = 10.0"))
    published_count = ScenarioRun(scenario).run().publications or 0
    assert 10 + 200 - 3 <= published_count <= 10 + 200 + 3


def test_a_subscriber_moves_and_leaves_at_given_times() -> None:
    text = TWO_BROKERS + (
        '[[publishers]]\ncount = 3\nbroker = "B1"\nrate_per_min = 60.0\n'
        """[[subscriber]]\nname = "S"\nbroker = "B1"\nfilters = ["[class,eq,'STOCK']"]\nat_s = 2.0\nuntil_s = 20.0\n"""
        '[[move]]\nsubscriber = "S"\nbroker = "B2"\nat_s = 10.0\n'
    )
    summary = ScenarioRun(parse_scenario(text)).run()
    assert summary.violations == []
    assert summary.moves == 1
    assert 3 * 16 < (summary.deliveries or 0) < 3 * 19


def test_overrides_replace_values() -> None:
    scenario = parse_scenario(TWO_BROKERS, overrides={"broker.1.cpu_mhz": "50", "network.covering": "off", "seed": "9"})
    assert (scenario.broker[1].cpu_mhz, scenario.network.covering, scenario.seed) == (50.0, "off", 9)
    with pytest.raises(ScenarioError, match=r"broker\.7\.cpu_mhz: there is no number 7"):
        parse_scenario(TWO_BROKERS, overrides={"broker.7.cpu_mhz": "50"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("duration_s = ", r"s\.toml:1: not TOML"),
        ('policy = "padres"', r's\.toml:1: policy: a policy is chosen by a section \[policy\] with name = "padres"'),
        (
            "[padres]\nspeed = 3",
            r"s\.toml:1: padres: the settings of this policy belong into a section \[policy\.padres",
        ),
        ("[coordination]", r"s\.toml:1: coordination: .* belong into a section \[policy\.coordinated\]"),
        ("[policy.padres]\nspeed = 3", r"s\.toml:2: policy\.padres\.speed: unknown key speed in policy\.padres; exp"),
        ("duration_s = 5", r"s\.toml: broker: at least one broker is needed"),
        (
            TWO_BROKERS + '[[broker]]\nname = "B3"\ncpu_mhz = "x"',
            r"s\.toml:16: broker\.2\.cpu_mhz: expected a number, not a text",
        ),
        (TWO_BROKERS + '[[broker]]\nname = "B3"\ncpus = 3', r"s\.toml:16: broker\.2\.cpus: there is no such key"),
        (TWO_BROKERS + '[[broker]]\nname = "B1"', r"s\.toml:15: broker\.2\.name: the name B1 is used twice"),
        (TWO_BROKERS + '[[broker]]\nname = "B3"\ncpu_mhz = -1', r"s\.toml:16: .*a capacity must be positive"),
        (TWO_BROKERS + '[[link]]\nbetween = ["B1", "B9"]', r"s\.toml:15: .*no broker is called B9"),
        (TWO_BROKERS + '[[link]]\nbetween = ["B2", "B1"]', r"s\.toml:15: .*the link B2 - B1 closes a cycle"),
        (
            TWO_BROKERS + '[[subscriber]]\nname = "S"\nbroker = "B1"\nfilters = ["[a,>>,1]"]',
            r"s\.toml:17: subscriber\.0\.filters: .*column",
        ),
        (
            TWO_BROKERS + '[[publisher]]\nname = "P"\nbroker = "B1"',
            r"s\.toml:15: publisher\.0\.name: give either a symbol or an advertisement",
        ),
        (
            TWO_BROKERS + '[[fault]]\nkind = "drop"\nfor_s = 1\nprobability = 2.0',
            r"s\.toml:14: fault\.0: a probability lies between 0 and 1",
        ),
        (TWO_BROKERS + '[[fault]]\nkind = "fire"', r"s\.toml:\d+: fault\.0.*Invalid value 'fire'"),
        (
            TWO_BROKERS + '[[fault]]\nkind = "pause"\nbroker = "B7"\nat_s = 1\nfor_s = 1',
            r"s\.toml:16: fault\.0\.broker: nobody is called B7",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, "s.toml")


def test_a_scenario_that_is_not_there_is_refused_with_the_names_that_are() -> None:
    with pytest.raises(ScenarioError, match=r"nothing: neither a file nor a bundled scenario \(bad-.*, ews-burst, "):
        read_scenario("nothing")


def test_more_publishers_than_stocks_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    file.write_text(TWO_BROKERS + '[[publishers]]\ncount = 9\nbroker = "B1"\n')
    with pytest.raises(ScenarioError, match="9 publishers want a stock each, but there are 3"):
        ScenarioRun(read_scenario(str(file)))


def test_a_scenario_may_take_its_network_from_a_network_file(tmp_path: Path) -> None:
    network = Path(__file__).parents[3] / "examples" / "figure_2_2.toml"
    (tmp_path / "network.toml").write_text(network.read_text("utf-8"), "utf-8")
    file = tmp_path / "scenario.toml"
    file.write_text('network_file = "network.toml"\n[network]\nlatency_s = 0.5\n', "utf-8")
    scenario = read_scenario(str(file))
    assert [broker.name for broker in scenario.broker] == ["B1", "B2", "B3", "B4"]
    assert len(scenario.link) == 3
    assert scenario.network.latency_s == 0.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('network_file = "nowhere.toml"', "scenario.toml:1: network_file: .*nowhere.toml"),
        ("network_file = 5", "scenario.toml:1: network_file: the name of a file is wanted"),
        (
            'network_file = "scenario.toml"\n[[broker]]\nname = "B1"',
            "broker: brokers and links stand in",
        ),
    ],
)
def test_a_network_file_that_cannot_be_taken_in_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ScenarioError, match=reason):
        read_scenario(str(file))


def test_a_scenario_says_what_differs_from_its_base() -> None:
    calm, burst = read_scenario("ews-calm"), read_scenario("ews-burst")
    assert (calm.topic, calm.broker) == (burst.topic, burst.broker)
    assert (calm.policy.name, calm.network.uplink, calm.network.latency_s) == ("none", "turns", burst.network.latency_s)
    with pytest.raises(ScenarioError, match=r"s.toml:1: base: nothing: neither a file nor a bundled scenario"):
        parse_scenario('base = "nothing"', "s.toml")
