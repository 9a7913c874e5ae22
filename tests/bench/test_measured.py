"""Every command of bench/ runs from its beginning to a chart in the page, with tiny inputs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import report
from bench.result import read
from tests.support.processes import Process, Processes

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(900)]

OURS, LOOP = ("--system", "logship"), ("--system", "nats-py")  # Spark's start is what takes time
WORDS = {
    "drain": (*OURS, "--megabytes", "2", "--system", "cp"),
    "steady": (*LOOP, "--rate", "200", "--seconds", "1"),
    "idle": (*OURS, "--files", "2", "--partitions", "2", "--seconds", "0.2", "--settle", "0.2"),
    "agents": (*LOOP, *("--agents", "2", "--rate", "5", "--seconds", "1", "--settle", "1")),
    "line_length": (*OURS, "--bytes", "50", "--megabytes", "1", "--system", "cp"),
    "restart": (*OURS, "--rate", "100"),
    "wan": (*LOOP, "--megabytes", "1", "--milliseconds", "50"),
    "catchup": (*LOOP, "--megabytes", "2", "--rate", "500"),
    "partitions": (*OURS, "--partitions", "2", "--megabytes", "2"),
    "replay": (*OURS, "--megabytes", "2"),
    "table": (*OURS, "--megabytes", "2", "--hosts", "0"),
    "source": (*OURS, "--megabytes", "2"),
    "soak": (*LOOP, "--rate", "500", "--minutes", "0.05"),
    "fleet": (*OURS, *("--hosts", "5", "--rate", "5", "--streams", "2", "--settle", "1")),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def commands(
    results: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Process]]:
    """Start the commands side by side."""
    with Processes(tmp_path_factory.mktemp("measured")) as programs:
        yield {
            name: programs.start(
                name,
                [
                    *(sys.executable, "-m", f"bench.{name}", "--runs", "1"),
                    *(*arguments, "--results", results),
                ],
            )
            for name, arguments in WORDS.items()
        }


@pytest.mark.parametrize("name", WORDS)
def test_a_command_measures_what_it_is_for(
    commands: dict[str, Process], results: Path, name: str
) -> None:
    command = commands[name]

    if command.wait(600) and name == "wan":
        assert command.last_output().startswith("cannot make a link")
        return

    assert command.wait(0) == 0, command.last_output()
    (record,) = (one for one in read(results) if one.command == name)
    assert record.results
    for result in record.results:
        assert not result.void, (result.void, command.last_output())
        assert all(value >= 0 for value in result.runs[0].figures.values())


def test_what_was_measured_is_drawn_and_reported(
    commands: dict[str, Process], results: Path, tmp_path: Path
) -> None:
    for name in ("drain", "steady"):
        commands[name].wait(600)
    readme, page = tmp_path / "README.md", tmp_path / "benchmarks.md"
    for path in (readme, page):
        path.write_text(f"a\n{report.BEGIN}\n{report.END}\n")

    arguments = ["--results", str(results), "--readme", str(readme), "--page", str(page)]
    told = CliRunner().invoke(report.main, arguments)

    assert told.exit_code == 0, told.output
    assert (results / "drain.png").read_bytes().startswith(b"\x89PNG")
    assert "| 200 lines/s, nats-py" in page.read_text()
