"""The workflows run commands that exist, for the versions that the package promises."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
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


def test_nothing_is_published_without_the_tests_and_no_job_has_more_rights_than_it_needs() -> None:
    jobs = WORKFLOWS["release.yml"]["jobs"]

    needs = {name: job.get("needs") for name, job in jobs.items()}
    assert needs == {"test": None, "build": "test", "publish": "build", "images": "build"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert all(one["permissions"] == {"contents": "read"} for one in WORKFLOWS.values())


def test_an_image_of_each_target_is_pushed_and_attested_by_its_digest() -> None:
    job = WORKFLOWS["release.yml"]["jobs"]["images"]
    containerfile = (ROOT / "deploy/Containerfile").read_text("utf-8")
    targets = set(re.findall(r"^FROM program AS (\w+)", containerfile, re.M))

    assert set(job["strategy"]["matrix"]["program"]) == targets
    assert job["steps"][-1]["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"


def test_the_version_is_in_one_file() -> None:
    folders = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]

    assert [path for path in files if PROJECT["version"] in path.read_text("utf-8")] == []
