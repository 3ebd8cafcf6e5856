"""The pipeline on a SLURM cluster of one machine, which is started here and gone afterwards: `make test-slurm`.

The cluster is Debian's (apt installs it where it is missing): munged, slurmctld and slurmd on loopback, with ports,
key, state and logs of their own in a temporary folder, so that they disturb no other. Its two GPUs are /dev/null and
/dev/zero: torch finds none there and computes on the CPU, but SLURM shares them out as it does real ones.

A small matrix runs through workflow/profiles/slurm; one training is cancelled half way; the same command goes on with
it; every result must have the bytes of a run without SLURM. Exit code 77 means that there can be no cluster here.
"""

import csv
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from small_project import CHANGED, PROJECT, RUNS, change, copy_project, environment

SKIPPED = 77
BEGAN = time.monotonic()
SECONDS = 300  # that a call of Snakemake may take
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
NAME = "nblpcfg-binding=D-B"
TRAIN, EVALUATE = f"rule_train_wildcards_{NAME}_0", f"rule_evaluate_wildcards_{NAME}_0"
TABLES = "rule_tables_collect_report"
EPOCHS = 12  # of the runs of which one is cancelled, so that there is a half way
TIMINGS = ("seconds", "sentences_per_second", "peak_memory_mb")
# There is no accounting to ask for a job's state; and jobs of seconds are asked for often.
PROFILE = ["--workflow-profile", "workflow/profiles/slurm", "--slurm-status-command", "squeue"]
PROFILE += ["--slurm-init-seconds-before-status-checks", "5"]

