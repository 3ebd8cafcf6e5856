"""nbl.paper.diff: what differs between two states of a project, read from git without a checkout."""

import json
import subprocess

import pytest

from nbl.errors import UserError
from nbl.paper.diff import Change, as_markdown, as_text, changes

CELL = {"table": "main_result", "run": "nblpcfg", "decoder": "mbr", "metric": "f1"}


def call(root, *arguments):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments], cwd=root, check=True)


def write(root, ours, std, n, verdict, lr=0.01):
    check = {
        "cells": [CELL | {"ours": ours, "ours_std": std, "n": n}],
        "claims": [{"key": "nbl-best-f1", "verdict": verdict}],
    }
    folder = root / "paper_tables" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "check.json").write_text(json.dumps(check))
    (root / "params.yaml").write_text(f"training:\n  lr: {lr}\n")


@pytest.fixture
def repository(tmp_path):
    call(tmp_path, "init", "-q")
    write(tmp_path, 60.0, 2.0, 4, "open")
    (tmp_path / "nbl").mkdir()
    (tmp_path / "nbl" / "x.py").write_text("1")
    call(tmp_path, "add", "-A")
    call(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_nothing_changed(repository):
    assert list(changes(repository)) == []
    write(repository, 60.04, 2.0, 4, "open")  # would be printed as the same number
    assert list(changes(repository)) == []


def test_cells_verdicts_settings_code_and_figures(repository):
    write(repository, 61.5, 1.0, 4, "shown", lr=0.02)
    (repository / "nbl" / "x.py").write_text("2")
    (repository / "paper_tables" / "toy" / "das_h.png").write_bytes(b"\x89PNG")
    call(repository, "add", "-A")
    expected = [
        Change("cell", "toy main_result", "nblpcfg mbr f1", "60.0 ± 2.0 (n=4)", "61.5 ± 1.0 (n=4)",
               "+1.5, within one standard deviation"),
        Change("claim", "toy", "nbl-best-f1", "open", "shown"),
        Change("setting", "", "training.lr", "0.01", "0.02"),
        Change("code", "", "1 files", "", "", "nbl/x.py"),
        Change("figure", "", "paper_tables/toy/das_h.png", "", "", "changed"),
    ]  # fmt: skip
    assert list(changes(repository)) == expected
    call(repository, "commit", "-qm", "two")
    assert list(changes(repository)) == []
    assert list(changes(repository, "HEAD~1", "HEAD")) == expected
    assert [c.kind for c in changes(repository, "HEAD", "HEAD~1")] == [c.kind for c in expected]


def test_a_large_change_and_a_change_of_seeds_alone(repository):
    write(repository, 70.0, 2.0, 4, "open")
    assert next(changes(repository)).note == "+10.0, beyond one standard deviation"
    write(repository, 60.0, 2.0, 8, "open")
    assert next(changes(repository)).new == "60.0 ± 2.0 (n=8)"
    write(repository, None, None, 0, "not run")
    assert [(c.old, c.new) for c in changes(repository)] == [("60.0 ± 2.0 (n=4)", "not run"), ("open", "not run")]


def test_a_corpus_that_is_new(repository):
    (repository / "paper_tables" / "mine").mkdir()
    (repository / "paper_tables" / "toy" / "check.json").rename(repository / "paper_tables" / "mine" / "check.json")
    found = {(c.kind, c.where): (c.old, c.new) for c in changes(repository)}
    assert found["claim", "mine"] == ("no such claim", "open")
    assert found["claim", "toy"] == ("open", "no such claim")


def test_what_is_refused(repository):
    with pytest.raises(UserError, match="'nope' is not a revision"):
        list(changes(repository, "nope"))
    (repository / "paper_tables" / "toy" / "check.json").write_text("{")
    with pytest.raises(UserError, match=r"check.json of the working tree is damaged"):
        list(changes(repository))


def test_markdown_and_columns():
    found = [Change("claim", "toy", "a|b", "x", "y"), Change("setting", "", "lr", "1", "2")]
    assert as_markdown(found).splitlines()[2] == "| claim | toy | a\\|b | x | y |  |"
    assert as_text(found).splitlines()[1] == "setting  lr  1 -> 2"
