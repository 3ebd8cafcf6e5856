"""The pipeline from end to end, in a copy of the project with a small matrix: run, rerun, change, break, clone."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from small_project import CHANGED, RUNS, call, change, commit, copy_project, environment, git, snakemake


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project in a folder with a space in its name, as a git repository."""
    folder = tmp_path_factory.mktemp("my project")
    copy_project(folder)
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def plan(folder, *arguments):
    """The jobs of a dry run, targets left out."""
    log = snakemake(folder, "--dry-run", *arguments)
    return set(re.findall(r"^Job \d+: (.+)$", log, flags=re.MULTILINE)) - {"Done"}


def times(folder, name="checkpoint.pt"):
    return {run: (folder / run / name).stat().st_mtime_ns for run in RUNS}


def test_the_pipeline(copy, tmp_path):
    """One story, since every chapter needs the runs of the first."""
    everything_is_made_and_then_there_is_nothing_to_do(copy)
    dvc_takes_over_what_snakemake_made_and_a_clone_has_it(copy, tmp_path)
    a_changed_learning_rate_touches_its_runs_only(copy)
    a_changed_kernel_touches_every_run(copy)
    a_selection_needs_no_other_runs(copy)
    a_damaged_file_is_named_and_made_again(copy)
    a_killed_run_goes_on(copy)
    a_failed_run_stops_no_other_and_is_marked(copy)


def everything_is_made_and_then_there_is_nothing_to_do(copy):
    snakemake(copy)
    for run in RUNS:
        decoders = json.loads((copy / run / "metrics.json").read_text())["decoders"]
        assert set(decoders) == ({"mbr"} if run in CHANGED else {"cyk", "mbr"})
    metrics = json.loads((copy / "results/toy/metrics.json").read_text())
    assert metrics["nblpcfg"]["mbr"]["n"] == 2
    assert len((copy / "results/toy/history.csv").read_text().splitlines()) == 1 + 4 * 2
    assert (copy / "paper_tables/toy/main_result.tex").exists()
    assert "Nothing to be done" in snakemake(copy, "--dry-run")
    assert "4 of 4 runs are done" in call(copy, "nbl", "runs")


def dvc_takes_over_what_snakemake_made_and_a_clone_has_it(copy, tmp_path):
    before = times(copy)
    call(copy, "dvc", "repro")
    assert times(copy) == before
    assert "up to date" in call(copy, "dvc", "status")
    shown = json.loads(call(copy, "dvc", "metrics", "show", "--json"))
    assert shown[""]["data"]["results/toy/metrics.json"]["data"]["nblpcfg"]["mbr"]["n"] == 2
    commit(copy)

    call(copy, "dvc", "remote", "add", "-d", "store", str(tmp_path / "store"))
    commit(copy)
    call(copy, "dvc", "push")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(copy), str(clone))
    call(clone, "dvc", "pull")
    assert "Nothing to be done" in snakemake(clone, "--dry-run")

    # In the clone DVC goes first: one binding's learning rate changes.
    before = times(clone)
    change(clone, lambda toy: toy["experiments"]["nblpcfg-binding=D-B"].update(lr=0.02))
    stale = set(re.findall(r"^(\S+):$", call(clone, "dvc", "status"), flags=re.MULTILINE))
    assert stale == {"train@nblpcfg-binding=D-B"}
    call(clone, "dvc", "repro")
    assert {run for run in RUNS if times(clone)[run] != before[run]} == set(CHANGED)
    assert "Nothing to be done" in snakemake(clone, "--dry-run")


def a_changed_learning_rate_touches_its_runs_only(copy):
    text = (copy / "params.yaml").read_text()
    change(copy, lambda toy: toy["experiments"]["nblpcfg-binding=D-B"].update(lr=0.02))
    try:
        found = plan(copy)
    finally:
        (copy / "params.yaml").write_text(text)
    verbs = ("Train", "Parse and score")
    assert {job for job in found if job.startswith(verbs)} == {
        f"{verb} nblpcfg-binding=D-B, seed {seed}" for verb in verbs for seed in (0, 1)
    }
    assert not any("speed" in job or "Prepare" in job for job in found)


def a_changed_kernel_touches_every_run(copy):
    header = copy / "nbl/native/dense.h"
    text = header.read_text()
    header.write_text(text + "// changed\n")
    try:
        found = plan(copy)
    finally:
        header.write_text(text)
    assert sum(job.startswith("Train") for job in found) == len(RUNS)


def a_selection_needs_no_other_runs(copy):
    found = plan(copy, "--config", "tables=[main]", "seeds=[0,2]")
    assert {job for job in found if job.startswith("Train")} == {"Train nblpcfg, seed 2"}


def a_damaged_file_is_named_and_made_again(copy):
    checkpoint = copy / RUNS[1] / "checkpoint.pt"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[:1000])
    log = snakemake(copy, target="runs")
    assert f"{RUNS[1]}/checkpoint.pt is damaged" in log
    assert checkpoint.read_bytes() == whole


def a_killed_run_goes_on(copy):
    text = (copy / "params.yaml").read_text()
    change(copy, lambda toy: toy["experiments"]["nblpcfg-binding=D-B"].update(epochs=20, patience=20))
    command = ["snakemake", "--cores", "1", "--config", "seeds=[0]", "--", "runs"]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    history = copy / CHANGED[0] / "history.csv"
    resume = history.with_name("resume.pt")
    end = time.monotonic() + 120
    while not (resume.exists() and history.exists() and len(history.read_text().splitlines()) > 3):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert resume.exists()
    call(copy, "snakemake", "--unlock")
    snakemake(copy, "--config", "seeds=[0]", target="runs")
    assert not resume.exists()
    log = (copy / "logs/toy/nblpcfg-binding=D-B/seed0.train.log").read_text()
    epochs = re.findall(r"^epoch (\d+):", log, flags=re.MULTILINE)
    assert epochs[-1] == "20"
    assert "1" not in epochs
    (copy / "params.yaml").write_text(text)


def a_failed_run_stops_no_other_and_is_marked(copy):
    text = (copy / "params.yaml").read_text()
    change(copy, lambda toy: toy["experiments"]["nblpcfg-binding=D-B"].update(lr=1e30))
    try:
        log = snakemake(copy, fails=True)
        assert re.search("(loss|norm) is (nan|inf)", log)
        snakemake(copy, "--config", "partial=true", target="report_all")
        metrics = json.loads((copy / "results/toy/metrics.json").read_text())
        assert set(metrics) == {"nblpcfg"}
        assert "2 of 4 runs are done" in call(copy, "nbl", "runs")
    finally:
        (copy / "params.yaml").write_text(text)


def test_wrong_parameters_are_all_refused_before_anything_runs(copy):
    log = snakemake(copy, "--config", "corpus=ptb", "max_words=0", "seed=1", fails=True)
    for message in ("'ptb' is not one of", "max_words: 0 is less than the minimum", "'seed' was unexpected"):
        assert message in log
