"""The commands on who may do what, as a user meets them."""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.network.security.audit import Audit
from trimtab.protocol.frames import LinkRequest
from trimtab.security.passwords import read_passwords

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


EXAMPLES = Path(__file__).parents[2] / "examples"


def trimtab(folder: Path, *arguments: str, says: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trimtab", *arguments],
        cwd=folder,
        input=says,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def city(tmp_path: Path) -> Path:
    for name in ("secure.toml", "permissions.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path


def test_certificates_are_made_once_and_for_their_user_alone(city: Path) -> None:
    first = trimtab(city, "certs", "init", "secure.toml", "--for", "ann")
    assert first.returncode == 0, first.stderr
    certs = city / "certs"
    assert {path.name for path in certs.glob("*.pem")} == {
        f"{name}.pem" for name in ("authority", "centre", "north", "south", "operator", "ann")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in certs.iterdir()} == {0o600}
    assert stat.S_IMODE(certs.stat().st_mode) == 0o700
    before = (certs / "north.pem").read_bytes()
    again = trimtab(city, "certs", "init", "secure.toml", "--for", "bob")
    assert again.stdout.startswith("certs: bob\n") or "certs: bob\n" in again.stdout
    assert (certs / "north.pem").read_bytes() == before
    trimtab(city, "certs", "init", "secure.toml", "--renew")
    assert (certs / "north.pem").read_bytes() != before


def test_a_broker_does_not_get_a_second_identity(city: Path) -> None:
    answer = trimtab(city, "certs", "init", "secure.toml", "--for", "north")
    assert (answer.returncode, answer.stderr) == (2, "--for north: north is a broker\n")


def test_a_broker_without_its_certificate_says_what_is_missing(city: Path) -> None:
    answer = trimtab(city, "broker", "north", "secure.toml")
    assert answer.returncode == 2
    assert "certs/authority.pem: there is no such file; trimtab certs init makes certificates" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_doctor_tells_what_leaves_a_network_open(city: Path) -> None:
    trimtab(city, "certs", "init", "secure.toml")
    well = trimtab(city, "doctor", "secure.toml")
    assert well.returncode == 0
    assert "ok: every connection is encrypted, and brokers prove who they are" in well.stdout
    assert "authority.key: who reads it can be anybody; keep it elsewhere" in well.stdout
    (city / "certs" / "north.key").chmod(0o644)
    permissions = (city / "permissions.toml").read_text().replace('"monitor" = ["monitor"]', '"*" = ["operator"]')
    (city / "permissions.toml").write_text(permissions)
    ill = trimtab(city, "doctor", "secure.toml")
    assert ill.returncode == 1
    assert "north.key can be read by others (mode 644)" in ill.stdout
    assert "wrong: '*' may read, change as administrators do" in ill.stdout


def test_where_others_reach_a_broker_it_needs_certificates_or_a_word(tmp_path: Path) -> None:
    text = '[[broker]]\nname = "B1"\nlisten = "0.0.0.0:7001"\n'
    (tmp_path / "net.toml").write_text(text)
    answer = trimtab(tmp_path, "doctor", "net.toml")
    assert answer.returncode == 2
    assert "net.toml:3: B1 listens at 0.0.0.0, where others reach it, unencrypted" in answer.stderr
    (tmp_path / "net.toml").write_text(f"{text}[security]\ninsecure = true\n")
    answer = trimtab(tmp_path, "doctor", "net.toml")
    assert answer.returncode == 1
    assert "wrong: B1: whoever reaches them may do and read everything (insecure)" in answer.stdout


def test_a_password_is_kept_as_a_hash(tmp_path: Path) -> None:
    assert trimtab(tmp_path, "password", "ann", "--file", "passwords.txt", says="short\n").returncode == 2
    answer = trimtab(tmp_path, "password", "ann", "--file", "passwords.txt", says="correct horse\n")
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "passwords.txt").read_text()
    assert text.startswith("ann:scrypt$")
    assert read_passwords(text)["ann"].fits("correct horse")
    assert stat.S_IMODE((tmp_path / "passwords.txt").stat().st_mode) == 0o600
    assert trimtab(tmp_path, "password", "ann", "--file", "passwords.txt", "--remove").returncode == 0
    assert (tmp_path / "passwords.txt").read_text() == ""


def test_the_audit_record_is_shown(city: Path) -> None:
    Audit(city / "audit", "north").write(
        who="ann",
        proof="certificate",
        address="127.0.0.1:1",
        request=LinkRequest("remove", "centre"),
        name="link",
        is_allowed=False,
        result="ann has no permission for link",
    )
    answer = trimtab(city, "audit", "secure.toml")
    assert answer.returncode == 0, answer.stderr
    assert "north ann from 127.0.0.1:1: link" in answer.stdout
    assert "-> refused: ann has no permission for link" in answer.stdout
    assert json.loads(trimtab(city, "audit", "secure.toml", "--json").stdout)["who"] == "ann"
    assert trimtab(city, "audit", "secure.toml", "--who", "bob").stdout == ""
