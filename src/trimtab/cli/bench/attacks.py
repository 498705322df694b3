"""The command `trimtab bench attacks`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.bench.attacks import AttackFigures


def bench_attacks(
    kind: Annotated[
        Literal["flood", "huge", "advertisements", "stalled", "filters"] | None,
        typer.Option(help="One kind of attack; all of them if not given."),
    ] = None,
    phase_s: Annotated[
        float, typer.Option("--phase", min=2.0, max=600.0, metavar="S", help="Seconds of calm, and of attack.")
    ] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Calm and attack so many times.")] = 2,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Without the limits that contain attacks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Let clients misbehave in a network of real processes, and measure what others notice.

    Calm and attack take turns. Exit code 1 if the others' latency (p99) grows to more than 1.2 times that of calm.

    \b
    Example:
      trimtab bench attacks --kind flood --phase 5
    """
    import msgspec

    from trimtab.network.admin.local_network import NetworkError
    from trimtab.network.client.client import ClientError

    try:
        from trimtab.lab.bench.attacks import KINDS, measure_attacks
    except ModuleNotFoundError as error:
        refuse(f"this benchmark needs {error.name}: pip install 'trimtab[lab]'")

    def on_figures(figures: AttackFigures) -> None:
        if not as_json:
            _print(figures)

    kinds = KINDS if kind is None else (kind,)
    try:
        measured = measure_attacks(
            kinds, phase_s=phase_s, rounds_count=rounds, is_protected=not unprotected, on_figures=on_figures
        )
    except (NetworkError, ClientError, TimeoutError) as error:
        refuse(f"nothing could be measured: {error}")
    if as_json:
        rows = [{**msgspec.to_builtins(figures), "is_contained": figures.is_contained} for figures in measured]
        typer.echo(json.dumps({"attacks": rows}, indent=2))
    if not all(figures.is_contained for figures in measured):
        raise typer.Exit(1)


def _print(figures: AttackFigures) -> None:
    typer.echo(
        f"{figures.kind:<15} p99 {figures.calm_p99_s * 1e3:7.1f} ms in calm, {figures.attacked_p99_s * 1e3:8.1f} ms "
        f"under attack: {figures.p99_ratio:6.2f} times, {'contained' if figures.is_contained else 'NOT CONTAINED'}"
    )
    for reason, count in figures.told.items():
        typer.echo(printable(f"{'':<15} told {count:,} times: {reason}"))
