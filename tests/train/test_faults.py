"""What breaks in days of running: nothing is lost, a sentence says what to do, and the next call goes on.

A training that is killed or finds the disk full is in test_resume.py; here it is the pipeline around it.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_project import call, change, copy_project, environment, snakemake

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

ONE_RUN = ("--config", "seeds=[0]", "experiments=[nblpcfg]")
RUN = Path("results/toy/runs/nblpcfg/seed0")
TRAIN_LOG = Path("logs/toy/nblpcfg/seed0.train.log")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with one finished run."""
    folder = tmp_path_factory.mktemp("made")
    copy_project(folder)
    snakemake(folder, *ONE_RUN, target="runs")
    return folder


@pytest.fixture
def project(made, tmp_path):
    """A copy of it, to break."""
    return shutil.copytree(made, tmp_path / "project")


@pytest.fixture
def start(project):
    """Starts a tool as the leader of a process group, which ends with the test; what it prints is in its `log`."""
    processes = []

    def start(*command):
        log = project / f"{command[0]}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=project, env=environment(project), stdout=file, stderr=file, start_new_session=True
            )
        process.log = log
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition, process=None, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.log.read_text()
        time.sleep(0.02)


def epochs(project):
    """Those that the unfinished run has done."""
    history = project / RUN / "history.csv"
    unfinished = (project / RUN / "resume.pt").exists() and history.exists()
    return len(history.read_text().splitlines()) - 1 if unfinished else 0


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def trainings(project):
    """The processes that train in the project."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"train" in words[:3] and (entry / "cwd").readlink() == project:
                found.append(int(entry.name))
        except OSError:  # it has gone
            continue
    return found


def contents(project):
    """The run's files but for the clock's share in them."""
    files = {path.name: path.read_bytes() for path in (project / RUN).iterdir() if path.suffix != ".sha256"}
    scores = [line.split(b",")[:7] for line in files.pop("history.csv").splitlines()]
    environment_free = re.sub(rb"(?s)\nenvironments:.*", b"", files.pop("config.yaml"))
    metrics = json.loads(files.pop("metrics.json"))
    return files, scores, environment_free, {name: metrics[name] for name in metrics if "seconds" not in name}


def longer(toy):
    toy["training"] |= {"epochs": 12, "patience": 12}


@pytest.mark.parametrize("orphan_ends", [True, False])
def test_snakemake_killed_while_its_training_goes_on(project, start, orphan_ends):
    change(project, longer)
    first = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    wait_for(lambda: epochs(project) >= 2, first)
    (orphan,) = trainings(project)
    os.kill(orphan, signal.SIGSTOP)
    first.kill()
    first.wait()
    assert is_running(orphan)
    assert "--unlock" in snakemake(project, *ONE_RUN, target="runs", fails=True)
    call(project, "snakemake", "--unlock")
    second = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    log = project / TRAIN_LOG
    waiting = f"another process is at work in {RUN}: waiting"
    wait_for(lambda: log.exists() and waiting in log.read_text(), second)
    os.kill(orphan, signal.SIGCONT if orphan_ends else signal.SIGKILL)
    assert second.wait(120) == 0, second.log.read_text()
    done = re.findall(r"^epoch (\d+):", log.read_text(), flags=re.MULTILINE)
    assert done[-1:] == ([] if orphan_ends else ["12"])
    assert "1" not in done
    assert len(contents(project)[1]) == 1 + 12


def test_snakemake_killed_and_its_training_ended_before_the_next(project, start):
    change(project, longer)
    first = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    wait_for(lambda: epochs(project) >= 2, first)
    first.kill()
    first.wait()
    wait_for(lambda: not trainings(project) and (project / RUN / "train.sha256").exists())
    call(project, "snakemake", "--unlock")
    snakemake(project, *ONE_RUN, target="runs")
    assert not re.search(r"^epoch \d+:", (project / TRAIN_LOG).read_text(), flags=re.MULTILINE)
    assert len(contents(project)[1]) == 1 + 12


def test_dvc_killed_while_snakemake_goes_on(project, start):
    call(project, "git", "init", "-q")
    change(project, longer)
    change_seeds = project / "params.yaml"
    change_seeds.write_text(re.sub(r"seeds:\n- 0\n- 1\n", "seeds:\n- 0\n", change_seeds.read_text()))
    dvc = start("dvc", "repro", "train@nblpcfg")
    wait_for(lambda: epochs(project) >= 2, dvc)
    (training,) = trainings(project)
    dvc.kill()
    dvc.wait()
    assert is_running(training)
    os.kill(training, signal.SIGSTOP)
    assert "--unlock" in call(project, "dvc", "repro", "train@nblpcfg", fails=True)  # Snakemake is still at work
    os.kill(training, signal.SIGCONT)
    wait_for(lambda: not Path(project, ".snakemake/locks").exists() or not any(project.glob(".snakemake/locks/*")))
    before = (project / RUN / "checkpoint.pt").stat().st_mtime_ns
    call(project, "dvc", "repro", "train@nblpcfg")
    assert (project / RUN / "checkpoint.pt").stat().st_mtime_ns == before
    assert "up to date" in call(project, "dvc", "status", "train@nblpcfg")


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c(project, start, presses):
    change(project, longer)
    process = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    wait_for(lambda: epochs(project) >= 2, process)
    for _ in range(presses):  # as a terminal does: to every process of the group
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    assert process.wait(60) != 0
    wait_for(lambda: not trainings(project))
    snakemake(project, *ONE_RUN, target="runs")
    done = re.findall(r"^epoch (\d+):", (project / TRAIN_LOG).read_text(), flags=re.MULTILINE)
    assert done[-1] == "12"
    assert int(done[0]) > 2


def test_two_pipelines_at_once(project, start):
    change(project, longer)
    first = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    wait_for(lambda: epochs(project) >= 1, first)
    (training,) = trainings(project)
    os.kill(training, signal.SIGSTOP)
    assert "cannot be locked" in snakemake(project, *ONE_RUN, target="runs", fails=True)
    os.kill(training, signal.SIGCONT)
    assert first.wait(120) == 0
    assert "Nothing to be done" in snakemake(project, "--dry-run", *ONE_RUN, target="runs")


@pytest.mark.parametrize("name", ["predictions.mbr.jsonl", "config.yaml"])
def test_truncated_file_of_a_run(project, name):
    before = contents(project)
    path = project / RUN / name
    path.write_bytes(path.read_bytes()[:-50])
    log = snakemake(project, *ONE_RUN, target="runs")
    assert f"{RUN}/{name} is damaged: it will be made again" in log
    assert ("Train" in log) == (name == "config.yaml")
    path.with_name(f"{name}.damaged").unlink()
    assert contents(project) == before


def test_truncated_corpus(project):
    before = contents(project)
    path = project / "results/toy/corpus/train.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    log = snakemake(project, *ONE_RUN, target="runs", fails=True)
    command = re.search(r"results/toy/corpus/train\.jsonl: missing or damaged.*, call: nbl (.*)", log)[1]
    assert contents(project) == before
    call(project, "nbl", *command.split())
    assert path.read_bytes() == whole
    assert "Nothing to be done" in snakemake(project, "--dry-run", *ONE_RUN, target="runs")


def test_vanished_source(project):
    text = project / "news of today.txt"
    text.write_text("the dog sees cats\ncats hear the dog\nbirds see cats\n" * 10)

    def own(params):
        params["corpora"]["mine"] = params["corpora"]["toy"] | {"text": [text.name]}
        del params["corpora"]["mine"]["source"]

    change(project, own, whole=True)
    mine = ("--config", "corpus=mine", "seeds=[0]", "experiments=[nblpcfg]")
    snakemake(project, *mine, target="runs")
    text.unlink()
    assert "Nothing to be done" in snakemake(project, "--dry-run", *mine, target="runs")
    shutil.rmtree(project / "results/mine/corpus")
    assert text.name in snakemake(project, *mine, target="corpus_all", fails=True)
    assert (project / "results/mine/runs/nblpcfg/seed0/checkpoint.pt").exists()


def test_clock_that_was_wrong(project):
    """Files from the future and from the past mean nothing while their contents are the same."""
    days = {"nbl": 400, "results/toy/corpus": -3000, str(RUN): 2}
    for folder, day in days.items():
        for path in (project / folder).rglob("*"):
            os.utime(path, times=(time.time() + 86400 * day,) * 2)
    log = snakemake(project, "--dry-run", *ONE_RUN, target="runs")
    assert "nbl/rules.py is dated in the future" in log
    assert "Nothing to be done" in log
    for path in (project / RUN).glob("*.*"):
        os.utime(path, times=(time.time() + 86400,) * 2)
    (project / RUN / "metrics.json").unlink()
    snakemake(project, *ONE_RUN, target="runs")
    assert (project / RUN / "metrics.json").exists()


def test_clock_set_back_during_a_training(project, start):
    change(project, longer)
    process = start("snakemake", "--cores", "1", *ONE_RUN, "--", "runs")
    wait_for(lambda: epochs(project) >= 2, process)
    for path in (project / "results/toy/corpus").iterdir():  # as if the hour that made them came again
        os.utime(path, times=(time.time() + 3600,) * 2)
    assert process.wait(120) == 0, process.log.read_text()
    assert "Nothing to be done" in snakemake(project, "--dry-run", *ONE_RUN, target="runs")


# --- a disk of its own for the results


def mount(*arguments):
    if shutil.which("mount") is None:
        return False
    return subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True).returncode == 0


@pytest.fixture
def disk(project):
    """The project's results on a small disk."""
    kept = project / "kept"
    results = project / "results"
    results.rename(kept)
    results.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=20M", "tmpfs", results):
        pytest.skip("only root can mount a disk")
    try:
        shutil.copytree(kept, results, dirs_exist_ok=True)
        yield results
    finally:
        subprocess.run(["umount", "--lazy", results], check=True)


def test_full_disk(project, disk):
    before = contents(project)
    change(project, longer)
    free = shutil.disk_usage(disk).free
    filler = disk / "filler"
    filler.write_bytes(bytes(free - 8192))
    log = snakemake(project, *ONE_RUN, target="runs", fails=True)
    assert "No space left on device" in log
    assert "Traceback" not in log
    filler.unlink()
    snakemake(project, *ONE_RUN, target="runs")
    assert len(contents(project)[1]) > len(before[1])


def test_read_only_results(project, disk):
    before = contents(project)
    change(project, longer)
    assert mount("-o", "remount,ro", disk)
    log = snakemake(project, *ONE_RUN, target="runs", fails=True)
    assert re.search("Read-only file system|Write-protected output", log)
    assert mount("-o", "remount,rw", disk)
    assert contents(project) == before
    snakemake(project, *ONE_RUN, target="runs")
    assert len(contents(project)[1]) > len(before[1])
