"""The workflows run commands that exist, for the versions that the package promises."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / ".github/workflows").glob("*.yml")
}


def commands() -> list[str]:
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    return [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]


def test_workflows_make_what_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = [name for command in commands() for name in re.findall(r"make ([a-z-]+)", command)]

    assert {"lint", "test", "dist"} <= set(targets)
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.M)] == []


def test_the_tests_run_on_every_version_of_python_that_the_package_names() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if ":: 3." in one]

    assert WORKFLOWS["test.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_the_index_comes_last_and_no_job_has_more_rights_than_it_needs() -> None:
    workflow = WORKFLOWS["release.yml"]
    jobs = workflow["jobs"]

    needs = {name: job.get("needs") for name, job in jobs.items()}
    order = (None, "tag", "test", "build", "images", "publish")
    assert needs == dict(zip(order[1:], order[:-1], strict=True))
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert all(one["permissions"] == {"contents": "read"} for one in WORKFLOWS.values())
    assert workflow["concurrency"] == "release"
    repository = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    assert jobs["tag"]["if"] == f"github.repository == '{repository}'"


def test_each_image_is_started_before_one_is_pushed_and_attested_by_its_digest() -> None:
    steps = WORKFLOWS["release.yml"]["jobs"]["images"]["steps"]
    containerfile = (ROOT / "deploy/Containerfile").read_text("utf-8")
    targets = set(re.findall(r"^FROM program AS (\w+)", containerfile, re.M))

    runs = [step["run"] for step in steps if "run" in step]
    loops = [re.search(r"for program in (.*); do", run) for run in runs]
    assert [set(found[1].split()) for found in loops if found] == [targets, targets]
    assert ["podman run" in run for run in runs] == [False, True, False]
    attested = {
        step["with"]["subject-name"]: step["with"]["subject-digest"]
        for step in steps
        if step.get("uses", "").startswith("actions/attest@")
    }
    assert attested == {
        f"${{{{ env.IMAGES }}}}/log{one}": f"${{{{ steps.push.outputs.{one} }}}}" for one in targets
    }


@pytest.mark.parametrize(
    ("tag", "changelog", "readme", "is_taken"),
    [
        ("v1.2.3", "## 1.2.3 - 2026-12-01", "Install it.", True),
        ("v1.2.4", "## 1.2.3 - 2026-12-01", "Install it.", False),
        ("v1.2.3", "## 1.2.3 - unreleased", "Install it.", False),
        ("v1.2.3", "## 1.2.3 - 2026-12-01", "Until 1.2.3 is on the index, build it.", False),
    ],
)
def test_a_tag_is_refused_unless_the_pages_have_that_version_as_released(
    tag: str, changelog: str, readme: str, is_taken: bool, tmp_path: Path
) -> None:
    (script,) = (one for one in commands() if "CHANGELOG" in one)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}\n")
    (tmp_path / "README.md").write_text(f"{readme}\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("A page.\n")
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"GITHUB_REF_NAME": tag},
        check=False,
    )

    assert (done.returncode == 0) == is_taken


def test_the_source_archive_has_all_that_the_pages_and_tests_use() -> None:
    assert "exclude" not in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]


def test_the_version_is_in_one_file() -> None:
    folders = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]

    assert [path for path in files if PROJECT["version"] in path.read_text("utf-8")] == []
