"""The README and the pages of docs/ are true: commands run, and what they name exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.settings import BrokerSettings
from nats_logship.app.configuration import load
from shipper.settings import ShipperSettings
from tests.ansible.argument_specs import variables
from tests.docs.commands import blocks, commands, find_missing, untrue_commands
from tests.docs.option_tables import PAGES, renewed
from tests.support.ports import free_port
from tests.support.processes import Processes, installed, wait_until

ROOT = Path(__file__).parents[2]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
OURS = "https://github.com/nats-logship/nats-logship"
RAW = "https://raw.githubusercontent.com/nats-logship/nats-logship/main"
ALL = pytest.mark.parametrize("page", sorted(TEXTS))


def headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as a renderer of Markdown makes them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_pages_are_short() -> None:
    lines = {page: len(text.splitlines()) for page, text in TEXTS.items()}

    assert max(lines.values()) <= 305
    assert sum(count for page, count in lines.items() if page.startswith("docs/")) <= 2600


@ALL
def test_the_prose_of_a_page_is_100_columns_wide_at_most(page: str) -> None:
    made = r"<!-- (?:made|options).*?<!-- end of|^```.*?^```|^\|.*?$|\(https:[^)]*\)"
    prose = re.sub(made, "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)

    assert [line for line in prose.splitlines() if len(line) > 100] == []


@ALL
def test_a_page_links_to_pages_and_headings_that_exist(page: str) -> None:
    missing, text = [], TEXTS[page]
    for place in (f"{OURS}/blob/main", RAW):
        text = text.replace(f"]({place}/", f"]({ROOT}/")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        if not path.exists() or (anchor and anchor not in headings(path.read_text("utf-8"))):
            missing.append((target, anchor))

    assert missing == []


def test_the_links_and_pictures_of_the_readme_work_on_the_package_index_too() -> None:
    targets = re.findall(r"\]\(([^)]*)\)", TEXTS["README.md"])

    assert len(targets) > 20
    assert [one for one in targets if not one.startswith("https://")] == []
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", TEXTS["README.md"])
    assert [one for one in pictures if one.startswith(RAW)] == pictures != []
    assert len(TEXTS["README.md"].splitlines()) <= 150


@ALL
def test_a_page_names_commands_and_options_that_exist(page: str) -> None:
    assert untrue_commands(TEXTS[page]) == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert len(commands(TEXTS["docs/operations.md"])) > 20
    for text in ("`logbroker nothing`", "\nlogshipper --nothing x\n", "`logbroker get 5 six`"):
        assert len(untrue_commands(text)) == 1
    assert untrue_commands("`logbroker partitions N` or `logbroker run --max-bytes`") == []


def pipelines(text: str) -> list[str]:
    """Return the lines of a text that pipe into the shipper."""
    joined = text.replace("\\\n", " ")
    return re.findall(r"^.*\|\s*\S*logshipper [^`|]*--file[ =]-(?!\S).*$", joined, re.MULTILINE)


def test_whoever_pipes_into_the_shipper_hears_of_a_writer_that_failed() -> None:
    folders = ("systemd", "ansible", "docs", "bench")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {str(path): path.read_text("utf-8", "replace") for path in files} | TEXTS
    found = [line for text in texts.values() for line in pipelines(text)]

    assert found
    assert [line for line in found if "-o pipefail" not in line] == []


@ALL
def test_a_page_names_make_targets_and_files_that_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", TEXTS[page], re.MULTILINE))
    folders = "tests|bench|receiver|shipper|broker|drop-ins"
    files = re.findall(rf"`((?:{folders})/[\w/.-]+)`", TEXTS[page])
    paths = {name: (ROOT / name, ROOT / "systemd" / name) for name in files}

    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
    assert [name for name, both in paths.items() if not any(map(Path.exists, both))] == []


@ALL
def test_a_page_names_playbooks_and_variables_that_exist(page: str) -> None:
    others = ["revoke", "revoke_kind", "brokers", "receivers", "shippers", "shipper", "remove_data"]
    known = variables() | {f"logship_{name}" for name in others}
    playbooks = {path.name for path in (ROOT / "ansible").glob("*.yml")}

    assert set(re.findall(r"\b(logship_\w+)", TEXTS[page])) <= known
    named = set(re.findall(r"(?<![\w./])[a-z]+[.]yml\b", TEXTS[page]))
    assert named - {"hosts.yml", "rules.yml"} <= playbooks


@pytest.mark.parametrize("page", PAGES)
def test_the_options_of_a_page_are_those_of_the_program(page: str) -> None:
    """`python -m tests.docs.option_tables` writes them."""
    text = TEXTS[f"docs/{page}.md"]

    assert "<!-- options: " in text
    assert renewed(text) == text


def examples(page: str) -> dict[str, str]:
    """Return the files of settings of a page by the names in their first lines."""
    return {text.split()[1].rstrip(":"): text for text in blocks(TEXTS[f"docs/{page}.md"], "toml")}


def test_the_settings_of_the_examples_are_settings(tmp_path: Path) -> None:
    for page, name, model in (
        ("getting-started", "shipper.toml", ShipperSettings),
        ("security", "logbroker.toml", BrokerSettings),
    ):
        (path := tmp_path / name).write_text(examples(page)[name], "utf-8")
        load(model, {}, path)


@pytest.mark.journey
@pytest.mark.nats
def test_the_three_files_of_the_page_start_a_cluster(tmp_path: Path) -> None:
    files = re.findall(r"# (b\d)\.toml\n([^#]*)", examples("broker")["b1.toml"])
    (secret := tmp_path / "secret").touch(0o600)
    secret.write_text("0123456789abcdef", "utf-8")
    moved = {"/etc/logship/secret": str(secret)}
    for name, _ in files:
        moved[f"//{name}:6222"] = f"//127.0.0.1:{free_port()}"
    brokers = []
    with Processes(tmp_path) as programs:
        for name, text in files:
            own = {
                "/var/lib/logbroker": str(tmp_path / name),
                "0.0.0.0:4222": f"127.0.0.1:{free_port()}",
                "0.0.0.0:6222": moved[f"//{name}:6222"].removeprefix("//"),
            }
            for there, here in (moved | own).items():
                text = text.replace(there, here)
            (path := tmp_path / f"{name}.toml").write_text(text, "utf-8")
            run = [installed("logbroker"), "run", "--config", path, "--http", "off"]
            brokers.append(programs.start(name, run))
        are_ready = lambda: all("ready: " in one.read_log() for one in brokers)  # noqa: E731
        wait_until("all three are ready", are_ready, 240, brokers)
        server = load(BrokerSettings, {}, path).listen
        check = [installed("logbroker"), "check", "stream", "--server", f"nats://{server}"]
        found = ""

        def is_well() -> bool:
            nonlocal found
            found = subprocess.run(check, capture_output=True, text=True, check=False).stdout
            return found.startswith("OK")

        wait_until("all replicas are there", is_well, 240, brokers, every=0.5)
        assert "3 of 3 servers hold LOGS" in found


@pytest.mark.journey
@pytest.mark.spark
@pytest.mark.parametrize(
    ("page", "received"),
    [
        ("README.md", b"hello, world\n"),
        pytest.param("docs/getting-started.md", b"first\nsecond\n", marks=pytest.mark.long),
        pytest.param("docs/broker.md", b"", marks=pytest.mark.long),
        pytest.param("docs/security.md", b"", marks=pytest.mark.long),
    ],
)
def test_the_commands_of_a_page_do_what_it_says(page: str, received: bytes, tmp_path: Path) -> None:
    scripts = [block for block in blocks(TEXTS[page], "sh") if not block.startswith("make ")]
    work = tmp_path / "work"
    work.mkdir()
    host = f"web{os.getpid()}"  # `logshipper status` shows the agents of other tests, too
    commands = "".join(map(waiting, scripts)).replace("web01", host)
    script = tmp_path / "page.sh"
    script.write_text(f"set -e\ncd {work}\n{commands}kill $(jobs -p) 2>/dev/null || :\nwait\n")

    with Processes(tmp_path) as programs:
        session = programs.start("page", ["bash", "-m", script], environment=elsewhere())
        code = session.wait(270)
        output = session.log.read_text("utf-8")

    files = b"".join(path.read_bytes() for path in work.glob("received/*.log"))
    assert (code, b"".join(sorted(files.splitlines(True)))) == (0, received), output
    assert "Traceback" not in output
    shown = "".join(blocks(TEXTS[page], "text")).replace("/tmp/try", str(work))
    shown = shown.replace("web01", host)
    assert page != "README.md" or find_missing(shown, output) == [], output


def waiting(block: str) -> str:
    """Return a block that waits, after each program left running, as long as a reader takes."""
    wait = "until logbroker status >/dev/null 2>&1; do sleep 0.1; done\n"
    return re.sub(r"^(logbroker run .* &)\n", rf"\1\n{wait}", block, flags=re.MULTILINE)


def elsewhere() -> dict[str, str]:
    """Return an environment that moves the addresses of a page's commands to free ports."""
    listen, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    servers = (f"{name}_SERVER" for name in ("LOGBROKER", "LOGSHIPPER", "LOGRECEIVER"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "LOGBROKER_LISTEN": listen, "LOGBROKER_HTTP": http}
    return own | dict.fromkeys(servers, f"nats://{listen}")
