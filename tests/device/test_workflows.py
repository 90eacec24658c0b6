"""The workflows of .github: they are well formed, and the sessions, options and files that they name are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.target import FAMILIES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; `nox -s tests` installs it")

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SESSIONS = set(re.findall(r"^@nox\.session\n(?:@.*\n)*def (\w+)", (ROOT / "noxfile.py").read_text(), re.M))
DEVICE = "./.github/workflows/device.yml"


def load(path):
    """A workflow. YAML 1.1 reads its `on` as a truth value."""
    found = yaml.safe_load(path.read_text())
    found["on"] = found.pop(True)
    return found


WORKFLOWS = {path.stem: load(path) for path in FILES}
#: (workflow, job, what it gives device.yml) of every run on a device.
CALLS = [
    (name, job, made["with"])
    for name, workflow in WORKFLOWS.items()
    for job, made in workflow["jobs"].items()
    if made.get("uses") == DEVICE
]


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_well_formed(name):
    """Every job has a place to run and steps, or calls a workflow that is there; what it needs are jobs of it; it may only read."""
    workflow = WORKFLOWS[name]
    assert workflow["name"] and workflow["on"] and workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
        else:
            assert job["runs-on"] and all(("run" in step) != ("uses" in step) for step in job["steps"]) and job["steps"]
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= workflow["jobs"].keys()


def test_what_runs_is_there():
    """Sessions, scripts, and iron's own commands by their names."""
    text = "\n".join(path.read_text() for path in FILES)
    assert set(re.findall(r"nox -s (\w+)", text)) <= SESSIONS
    scripts = {line.split()[0] for workflow in WORKFLOWS.values() for step in steps(workflow) for line in step.get("run", "").splitlines()}
    assert ".ci/run" in scripts and all((ROOT / script).is_file() for script in scripts if script.startswith(".ci/"))
    assert all((ROOT / path).exists() for path in re.findall(r"\./(iron_\w+)", text))


@pytest.mark.parametrize("script", [step["run"] for workflow in WORKFLOWS.values() for step in steps(workflow) if "run" in step])
def test_a_script_is_one_that_a_shell_reads(script):
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_both_families_run_small_on_a_push_and_all_at_night():
    """And examples; each by the label and the session of its family, which device.yml takes."""
    called = {name: {given["family"] for other, _, given in CALLS if other == name} for name in WORKFLOWS}
    for name in ("npu-small", "npu-extensive", "npu-examples"):
        assert called[name] == set(FAMILIES) <= SESSIONS
    assert "push" in WORKFLOWS["npu-small"]["on"]
    assert all("schedule" in WORKFLOWS[name]["on"] for name in ("npu-extensive", "npu-examples"))
    takes = WORKFLOWS["device"]["on"]["workflow_call"]["inputs"]
    assert all(given.keys() <= takes.keys() for _, _, given in CALLS)
    (job,) = WORKFLOWS["device"]["jobs"].values()
    assert "${{ inputs.family }}" in job["runs-on"] and "inputs.family" in job["concurrency"]["group"]


def test_no_pull_request_runs_on_a_machine_of_ours():
    """What a fork sends would."""
    for name, workflow in WORKFLOWS.items():
        if any(call[0] == name for call in CALLS) or any("self-hosted" in str(job.get("runs-on")) for job in workflow["jobs"].values()):
            assert not any("pull_request" in event for event in workflow["on"]), name


@pytest.mark.slow
@pytest.mark.parametrize(("name", "job", "given"), [call for call in CALLS if "options" in call[2]], ids=lambda part: str(part)[:20])
def test_options_of_a_run_choose_tests(name, job, given):
    """pytest takes them, and they leave something to run."""
    words = shlex.split(given["options"])
    paths = [] if any(Path(ROOT / word.partition("::")[0]).exists() for word in words) else ["tests/device"]
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", given["family"], *words, *paths]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert f"[{given['family']}" in done.stdout or f"-{given['family']}]" in done.stdout
    assert ("full_llama" in done.stdout) == ("examples" in name)
