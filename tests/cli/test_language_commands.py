"""The commands match, relate and cover, on files, arguments and standard input."""

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner, Result

from trimtab.cli.main import app
from trimtab.language import Filter, Publication
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.ranges import RangesWorkload
from trimtab.simulation.workloads.stock import StockWorkload

FILTERS = """\
# the thesis's example, and one in the other notation
[class,eq,'STOCK']
[class,eq,'STOCK'],[symbol,eq,'YHOO']

class = 'STOCK' AND volume > 1000
[class,eq,'SPORTS']
symbol IN ('YHOO', 'IBM') OR class = 'SPORTS'
"""
PUBLICATIONS = """\
[class,'STOCK'],[symbol,'YHOO'],[volume,1000]

class = 'SPORTS', type = 'RACING'
# nobody wants this one
[class,'NEWS']
{"class": "STOCK", "symbol": "IBM", "volume": 1001}
"""


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def filters(tmp_path: Path) -> str:
    path = tmp_path / "filters.txt"
    path.write_text(FILTERS, encoding="utf-8")
    return str(path)


@pytest.fixture
def publications(tmp_path: Path) -> str:
    path = tmp_path / "publications.txt"
    path.write_text(PUBLICATIONS, encoding="utf-8")
    return str(path)


def test_match_lists_the_matching_lines_of_each_publication(filters: str, publications: str) -> None:
    result = run("match", "--filters", filters, "--publications", publications, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == [[2, 3, 7], [6, 7], [], [2, 5, 7]]


def test_match_names_publications_by_their_lines_for_people(filters: str, publications: str) -> None:
    result = run("match", "--filters", filters, "--publications", publications)
    assert result.stdout.splitlines() == [
        "publication 1: matches filters 2, 3, 7",
        "publication 3: matches filters 6, 7",
        "publication 5: matches no filter",
        "publication 6: matches filters 2, 5, 7",
    ]


def test_match_reads_either_file_from_standard_input(filters: str, publications: str) -> None:
    expected = run("match", "--filters", filters, "--publications", publications, "--json").stdout
    assert run("match", "--filters", "-", "--publications", publications, "--json", stdin=FILTERS).stdout == expected
    assert run("match", "--filters", filters, "--publications", "-", "--json", stdin=PUBLICATIONS).stdout == expected


def test_match_cannot_read_both_from_standard_input() -> None:
    result = run("match", "--filters", "-", "--publications", "-", stdin="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "only one of --filters and --publications" in result.stderr


def test_match_without_filters_or_publications_finds_nothing(tmp_path: Path, publications: str) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("", encoding="utf-8")
    assert run("match", "--filters", str(empty), "--publications", publications, "--json").stdout == "[[],[],[],[]]\n"
    assert run("match", "--filters", str(empty), "--publications", str(empty), "--json").stdout == "[]\n"


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path: Path, publications: str) -> None:
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbf" + FILTERS.replace("\n", "\r\n").encode())
    result = run("match", "--filters", str(path), "--publications", publications, "--json")
    assert json.loads(result.stdout) == [[2, 3, 7], [6, 7], [], [2, 5, 7]]


@pytest.mark.parametrize("seed", [1, 2])
def test_match_agrees_with_brute_force_on_workloads(tmp_path: Path, seed: int) -> None:
    stock = StockWorkload(generate_quotes(Random(seed), days_count=20), Random(seed))
    ranges = RangesWorkload(Random(seed), match_ratio=0.02)
    all_filters = [*stock.subscriptions(150), *ranges.subscriptions(150)]
    all_publications = [*stock.publications(40), *ranges.publications(40)]
    filters, publications = tmp_path / "filters.txt", tmp_path / "publications.txt"
    filters.write_text("\n".join(map(str, all_filters)), encoding="utf-8")
    publications.write_text("\n".join(map(str, all_publications)), encoding="utf-8")
    result = run("match", "--filters", str(filters), "--publications", str(publications), "--json")
    expected = [[n for n, f in enumerate(all_filters, 1) if f.matches(p)] for p in all_publications]
    assert any(expected) and json.loads(result.stdout) == expected


@pytest.mark.parametrize("option", ["--filters", "--publications"])
def test_a_line_that_does_not_parse_is_named_with_file_line_and_column(
    tmp_path: Path, filters: str, publications: str, option: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("# comment\n\n  [class,,'STOCK']\n", encoding="utf-8")
    files = {"--filters": filters, "--publications": publications, option: str(path)}
    result = run("match", *(part for pair in files.items() for part in pair), "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    first, text, caret = result.stderr.splitlines()
    place, _, column = first.removesuffix(": " + first.split(": ", 1)[1]).rpartition(":")
    assert place == f"{path}:3"
    assert text == "  [class,,'STOCK']"
    assert caret.index("^") == int(column) - 1
    assert int(column) > 8


def test_a_mistake_in_standard_input_is_named(filters: str) -> None:
    result = run("match", "--filters", filters, "--publications", "-", stdin="[a,1\n")
    assert result.exit_code == 2
    assert result.stderr.startswith("standard input:1:")


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (b"[a,=,1]\n[a,=,'\xff']\n", "2:7", "not valid UTF-8 (byte 0xff)"),
        ("[a,=,'ä']\n[ä,=,'é\xff".encode("latin-1"), "1:7", "not valid UTF-8 (byte 0xe4)"),
        (b"[a,=,1]\n[v,>,5],[v,<,3]\n", "2:", "contradictory filter"),
        (b"[v,=,'" + b"x" * 1_000_000 + b"']\n", "1:", "at most "),
        (b"[v,=,nan]", "1:", ""),
        (b"[v,=,99999999999999999999]", "1:", "64 bits"),
        (b"\x1b[2J", "1:1", ""),
        (b"\x00", "1:1", ""),
        (b"(" * 1_000, "1:", ""),
        (b"[[", "1:1", "not JSON"),
        (b" OR ".join(b"(a = %d OR b = %d)" % (n, n) for n in range(200)), "1:", ""),
        (b",".join(b"[a%d,=,1]" % n for n in range(10_000)), "1:", ""),
        (b"x" * 5_000_000, "1:1", "the line is longer than"),
    ],
)
@pytest.mark.parametrize("command", [("cover",), ("match", "--publications", "/dev/null")])
def test_bad_filters_are_refused_without_a_traceback(
    tmp_path: Path, content: bytes, place: str, reason: str, command: tuple[str, ...]
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    result = run(*command, "--filters", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{path}:{place}")
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 2_000
    assert not any(char < " " and char != "\n" for char in result.stderr)


@pytest.mark.parametrize("command", ["match", "cover"])
def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path, publications: str, command: str) -> None:
    more = ["--publications", publications] if command == "match" else []
    for path, reason in ((tmp_path / "missing.txt", "No such file"), (tmp_path, "directory")):
        result = run(command, "--filters", str(path), *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{path}: cannot be read: ") and reason in result.stderr


@pytest.mark.parametrize(
    ("first", "second", "relation"),
    [
        ("[class,eq,'STOCK']", "class = 'STOCK'", "equal"),
        ("[volume,>,5]", "[volume,>,10]", "covers"),
        ("[volume,>,10]", "[volume,>,5]", "covered"),
        ("[volume,>,10]", "[volume,<,15]", "intersects"),
        ("[volume,>,10]", "[volume,<,5]", "disjoint"),
        ("v < 5 OR v >= 5", "[v,isPresent,0]", "equal"),
        ("*", "[v,=,1]", "covers"),
    ],
)
def test_relate_tells_how_the_first_filter_lies_to_the_second(first: str, second: str, relation: str) -> None:
    result = run("relate", first, second, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"relation": relation})
    sentence = run("relate", first, second).stdout
    assert {"intersects": "intersect"}.get(relation, relation) in sentence


def test_relate_points_at_a_mistake_in_its_arguments() -> None:
    result = run("relate", "[a,=,1]", "[volume,>>,5]")
    assert (result.exit_code, result.stdout) == (2, "")
    first, text, caret = result.stderr.splitlines()
    assert first.startswith("FILTER 2, column 10: ")
    assert (text, caret) == ("[volume,>>,5]", " " * 9 + "^")


MANY_ALTERNATIVES = [
    " AND ".join(f"(a{n} < {low + 2} OR a{n} > {low})" for n in range(8)) for low in (2, 3)
]  # 256 filters each; every one overlaps all of the other text


def test_relate_refuses_alternatives_that_are_too_many_to_compare() -> None:
    result = run("relate", *MANY_ALTERNATIVES)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("the two texts have too many alternatives to be compared exactly")


def test_cover_names_two_lines_whose_alternatives_are_too_many_to_compare() -> None:
    result = run("cover", "--filters", "-", stdin="\n".join(["[b,=,1]", *MANY_ALTERNATIVES]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("standard input:3:1: against line 2: the two texts have too many alternatives")


def test_cover_prints_the_covering_set_of_the_thesis(tmp_path: Path) -> None:
    path = tmp_path / "filters.txt"
    path.write_text(
        "[class,eq,'STOCK']\n[class,eq,'STOCK'],[symbol,eq,'YHOO']\n[class,eq,'STOCK'],[volume,>,1000]\n"
        "[class,eq,'SPORTS']\n[class,eq,'SPORTS'],[type,eq,'RACING']\n",
        encoding="utf-8",
    )
    assert run("cover", "--filters", str(path), "--json").stdout == "[1,4]\n"
    assert run("cover", "--filters", str(path)).stdout == "1: [class,eq,'STOCK']\n4: [class,eq,'SPORTS']\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["[a,=,1]", "a = 1", "[a,>=,1],[a,<=,1]"], [1]),
        (["[a,=,1]", "a IN (1, 2)", "[a,=,2]"], [2]),
        (["a IN (1, 2)", "a = 2 OR a = 1", "[a,=,3]"], [1, 3]),
        (["[v,isPresent,0]", "v < 5 OR v >= 5"], [1]),
        (["v < 5 OR v >= 5", "[v,isPresent,0]", "[v,=,1]"], [1]),
        (["[a,=,1]", "# [a,isPresent,0]", "", "[b,=,1]"], [1, 4]),
        (["[a,<,5]", "[a,>,3]", "a < 4 OR a > 2"], [3]),
        (["a = 1 OR b = 1", "a = 1 OR b = 1 OR c = 1", "*"], [3]),
        ([], []),
    ],
)
def test_cover_compares_lines_with_alternatives_as_unions(
    tmp_path: Path, lines: list[str], expected: list[int]
) -> None:
    result = run("cover", "--filters", "-", "--json", stdin="\n".join(lines))
    assert (result.exit_code, json.loads(result.stdout)) == (0, expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_cover_agrees_with_brute_force_on_a_workload(tmp_path: Path, seed: int) -> None:
    stock = StockWorkload(generate_quotes(Random(seed), days_count=10), Random(seed), symbols_count=5)
    filters = [
        filter for filter in stock.subscriptions(150) if "symbol" in filter.constraints or Random(seed).random() < 0.1
    ]
    result = run("cover", "--filters", "-", "--json", stdin="\n".join(map(str, filters)))

    def is_covered(position: int) -> bool:
        mine = filters[position]
        return any(
            other.covers(mine) and (not mine.covers(other) or earlier < position)
            for earlier, other in enumerate(filters)
            if earlier != position
        )

    expected = [position + 1 for position in range(len(filters)) if not is_covered(position)]
    assert json.loads(result.stdout) == expected


def test_the_examples_in_the_help_texts_parse() -> None:
    assert Filter.parse("class = 'STOCK' AND volume > 300000").matches(
        Publication.parse("[class,'STOCK'],[volume,300001]")
    )
    for command in ("match", "relate", "cover", "tour"):
        help_text = run(command, "--help").stdout
        assert "Example:" in help_text and f"trimtab {command}" in help_text
