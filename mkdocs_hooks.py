"""What mkdocs does beyond its own: pages made from the code, and links to files of the repository.

A page may link to a file beside `docs` (`../src/trimtab/broker/core.py`). On the site such a file is not there: its
name stays, and a name of nothing is an error.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent
_LINK: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:src|tests|examples)[^)#]*|(?:\.\./)+[A-Z]+\.md)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code."""
    pages = {"commands": _commands, "api": _api, "configuration": _configuration}
    for path, text in ((f"reference/{name}.md", made()) for name, made in pages.items()):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Keep the names of files of the repository, which are not on the site, and check that they exist."""
    here = (Path(config["docs_dir"]) / page.file.src_path).parent

    def named(found: re.Match[str]) -> str:
        if not (here / found[2]).exists():
            raise PluginError(f"{page.file.src_path}: there is no file {found[2]}")
        return found[1] if found[1].startswith("`") else f"`{found[1]}`"

    return _LINK.sub(named, markdown)


def _commands() -> str:
    """Every command with its help."""
    import typer

    from trimtab.cli.main import app

    lines = ["# Commands", "", "Made from the commands' own help.", ""]

    def add(command: Any, name: str) -> None:
        context = typer.Context(command, info_name=name)
        lines.extend([f"## {name}", "", *(f"    {line}" for line in command.get_help(context).splitlines()), ""])
        for each in getattr(command, "commands", {}).values():
            add(each, f"{name} {each.name}")

    add(typer.main.get_command(app), "trimtab")
    return "\n".join(lines)


def _api() -> str:
    """Every public name of the package with what its documentation says."""
    import trimtab

    lines = ["# Python", "", "Everything that `from trimtab import ...` offers, made from the code.", ""]
    for name in trimtab.__all__:
        thing = getattr(trimtab, name)
        if isinstance(thing, str):
            continue
        lines += [f"## {name}", "", *_documented(name, thing)]
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if not member.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                    lines += [f"### {name}.{member}", "", *_documented(member, function)]
    return "\n".join(lines)


def _documented(name: str, thing: Any) -> list[str]:
    try:
        said = [f"    {name}{inspect.signature(thing)}", ""] if callable(thing) else []
    except (TypeError, ValueError):
        said = []
    lines = (inspect.getdoc(thing) or "").splitlines()
    is_code = [line.startswith((" ", ">")) for line in lines]
    return [
        *said,
        *(f"    {x}" if code else x.replace("<", "&lt;") for x, code in zip(lines, is_code, strict=True)),
        "",
    ]


# ---- the reference of configuration ----

_UNITS: Final = (
    ("_bytes_per_s", "bytes/s"),
    ("_per_min", "1/min"),
    ("_per_s", "1/s"),
    ("_mbps", "Mbps"),
    ("_mhz", "MHz"),
    ("_mb", "MB"),
    ("_bytes", "bytes"),
    ("_percent", "percent"),
    ("_ratio", "share, 0 to 1"),
    ("_count", "number"),
    ("_m", "m"),
    ("_s", "s"),
)
"""Units by the end of a key."""

_TYPES: Final = {
    "float": "number",
    "int": "whole number",
    "str": "text",
    "bool": "true or false",
    "NoneType": "nothing",
}


class LinkKeys(msgspec.Struct):
    """Two brokers; the first calls the second."""

    between: tuple[str, str]
    """The two brokers, by name."""
    via: str | None = None
    """HOST:PORT that leads to the second, where that is not its own address."""


def _configuration() -> str:
    """Every key of every file, from the classes that read them; what stands under a field is its meaning."""
    lines = [
        "# Configuration",
        "",
        "Every key of every file, made from the code. Mistakes in a file are told with its name, the line and what was",
        "expected. A unit is part of a key's name: `_s` are seconds, `_ratio` is a share from 0 to 1.",
        "",
    ]
    for title, said, parts in configuration_parts():
        lines += [f"## {title}", "", said, ""]
        for header, kind in parts:
            lines += [f"### {header}", "", _first_line(kind), ""]
            lines += ["| Key | Type | Default | Unit | Meaning |", "|---|---|---|---|---|"]
            lines += [f"| {' | '.join(row)} |" for row in rows_of(kind)] + [""]
    return "\n".join(lines)


def configuration_parts() -> list[tuple[str, str, list[tuple[str, Any]]]]:
    """The chapters of the page: a title, what is said of it, and the tables with the classes that read them."""
    from trimtab.broker.flow.rate_limits import RateLimitConfig
    from trimtab.client.config import ClientConfig
    from trimtab.lab.studies.claims import Claim, Claims, FigureWanted
    from trimtab.lab.studies.studies import LabStudy, RunsPart
    from trimtab.network.failover.replication_settings import ReplicationSettings
    from trimtab.network.network_plan import BrokerEntry, NetworkOptions
    from trimtab.policies.registry import policy_tables
    from trimtab.simulation.coordination.scenario import CoordinationScenario
    from trimtab.simulation.faults.faults import Fault
    from trimtab.simulation.relocation.scenario import RelocationScenario
    from trimtab.simulation.replication.scenario import ReplicationScenario
    from trimtab.simulation.scenarios.messages import Scenario
    from trimtab.simulation.scenarios.study import FigurePart, Study

    network = [
        ("[network]", NetworkOptions),
        ("[[broker]]", BrokerEntry),
        ("[[link]]", LinkKeys),
        ("[replication]", ReplicationSettings),
        ("[protection]", RateLimitConfig),
    ]
    tables = [(f"[{name}]", kind) for name, kind in _parts_of(Scenario)]
    faults = [(f'[[fault]] kind = "{kind.__struct_config__.tag}"', kind) for kind in _members(Fault)]
    city = [(f"[{name}]", kind) for name, kind in _parts_of(CoordinationScenario)]
    return [
        (
            "Network files",
            "`trimtab up FILE` and all commands that name a network. `[[standby]]` has `listen` alone: the address of "
            "a process that waits to become a replica.",
            network,
        ),
        (
            "Policies",
            "In network and scenario files. `[policy]` has `name`, the policy; `[policy.NAME]` has its settings. "
            "`padres-fast` and `naive` take those of `[policy.padres]` too, and `pop` and all of GRAPE those of "
            "`[policy.relocation]`; a table of their own counts more.",
            [(f"[policy.{table}]", kind) for table, kind in policy_tables().items()],
        ),
        (
            'Scenarios of the kind "messages"',
            '`trimtab sim run FILE`. `base = "NAME"` takes all that a file does not say from a bundled scenario or '
            "from a file beside it, and `network_file` brokers, links, `[network]` and `[policy]` from a network file. "
            "`[grid]` has lists of values for keys, of which every combination is run; so in all kinds.",
            [("At the top", Scenario), *tables, *faults],
        ),
        ('Scenarios of the kind "relocation"', "Publishers that move.", [("At the top", RelocationScenario)]),
        ('Scenarios of the kind "replication"', "A broker that fails.", [("At the top", ReplicationScenario)]),
        (
            'Scenarios of the kind "coordination"',
            "A city and a coordination server. Its `[policy]` names what the server does: none, ldm, sdm, gsh, "
            "multistage or groups; `[policy.multistage]` has their thresholds.",
            [("At the top", CoordinationScenario), *city],
        ),
        (
            "Studies",
            '`trimtab sim run FILE`, with `kind = "study"`.',
            [("At the top", Study), ("[[figure]]", FigurePart)],
        ),
        (
            "Studies and claims of the laboratory",
            "`trimtab lab run FILE` and `trimtab lab report DIR --claims FILE`.",
            [
                ("A study, at the top", LabStudy),
                ("[[runs]]", RunsPart),
                ("Claims, at the top", Claims),
                ("[[claim]]", Claim),
                ("[[figure]] of claims", FigureWanted),
            ],
        ),
        (
            "Client options",
            "What a client session is made with; `Client.connect` takes some of them.",
            [("ClientConfig", ClientConfig)],
        ),
    ]


def _parts_of(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Any]]]:
    """The tables below a class, those of lists in double brackets."""
    for field in msgspec.structs.fields(kind):
        hint = get_type_hints(kind)[field.name]
        found = [each for each in (hint, *get_args(hint)) if inspect.isclass(each) and issubclass(each, msgspec.Struct)]
        if found and found[0].__name__ not in ("PolicyChoice",) and not found[0].__struct_config__.tag:
            name = f"{prefix}{field.encode_name}"
            yield (f"[{name}]" if get_origin(hint) is list else name), found[0]


def _members(union: Any) -> list[type[Any]]:
    """The classes of a union, whose members may be unions."""
    return [each for arg in get_args(union) for each in (_members(arg) if get_args(arg) else [arg])]


def rows_of(kind: type[Any]) -> list[list[str]]:
    """Of each key its name, type, default, unit and meaning."""
    said, hints = meanings(kind), get_type_hints(kind)
    rows = []
    for field in msgspec.structs.fields(kind):
        default = field.default
        if default is msgspec.NODEFAULT:
            default = msgspec.NODEFAULT if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        unit = next((unit for end, unit in _UNITS if field.name.endswith(end)), "")
        meaning = " ".join(said.get(field.name, "").split()).replace("|", "\\|").replace("<", "&lt;")
        rows.append(
            [f"`{field.encode_name}`", _type_in_words(hints[field.name]), _default_in_words(default), unit, meaning]
        )
    return rows


def meanings(kind: type[Any]) -> dict[str, str]:
    """What stands under each field of a class and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not hasattr(each, "__struct_fields__") or each.__module__.startswith("msgspec"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, after in itertools.pairwise([*body.body, ast.Pass()]):
            if not isinstance(after, ast.Expr) or not isinstance(after.value, ast.Constant):
                continue
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = str(after.value.value)
    return found


def _type_in_words(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in args)
    if origin in (list, tuple, dict):
        inner = list(dict.fromkeys(_type_in_words(each) for each in args if each is not ...))
        return "table" if origin is dict else f"list of {' and '.join(inner)}"
    if args and origin is Annotated:
        return _type_in_words(args[0])
    if args:
        return " or ".join(dict.fromkeys(_type_in_words(each) for each in args if each is not type(None)))
    name = getattr(hint, "__name__", str(hint))
    return _TYPES.get(name, "text" if name == "Address" else "table")


def _default_in_words(value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return "needed"
    if value is None or value in ([], (), {}, ""):
        return ""
    if isinstance(value, msgspec.Struct):
        return f"`{value.name}`" if hasattr(value, "name") else ""
    shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{shown}`"


def _first_line(kind: type[Any]) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0].replace("<", "&lt;")