SLURM_CONF = """
ClusterName=nbl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# A container has no systemd and often no control groups of its own.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MinJobAge=3600
ReturnToService=2
# The node is what is said here, whatever the machine has.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=64000 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def main():
    install()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="nbl-slurm-") as name:
        scratch = Path(name)
        local, remote = scratch / "local", scratch / "my project"
        with showing_logs(scratch), cluster(scratch):
            for folder in (local, remote):
                copy_project(folder)
                change(folder, lambda toy: toy.update(device="auto"))
                change(folder, lambda toy: toy["experiments"][NAME].update(epochs=EPOCHS, patience=EPOCHS))
            with snakemake(local, "--cores", "1") as without_slurm:
                a_cancelled_training_stops_no_other_run(remote)
                the_same_command_goes_on_with_it(remote)
                every_job_asked_for_what_the_profile_says()
                assert without_slurm.wait(SECONDS) == 0
            the_results_are_those_without_slurm(local, remote)
    report("passed")


# --- the story


def a_cancelled_training_stops_no_other_run(folder):
    history = folder / CHANGED[0] / "history.csv"
    with snakemake(folder, *PROFILE) as process:
        assert soon(lambda: epochs(history) >= 3 or process.poll() is not None, SECONDS)
        assert process.poll() is None
        (number,) = (number for number, job in jobs().items() if job.comment == TRAIN)
        run("scancel", str(number))
        assert process.wait(SECONDS) != 0
    states = [job.state for job in jobs().values()]
    assert jobs()[number].state == "CANCELLED"
    assert sorted(set(states)) == ["CANCELLED", "COMPLETED"]
    assert (folder / CHANGED[0] / "resume.pt").exists()
    assert [(folder / run / "metrics.json").exists() for run in RUNS] == [True, True, False, True]
    report(f"with SLURM: {len(states)} jobs, of which one was cancelled and the others done")


def epochs(history):
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def the_same_command_goes_on_with_it(folder):
    before = jobs()
    with snakemake(folder, *PROFILE) as process:
        assert process.wait(SECONDS) == 0
    new = [(job.comment, job.state) for number, job in jobs().items() if number not in before]
    assert sorted(new) == [(name, "COMPLETED") for name in sorted([TRAIN, EVALUATE, TABLES])], new
    log = (folder / f"logs/toy/{NAME}/seed0.train.log").read_text()
    assert f"epoch {EPOCHS}:" in log
    assert not log.startswith("epoch 1:")
    assert not (folder / CHANGED[0] / "resume.pt").exists()
    report(f"the same command: {len(new)} jobs, training went on")
    # Where it ran is no reason to run it again.
    with snakemake(folder, "--cores", "2", "--dry-run") as process:
        assert process.wait(SECONDS) == 0
    assert "Nothing to be done" in (folder / "snakemake.log").read_text()


def every_job_asked_for_what_the_profile_says():
    profile = yaml.safe_load((PROJECT / "workflow/profiles/slurm/config.v9+.yaml").read_text())
    for job in jobs().values():
        rule = job.comment.split("_")[1]
        resources = profile["default-resources"] | profile["set-resources"].get(rule, {})
        assert job.memory == f"{resources['mem_mb']}M", job
        assert job.gpus == ("gres:gpu:1" if rule in ("train", "evaluate") else "N/A"), job
        assert job.shares == ("NO" if rule == "benchmark" else "OK"), job


def the_results_are_those_without_slurm(local, remote):
    expected, found = results(local), results(remote)
    assert len(expected) > 50
    differing = [path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)]
    assert not differing, f"other bytes than without SLURM: {sorted(differing)}"
    report(f"{len(found)} files have the bytes of the run without SLURM")


def results(folder):
    """The contents of all results and tables by their path, without what is a matter of time or memory."""
    contents = {}
    for path in (*folder.glob("results/**/*"), *folder.glob("paper_tables/**/*")):
        if not path.is_file():
            continue
        if path.name == "history.csv":
            rows = csv.DictReader(path.read_text().splitlines())
            content = [{name: value for name, value in row.items() if name not in TIMINGS} for row in rows]
        elif path.name == "train.sha256":
            content = [line for line in path.read_text().splitlines() if not line.endswith("history.csv")]
        else:
            content = path.read_bytes()
        contents[str(path.relative_to(folder))] = content
    return contents


@contextmanager
def snakemake(folder, *arguments):
    """Make all, in the background; gives the process."""
    command = ["snakemake", *arguments, "--", "all"]
    with (folder / "snakemake.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def report(sentence):
    print(f"{time.monotonic() - BEGAN:4.0f} s  {sentence}", flush=True)


# --- the cluster


def install():
    """Make sure that SLURM is installed."""
    if os.getuid() != 0:
        skip("to start a SLURM cluster takes root")
    if all(map(shutil.which, PROGRAMS)):
        return
    if not shutil.which("apt-get"):
        skip("SLURM is not installed, and there is no apt-get to install it")
    for arguments in ("update", "install --yes --no-install-recommends slurm-wlm munge"):
        command = ["timeout", "120", "apt-get", *arguments.split()]
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode != 0:
            skip(f"SLURM is not installed, and `apt-get {arguments}` failed")


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


@contextmanager
def cluster(folder):
    """A running cluster, which becomes the one in use."""
    write_configuration(folder)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        del os.environ[name]
    os.environ["SLURM_CONF"] = f"{folder}/slurm.conf"
    os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    with ExitStack() as daemons:
        start(daemons, folder, "munged", "--foreground", f"--socket={folder}/munge.socket", *files)
        soon((folder / "munge.socket").exists)
        start(daemons, folder, "slurmctld", "-D")
        start(daemons, folder, "slurmd", "-D")
        if not soon(lambda: run("sinfo", "-h", "-o", "%T") == "idle"):
            skip("SLURM does not start on this machine")
        report(f"{run('slurmd', '-V')} is up")
        try:
            yield
        finally:
            run("scancel", "--user=root")
            soon(lambda: not run("squeue", "-h"), 60)


def write_configuration(folder):
    folder.chmod(0o755)  # munged refuses a socket that not everybody can reach
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    text = SLURM_CONF.format(folder=folder, host=host, ports=free_ports(2))
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File=/dev/null,/dev/zero\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    # Snakemake's plugin keeps SLURM_CONF from the srun of its jobs, which then looks in /etc: this one does not.
    srun = folder / "bin/srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)


def start(daemons, folder, name, *arguments):
    """Start a daemon, to be ended with the others, last first."""
    log = daemons.enter_context((folder / f"{name}.log").open("w"))
    command = [shutil.which(name), *arguments]
    daemons.callback(end, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))


def end(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Job(NamedTuple):
    comment: str  # Snakemake's, by which it is known
    state: str
    gpus: str
    shares: str  # its machine with other jobs
    memory: str


def jobs():
    """All jobs the cluster has had, by number."""
    fields = "--Format=JobID:|,Comment:|,State:|,tres-per-job:|,OverSubscribe:|,MinMemory:"
    rows = [line.split("|") for line in run("squeue", "-h", "--states=all", fields).splitlines()]
    return {int(number): Job(*row) for number, *row in rows}


def run(*command):
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def soon(condition, seconds=30):
    """Wait until the condition holds; tells whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def showing_logs(folder):
    """Print what all programs had to say, if something fails."""
    try:
        yield
    except BaseException:
        for log in (*folder.glob("*.log"), *folder.glob("*/snakemake.log")):
            print(f"--- the end of {log.relative_to(folder)}", *log.read_text().splitlines()[-40:], sep="\n")
        raise


if __name__ == "__main__":
    main()
