"""`trimtab active start` with a token, its commands and a broker network that ask it."""

import json
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab.cli.main import app
from trimtab.network.admin.local_network import free_ports

TRIMTAB = (sys.executable, "-m", "trimtab")


def test_a_service_with_a_token_is_asked_with_it_by_commands_and_brokers(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    service, broker = (f"127.0.0.1:{port}" for port in free_ports(2))
    (tmp_path / "in").mkdir()
    command = [*TRIMTAB, "active", "start", "--dir", str(tmp_path / "data"), "--listen", service, "--memory", "1024"]
    command += ["--quick-start", "--token-file", str(token), "--files", str(tmp_path / "in")]
    command += ["--conf", "spark.sql.shuffle.partitions=3"]
    (tmp_path / "network.toml").write_text(
        f'[network]\nback_end = "http://{service}"\nback_end_token_file = "{token}"\n\n'
        f'[[broker]]\nname = "B1"\nlisten = "{broker}"\n'
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        started: list[subprocess.Popen[str]] = []
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready http://{service}\n"

            def trimtab(*arguments: str, given: bool = True) -> tuple[int, str]:
                more = ["--token-file", str(token)] if given else []
                answer = CliRunner().invoke(app, ["active", *arguments, "--at", service, *more])
                return answer.exit_code, answer.output

            assert trimtab("status", given=False) == (2, "a token is needed: Authorization: Bearer TOKEN\n")
            assert trimtab("sql", REPORTS + FEED + OF_TYPE)[0] == 0
            code, said = trimtab("sql", f"CREATE FEED f INTO Reports FROM DIRECTORY '{tmp_path}'")
            assert (code, f"is not below {tmp_path / 'in'}, where statements may read files" in said) == (2, True)
            assert trimtab("sql", f"CREATE FEED f INTO Reports FROM DIRECTORY '{tmp_path / 'in'}'")[0] == 0
            names = ["B1", str(tmp_path / "network.toml")]
            started.append(subprocess.Popen([*TRIMTAB, "broker", *names], stdout=subprocess.PIPE, text=True))
            assert started[0].stdout is not None
            while "ready" not in started[0].stdout.readline():
                pass
            wanted = ["--broker", broker, "--channel", 'OfType(event => "flood")', "--json"]
            started.append(subprocess.Popen([*TRIMTAB, "sub", *wanted], stdout=subprocess.PIPE, text=True))
            deadline_s = time.monotonic() + 60
            while '"subscriptions_count": 1' not in trimtab("status", "--json")[1]:
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            records = tmp_path / "records.jsonl"
            records.write_text(json.dumps(report(1)))
            assert trimtab("feed", "reports", str(records))[0] == 0
            assert started[1].stdout is not None
            assert '"r1"' in started[1].stdout.readline()
        finally:
            for each in reversed(started):
                each.terminate()
                each.communicate()
            process.terminate()


def test_what_start_cannot_do_is_said_in_one_line(tmp_path: Path) -> None:
    for arguments, said in (
        (["--listen", "0.0.0.0:7500"], "a service at 0.0.0.0 can be reached from other machines and needs a token"),
        (["--conf", "memory=1g"], "--conf memory=1g: expected spark.KEY=VALUE"),
        (["--token-file", str(tmp_path / "none")], "No such file"),
    ):
        answer = CliRunner().invoke(app, ["active", "start", "--dir", str(tmp_path / "data"), *arguments])
        assert (answer.exit_code, said in answer.output) == (2, True), answer.output
