"""Building a model from settings and loading a trained one: what is accepted, what is refused and how."""

import os
from fractions import Fraction

import pytest
import torch
from tiny_models import COMPOUND, SIMPLE, TINY

from nbl import models
from nbl.errors import UserError
from nbl.run_folder import Config, write_config
from nbl.settings import MODELS, Training, hyperparameters

each_model = pytest.mark.parametrize(("name", "settings"), SIMPLE + COMPOUND)


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        ("nblpcfg", {"NT": 0}, ["NT is 0"]),
        ("nblpcfg", {"d_H": 0}, ["d_H is 0"]),
        ("nblpcfg", {"d_H": 2.5}, ["d_H is 2.5"]),
        ("nblpcfg", {"PT": True}, ["PT is True"]),
        ("nblpcfg", {"dim": "256"}, ["dim is '256'"]),
        ("nblpcfg", {"binding": "D-A"}, ["'D-A'", "D-C, D-alone, D-wq, D-B"]),
        ("nblpcfg", {"parameterisation": "mine"}, ["'mine'", "released, paper"]),
        ("nblpcfg", {"rank": 5}, ["rank", "5", "NT, PT, d_H, dim, binding, parameterisation"]),
        ("nlpcfg", {"compound": 1}, ["compound is 1", "False, True"]),
        ("npcfg", {"compound": True, "z_dim": 2}, ["compound", "z_dim"]),
        ("tnpcfg", {"NT": -1, "d_H": 3, "rank": None}, ["NT is -1", "d_H", "rank is None"]),
    ],
)
def test_impossible_settings_are_named_all_at_once(name, settings, named):
    with pytest.raises(UserError) as error:
        models.build(name, 10, **settings)
    assert all(part in str(error.value) for part in [name, *named])


def test_unknown_model_and_impossible_vocabulary_are_refused():
    with pytest.raises(UserError, match=r"'pcfg'.*npcfg, cpcfg, tnpcfg, nlpcfg, nblpcfg"):
        models.build("pcfg", 10)
    with pytest.raises(UserError, match="vocab_size is 0"):
        models.build("npcfg", 0)


def test_defaults_are_the_papers():
    assert hyperparameters("npcfg") == {"NT": 30, "PT": 60, "dim": 256}
    assert hyperparameters("cpcfg") == {
        "NT": 30, "PT": 60, "dim": 256, "z_dim": 64, "h_dim": 512, "w_dim": 512
    }  # fmt: skip
    assert hyperparameters("tnpcfg") == {"NT": 250, "PT": 500, "rank": 500, "dim": 256}
    assert hyperparameters("nblpcfg") == {
        "NT": 15, "PT": 30, "d_H": 300, "dim": 256, "binding": "D-C", "parameterisation": "released"
    }  # fmt: skip
    assert hyperparameters("nlpcfg") == hyperparameters("cpcfg") | {"compound": False}
    for name, model in MODELS.items():
        defaults = hyperparameters(name)
        assert defaults.get("PT", 0) == 2 * defaults.get("NT", 0)
        assert model.grammar == ("NT" in defaults)


def test_preterminals_are_twice_the_nonterminals_unless_given():
    assert models.build("npcfg", 6, NT=2, dim=4).u_T.shape[0] == 4
    assert models.build("npcfg", 6, NT=2, PT=7, dim=4).u_T.shape[0] == 7
    assert models.build("npcfg", 6, PT=7, dim=4).u_A.shape[0] == 30


def save(model, name, settings, folder):
    config = Config(name, 6, TINY | settings, Training(), 0, 1, "cpu", {})
    write_config(folder / "config.yaml", config, [])
    torch.save({"model": model.state_dict()}, folder / "checkpoint.pt")


@each_model
def test_a_saved_model_comes_back(name, settings, tmp_path):
    torch.manual_seed(0)
    model = models.build(name, 6, **TINY, **settings)
    save(model, name, settings, tmp_path)
    state = torch.get_rng_state()
    loaded = models.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert not loaded.training
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), loaded.parameters(), strict=True))
    words, lengths = torch.tensor([[5, 0, 2]]), torch.tensor([3])
    assert torch.equal(*(m.eval().log_likelihood(words, lengths) for m in (model, loaded)))


def flip_a_byte(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def npcfg(settings):
    training = "training: {}\nseed: 0\nthreads: 1\ndevice: cpu\ncorpus: {}"
    return f"model: npcfg\nvocab_size: 6\n{training}\n{settings}\n"


@pytest.mark.parametrize(
    ("damaged", "damage"),
    [
        ("config.yaml", lambda path: path.unlink()),
        ("config.yaml", lambda path: path.write_text("")),
        ("config.yaml", lambda path: path.write_text("model: [npcfg")),
        ("config.yaml", lambda path: path.write_text("model: [npcfg]\nvocab_size: 6\nhyperparameters: {}")),
        ("config.yaml", lambda path: path.write_text(npcfg("dim: 3"))),
        ("config.yaml", lambda path: path.write_text(npcfg("hyperparameters: 3"))),
        ("config.yaml", lambda path: path.write_text(npcfg("hyperparameters: {1: 2}"))),
        ("config.yaml", lambda path: path.write_text(npcfg("hyperparameters: {NT: 0}"))),
        ("config.yaml", lambda path: path.write_bytes(b"\xff\xfe\x00model")),
        ("checkpoint.pt", lambda path: path.unlink()),
        ("checkpoint.pt", lambda path: path.write_bytes(b"")),
        ("checkpoint.pt", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("checkpoint.pt", flip_a_byte),
        ("checkpoint.pt", lambda path: torch.save({"other": 1}, path)),
        ("checkpoint.pt", lambda path: torch.save([1], path)),
        ("checkpoint.pt", lambda path: torch.save(Fraction(1, 2), path)),
        ("checkpoint.pt", lambda path: torch.save({"model": models.build("npcfg", 9).state_dict()}, path)),
    ],
)
def test_a_damaged_run_is_named(damaged, damage, tmp_path):
    save(models.build("npcfg", 6, **TINY), "npcfg", {}, tmp_path)
    damage(tmp_path / damaged)
    with pytest.raises(UserError, match=damaged) as error:
        models.load(tmp_path)
    assert "\n" not in str(error.value)


class Hostile:
    """Unpickled by the rules of pickle, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_nothing_in_a_checkpoint_is_run(tmp_path):
    save(models.build("npcfg", 6, **TINY), "npcfg", {}, tmp_path)
    trace = tmp_path / "trace"
    torch.save({"model": Hostile(str(trace))}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint\.pt"):
        models.load(tmp_path)
    assert not trace.exists()
    torch.load(tmp_path / "checkpoint.pt", weights_only=False)  # it is hostile
    assert trace.exists()
