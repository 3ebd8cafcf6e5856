"""Native kernels are compiled once, safely, and torch does the work where they cannot be."""

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from nbl import native
from nbl.families import decode, inside
from nbl.inside import naive
from nbl.testing import random_rules, single


class Problem(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int64), ("l", ctypes.c_int64), ("scratch", ctypes.c_void_p)]


HEADERS = {"bilexical": [native.FOLDER / "chart.h"], "lexical": [native.FOLDER / "heads.h"]}  # that have structs
ANSWER = 'extern "C" int answer() { return %s; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and no memory of libraries loaded or refused before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NBL_NATIVE", raising=False)
    monkeypatch.setattr(native, "_warned", threading.Lock())
    native.library.cache_clear()
    native.load.cache_clear()
    yield tmp_path / "cache" / "nbl"
    native.library.cache_clear()
    native.load.cache_clear()


@pytest.fixture
def compiler():
    try:
        subprocess.run([os.environ.get("CXX", "g++"), "--version"], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no C++ compiler")


def source(folder: Path, text: str) -> Path:
    path = folder / "kernel.cpp"
    path.write_text(text)
    return path


@pytest.mark.usefixtures("compiler")
def test_a_library_is_compiled_once_for_each_version_of_its_source(cache, tmp_path):
    assert native.library(source(tmp_path, ANSWER % 42)).answer() == 42
    native.library.cache_clear()
    assert native.library(source(tmp_path, ANSWER % 42)).answer() == 42
    assert len(list(cache.iterdir())) == 1
    native.library.cache_clear()
    assert native.library(source(tmp_path, ANSWER % 43)).answer() == 43
    assert len(list(cache.iterdir())) == 2


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", sorted(path.stem for path in native.FOLDER.glob("*.cpp")))
def test_every_kernel_compiles(name):
    """Otherwise torch would do its work, and its tests would be skipped."""
    for dtype in native.TYPES:
        assert native.load(name, dtype) is not None


@pytest.mark.parametrize("library", sorted(native.STRUCTURES))
def test_structs_have_the_same_fields_in_the_same_order_in_both_languages(library):
    """Python passes a struct by position; that sizes are equal is checked when the library is loaded."""
    text = "".join(path.read_text() for path in (native.FOLDER / f"{library}.cpp", *HEADERS.get(library, ())))
    text = re.sub(r"//.*", "", text)
    assert native.STRUCTURES[library]
    for struct in native.STRUCTURES[library]:
        [body] = re.findall(rf"struct {struct.__name__} {{(.*?)}};", text, re.DOTALL)
        declarations = [re.sub(r"^(const )?\w+[ *]", "", line.strip()) for line in body.split(";") if line.strip()]
        fields = [name.strip(" *") for declaration in declarations for name in declaration.split(",")]
        assert fields == [name for name, _ in struct._fields_]


@pytest.mark.usefixtures("compiler")
def test_a_damaged_library_is_made_again(cache, tmp_path):
    path = source(tmp_path, ANSWER % 42)
    native.library(path)
    (built,) = cache.iterdir()
    built.unlink()  # the process has it open
    built.write_bytes(b"")
    native.library.cache_clear()
    assert native.library(path).answer() == 42


@pytest.mark.usefixtures("compiler")
def test_the_compiler_may_have_options(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", f"{os.environ.get('CXX', 'g++')} -DRIGHT=42")
    assert native.library(source(tmp_path, ANSWER % "RIGHT")).answer() == 42


def test_without_a_home_folder_there_is_a_notice(cache, monkeypatch, tmp_path):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.Path, "home", home)
    monkeypatch.setenv("CXX", "true")
    with pytest.warns(UserWarning, match="no native kernels .*home directory"):
        assert native.library(source(tmp_path, ANSWER % 42)) is None


def test_an_interrupt_waits_for_all_threads(monkeypatch):
    """Helpers write to memory of the caller: it must not be freed before they are done."""
    started, ended = threading.Event(), []

    class Kernel:
        @staticmethod
        def scratch_bytes(problem):
            return 0

        @staticmethod
        def solve(problem):
            if threading.current_thread() is threading.main_thread():
                started.wait(60)
                raise KeyboardInterrupt
            started.set()
            time.sleep(0.2)
            ended.append(True)

    monkeypatch.setattr(native, "load", lambda name, dtype: Kernel)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        native.solve_all("any", torch.float32, [Problem(2, 2), Problem(2, 2)])
    assert ended == [True]


@pytest.mark.usefixtures("compiler")
def test_several_processes_may_compile_at_once(cache, tmp_path):
    path = source(tmp_path, ANSWER % 42)
    program = f"from pathlib import Path; from nbl.native import library; print(library(Path({str(path)!r})).answer())"
    command = [sys.executable, "-c", program]
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True), range(3)))
    assert [run.stdout for run in runs] == ["42\n"] * 3, runs[0].stderr
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("no-such-compiler", "No such file"), ("false", "exit status 1"), ("broken", "fatal error: no headers")],
)
def test_without_a_compiler_torch_does_the_work_and_says_so_once(cache, monkeypatch, tmp_path, compiler, reason):
    if compiler == "broken":  # it has a version, and compiles nothing
        compiler = tmp_path / "broken"
        compiler.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "fatal error: no headers" >&2; exit 1; }\n')
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    rules = random_rules("D-C", 1, 4, 2, 2, 3, seed=0)
    lengths = torch.tensor([4])

    def use_all_kernels():
        decode(rules, lengths, "cyk")
        inside(random_rules("lexical", 1, 4, 2, 2, 1, seed=0), lengths)
        inside(single(rules), lengths)
        return inside(rules, lengths)

    with pytest.warns(UserWarning, match=f"no native kernels .*{reason}") as notices:
        found = use_all_kernels()
    assert len(notices) == 1
    torch.testing.assert_close(found, naive.inside(rules.dense(), lengths), rtol=0, atol=1e-9)
    assert not list(cache.glob("*.so"))


def test_the_native_kernels_can_be_switched_off(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("NBL_NATIVE", "0")
    assert native.library(source(tmp_path, ANSWER % 42)) is None
    assert native.load("bilexical", torch.float32) is None
    assert not cache.exists()
