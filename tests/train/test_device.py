"""Where a run computes: names of devices, and GPUs shared out among processes."""

import subprocess
import sys

import pytest
import torch

from nbl.errors import UserError
from nbl.process import device_type, first_free, use_device


def test_devices():
    assert device_type("cpu") == "cpu"
    assert device_type("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    with use_device("cpu") as device:
        assert device == torch.device("cpu")
    for wrong in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(UserError, match="unknown device"):
            device_type(wrong)
    with pytest.raises(UserError, match="there is no device 'cuda:99'"):
        device_type("cuda:99")


HOLD = """
import sys, time
from pathlib import Path
from nbl.process import first_free
with first_free(["one", "two"], Path(sys.argv[1]), poll_seconds=0.01) as position:
    print(position, flush=True)
    time.sleep(60)
"""


def test_processes_share_out_the_devices(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        positions = [int(holder.stdout.readline()) for holder in holders]
        assert sorted(positions) == [0, 1]
        # A third one waits, until the second device's holder dies.
        told = []

        def kill_one(text):
            told.append(text)
            holders[positions.index(1)].kill()

        with first_free(["one", "two"], tmp_path, 0.01, notice=kill_one) as position:
            assert position == 1
        assert told == ["waiting for one of 2 GPUs, all in use by other runs"]
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


TAKE_TURNS = """
import os, sys, time
from pathlib import Path
from nbl.process import first_free
folder = Path(sys.argv[1])
children = []
while len(children) < 6:
    children.append(os.fork())
    if children[-1] == 0:
        for _ in range(15):
            with first_free(["one", "two"], folder, poll_seconds=0.001) as position:
                taken = folder / f"taken{position}"
                taken.touch(exist_ok=False)
                time.sleep(0.003)
                taken.rename(folder / f"done.{position}.{os.getpid()}.{time.monotonic_ns()}")
        os._exit(0)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_no_two_processes_have_one_device(tmp_path):
    """More processes than devices, each taking and releasing one again and again."""
    subprocess.run([sys.executable, "-c", TAKE_TURNS, str(tmp_path)], check=True)
    positions = [path.name.split(".")[1] for path in tmp_path.glob("done.*")]
    assert len(positions) == 6 * 15
    assert set(positions) == {"0", "1"}
