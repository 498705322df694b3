"""`trimtab allowed`: the answer, and why."""

import json
from pathlib import Path

from typer.testing import CliRunner

from trimtab.cli.main import app

PERMISSIONS = str(Path(__file__).parents[2] / "examples" / "permissions.toml")


def allowed(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["allowed", *arguments, "--permissions", PERMISSIONS])
    return result.exit_code, result.output


def test_what_is_allowed_is_said_with_the_permissions() -> None:
    code, output = allowed("ann", "publish", "class = 'REPORT' AND owner = 'ann' AND text LIKE 'fire%'")
    assert code == 0
    assert output.splitlines()[:2] == ["yes", "roles: citizen"]


def test_what_is_not_allowed_is_said_with_what_is_missing() -> None:
    code, output = allowed("ann", "subscribe", "class = 'ANSWER'")
    assert code == 1
    assert "no: ann may not subscribe to this; what is missing: class = 'ANSWER' AND owner <> 'ann'" in output


def test_what_is_narrowed_is_said_with_the_permitted_part() -> None:
    code, output = allowed("crew-7", "subscribe", "class = 'REPORT'", "--json")
    assert code == 1
    assert json.loads(output)["narrowed"] == ["class = 'REPORT' AND confidential = false"]


def test_roles_may_be_named_as_a_token_does() -> None:
    assert allowed("eve", "subscribe", "a = 1")[0] == 1
    assert allowed("eve", "subscribe", "a = 1", "--role", "operator")[0] == 0


def test_wrong_input_is_told_with_its_place() -> None:
    assert allowed("ann", "read", "a = 1")[0] == 2
    assert allowed("ann", "publish", "a >")[0] == 2
    result = CliRunner().invoke(app, ["allowed", "ann", "publish", "a = 1", "--permissions", "no such file"])
    assert result.exit_code == 2
    assert "no such file: cannot be read" in result.output
