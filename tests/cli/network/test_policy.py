"""The command policy: brokers of a running network work by another policy, and say why if they do not."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text

HOTSPOT = Path(__file__).parents[3] / "examples" / "hotspot.toml"


def trimtab(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def policies(network: Network) -> dict[str, tuple[str, list[str]]]:
    """What each broker works by, and the roles of its agents."""
    found = {name: status for name, status in network.status().items() if status is not None}
    return {name: (status.policy, [agent.role for agent in status.agents]) for name, status in found.items()}


def test_the_policy_of_a_running_network_is_changed_and_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    with Network.of(["B0", "B1", "B2"], [("B1", "B0"), ("B2", "B0")]) as network:
        file.write_text(plan_text(network.plan), encoding="utf-8")
        assert policies(network) == {name: ("none", []) for name in ("B0", "B1", "B2")}
        assert trimtab("policy", "padres", str(file)) == (0, "3 brokers work by padres\n")
        assert policies(network) == {
            "B0": ("padres", ["cluster-head"]),
            "B1": ("padres", ["edge-broker of B0"]),
            "B2": ("padres", ["edge-broker of B0"]),
        }
        assert trimtab("policy", "padres", str(file))[0] == 0  # it is so already
        own = f"{Path(__file__).parents[3] / 'examples' / 'own_policy.py'}:Even"
        refused = trimtab("policy", own, str(file))
        coordinated = trimtab("policy", "coordinated", str(file))
        network.stop_broker("B2")
        partly = trimtab("policy", "none", str(file))
        left = policies(network)
    assert refused[0] == 1 and refused[1].startswith("B0: a policy in a file is named in the network file")
    assert coordinated == (
        1,
        "".join(f"{b}: a network is coordinated from its beginning, or it is not\n" for b in ("B0", "B1", "B2")),
    )
    assert partly[0] == 1 and partly[1].startswith("B2 does not answer at 127.0.0.1:")
    assert left == {"B0": ("none", []), "B1": ("none", [])}


def test_a_policy_that_there_is_not_is_refused_before_anybody_is_asked() -> None:
    code, output = trimtab("policy", "magic", str(HOTSPOT))
    assert code == 2 and output.startswith("policy: no policy is called magic; expected one of none, naive")
