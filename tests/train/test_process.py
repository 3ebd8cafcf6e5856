"""What is done for speed alone changes no result."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch

from nbl.optimiser import Adam


def trained(make_optimiser):
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 20)
    optimiser = make_optimiser(model)
    for number in range(10):
        if number == 5:
            optimiser.load_state_dict(optimiser.state_dict())
        optimiser.zero_grad()
        (model(torch.full((2, 20), float(number))).sin() ** 2).sum().backward()
        optimiser.grad_scale = torch.tensor(2.0)
        optimiser.step()
    return model.weight


def test_adam_takes_the_steps_of_torch():
    theirs = trained(lambda model: torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.75, 0.999), fused=True))
    assert torch.equal(trained(lambda model: Adam(model, lr=0.01)), theirs)


def test_adam_does_not_import_the_compiler():
    code = (
        "import sys, torch; from nbl.optimiser import Adam; model = torch.nn.Linear(2, 2); adam = Adam(model, 0.1);"
        "model(torch.ones(1, 2)).sum().backward(); adam.step(); adam.zero_grad();"
        "adam.load_state_dict(adam.state_dict()); print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_user_s_own_wait_policy_stays():
    code = "import os; from nbl.process import share_cores; share_cores(); print(os.environ.get('GOMP_SPINCOUNT'))"
    bare = {key: value for key, value in os.environ.items() if key not in {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}}
    for settings, expected in (({}, "4000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"), ({"GOMP_SPINCOUNT": "7"}, "7")):
        environment = bare | settings
        call = [sys.executable, "-c", code]
        found = subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout
        assert found == f"{expected}\n"


def test_malloc_takes_what_it_is_told():
    try:
        ctypes.CDLL("libc.so.6")
    except OSError:
        pytest.skip("not glibc")
    code = (
        "import ctypes; from nbl import process as p; m = ctypes.CDLL('libc.so.6').mallopt;"
        "print(m(p.M_MMAP_THRESHOLD, p.LARGE), m(p.M_TRIM_THRESHOLD, p.ALL), m(p.M_TOP_PAD, p.STEP))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1 1 1\n"
