"""What several test modules share: the treebank sample, where it is installed."""

import zipfile
from pathlib import Path

import nltk.data
import pytest

from nbl.corpus.treebank import Tree, parse_trees, read_trees

SAMPLE_FILES = [f"wsj_{number:04d}" for number in range(1, 200)]


@pytest.fixture(scope="session")
def sample_trees() -> list[tuple[str, int, Tree]]:
    """NLTK's sample of the Penn Treebank: (file stem, number of the tree in its file from 0, tree).

    It is looked for where NLTK looks: the folders of NLTK_DATA, ~/nltk_data, /usr/share/nltk_data, ...
    """
    for folder in map(Path, nltk.data.path):
        unpacked = folder / "corpora" / "treebank" / "combined"
        zipped = folder / "corpora" / "treebank.zip"
        if unpacked.is_dir():
            files = {stem: list(read_trees(unpacked / f"{stem}.mrg")) for stem in SAMPLE_FILES}
        elif zipped.is_file():
            files = _read_zip(zipped)
        else:
            continue
        return [(stem, index, tree) for stem, trees in files.items() for index, tree in enumerate(trees)]
    pytest.skip("no treebank sample: run `python -m nltk.downloader treebank` or set NLTK_DATA")


def _read_zip(path: Path) -> dict[str, list[Tree]]:
    with zipfile.ZipFile(path) as archive:
        names = {stem: f"treebank/combined/{stem}.mrg" for stem in SAMPLE_FILES}
        return {stem: list(parse_trees(archive.read(name).decode(), name)) for stem, name in names.items()}
