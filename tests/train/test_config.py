"""A run's settings: defaults, assignments, refusals, records."""

from dataclasses import replace

import pytest
import torch
import yaml

from nbl.errors import UserError
from nbl.models import build
from nbl.process import environment
from nbl.run_folder import Config, RunFolder, write_config
from nbl.settings import Training, hyperparameters, parse

CONFIG = Config(
    model="nblpcfg",
    vocab_size=7,
    hyperparameters={"NT": 2, "PT": 4},
    training=Training(),
    seed=3,
    threads=1,
    device="cpu",
    corpus={"name": "made-up", "sha256": "0", "vocabulary_sha256": "1"},
)


def test_defaults_are_those_of_the_paper():
    assert parse("nblpcfg", [])[1] == Training(0.001, 10, 8, 40, 5, 3.0, 0)
    assert parse("nlpcfg", [])[1] == Training(0.001, 10, 4, 40, 5, 3.0, 0)
    assert parse("cpcfg", [])[1] == Training(0.001, 10, 4, 40, 5, 3.0, 30)
    assert parse("tnpcfg", [])[0] == hyperparameters("tnpcfg")


def test_curriculum_grows_by_a_word_an_epoch():
    assert [parse("cpcfg", [])[1].longest(epoch) for epoch in (1, 2, 10, 11, 12)] == [30, 31, 39, 40, 40]
    assert {parse("npcfg", [])[1].longest(epoch) for epoch in (1, 10)} == {40}


def test_assignments_have_the_right_types():
    sizes, training = parse("nlpcfg", ["NT=3", "compound=True", "lr=1e-2", "clip=5", "curriculum=0", "max_length=2"])
    assert (sizes["NT"], sizes["PT"], sizes["compound"]) == (3, 6, True)
    assert training == Training(lr=0.01, clip=5.0, max_length=2)
    assert parse("nblpcfg", ["binding=D-wq", "NT=3", "PT=1"])[0] | {"dim": 1} == {
        "NT": 3, "PT": 1, "d_H": 300, "dim": 1, "binding": "D-wq", "parameterisation": "released",
    }  # fmt: skip


def test_a_model_can_be_built_from_its_settings():
    sizes, _ = parse("nblpcfg", ["NT=2", "d_H=3", "dim=4", "parameterisation=paper", "binding=D-B"])
    assert build("nblpcfg", 5, **sizes).binding == "D-B"


def test_wrong_settings_are_told_all_at_once():
    wrong = [
        "NT=0", "d_H=many", "binding=D-E", "lr=-1", "clip=nan", "epochs=0.5", "curriculum=1",
        "max_length=1", "rank=5", "dim", "PT=2", "PT=3",
    ]  # fmt: skip
    with pytest.raises(UserError) as refusal:
        parse("nblpcfg", wrong)
    for part in (
        "NT=0: must be a whole number from 1",
        "d_H=many: must be a whole number from 1",
        "binding=D-E: must be one of D-C, D-alone, D-wq, D-B",
        "lr=-1: must be a number above 0",
        "clip=nan: must be a number above 0",
        "epochs=0.5: must be a whole number from 1",
        "curriculum=1: must be 0 (no curriculum)",
        "max_length=1: must be a whole number from 2",
        "rank=5: nblpcfg has no rank, but NT, PT, batch_size,",
        "'dim' is not KEY=VALUE",
        "PT is given twice",
    ):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="unknown model 'pcfg'"):
        parse("pcfg", [])


def test_config_round_trip(tmp_path):
    path = tmp_path / "config.yaml"
    here = environment(torch.device("cpu"))
    write_config(path, CONFIG, [here])
    assert RunFolder(tmp_path).config == CONFIG
    assert yaml.safe_load(path.read_text())["environments"] == [here]
    assert here["torch"] == torch.__version__


def test_another_configuration_is_refused_with_the_differing_keys(tmp_path):
    CONFIG.refuse_other(replace(CONFIG), tmp_path / "config.yaml")
    other = replace(CONFIG, seed=4, training=Training(lr=0.1), hyperparameters={"NT": 2, "rank": 5})
    with pytest.raises(UserError) as refusal:
        CONFIG.refuse_other(other, tmp_path / "config.yaml")
    for part in (
        "seed is 4 there, 3 here",
        "training.lr is 0.1 there, 0.001 here",
        "hyperparameters.PT is None there, 4 here",
        "hyperparameters.rank is 5 there, None here",
    ):
        assert part in str(refusal.value)
    assert "NT" not in str(refusal.value)


@pytest.mark.parametrize("damaged", ["", "a: [", "- 1", "model: nblpcfg\n", "\0", "\udcff"])
def test_a_damaged_config_is_named_and_refused(tmp_path, damaged):
    path = tmp_path / "config.yaml"
    path.write_bytes(damaged.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=rf"{path} is damaged .*: delete the folder {tmp_path}"):
        assert RunFolder(tmp_path).config
