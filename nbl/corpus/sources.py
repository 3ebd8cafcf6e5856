"""Where sentences come from: the embedded corpus, NLTK's sample, the open text, the Penn Treebank.

`SOURCES` lists the corpora of `nbl.settings.CORPORA`. Each function returns a `Source`; cleaning and
heads are the same for all. `nbl.corpus.own` reads a user's own files.
"""

from __future__ import annotations

import gzip
import json
import socket
import zipfile
from collections.abc import Iterable
from contextlib import redirect_stderr
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

from nbl.corpus import text
from nbl.corpus.clean import spans_of, tags_of, words_of
from nbl.corpus.folder import Raw, Source, Splits, branching_f1
from nbl.corpus.heads import SCHEMES
from nbl.corpus.treebank import Tree, parse_trees, read_trees
from nbl.errors import UserError
from nbl.sentence import SPLITS, Sentence


def clean_trees(name: str, trees: Iterable[Tree]) -> list[Raw]:
    """Clean the trees of one file and find their heads; ids are the file's name and the tree's number from 0."""
    return [_clean_one(f"{name}.{number}", tree) for number, tree in enumerate(trees)]


def _clean_one(id: str, tree: Tree) -> Raw:
    heads = {scheme.name: scheme.heads(tree) for scheme in SCHEMES.values()}
    leaves = [(leaf.label, leaf.word) for leaf in tree.preterminals() if leaf.label != "-NONE-"]
    return Raw(Sentence(id, words_of(tree), [], tags_of(tree), spans_of(tree), heads), leaves)


def clean_text(name: str, sentences: Iterable[list[str]]) -> list[Raw]:
    """Sentences of plain text that need no cleaning: no tags, trees or heads."""
    return [
        Raw(Sentence(f"{name}.{number}", words), [("NN", word) for word in words])
        for number, words in enumerate(sentences)
    ]


def _checksum(chunks: Iterable[bytes]) -> str:
    digest = sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def toy_source(path: str | Path | None = None) -> Source:
    """The embedded corpus, drawn from a known grammar by `tools/toy`.

    Its vocabulary is the grammar's whole lexicon, so that no word is unknown; then stats.json has the
    lowest perplexity that a model can expect on dev and test.
    """
    if path is not None:
        raise UserError(f"the corpus 'toy' is part of nbl and takes no --source (got {path})")
    folder = Path(__file__).parent
    known = json.loads((folder / "toy.json").read_text(encoding="utf-8"))
    data = gzip.decompress((folder / "toy.mrg.gz").read_bytes())
    trees = parse_trees(data.decode(), "toy.mrg.gz")
    splits = {
        split: clean_trees(f"toy-{split}", [next(trees) for _ in range(size)]) for split, size in known["sizes"].items()
    }

    def facts(numbered: Splits) -> dict[str, Any]:
        complete = all(0 not in sentence.ids for split in SPLITS for sentence in numbered[split])
        names = ["bilexical_nats_per_sentence", *(["true_perplexity"] if complete else [])]
        return {"toy": {name: known[name] for name in names}}

    return Source("toy", splits, _checksum([data]), facts, known["lexicon"])


# --- NLTK's sample of the Penn Treebank: 199 files, 3,914 trees, licensed for non-commercial use

SAMPLE_STEMS = [f"wsj_{number:04d}" for number in range(1, 200)]
FIRST_DEV, FIRST_TEST = "wsj_0130", "wsj_0150"
MAX_FILE_BYTES = 1_000_000  # the largest file has 150 kB
DOWNLOAD_SECONDS = 20


def sample_source(path: str | Path | None = None) -> Source:
    """NLTK's sample, wsj_0001 to wsj_0199: files 0001-0129 train, 0130-0149 dev, 0150-0199 test.

    `path` is treebank.zip, the folder with the files, or one of NLTK's data folders. Without it, NLTK's
    data folders are searched (NLTK_DATA among them); if none has the sample, NLTK downloads it.
    """
    files = read_sample(path)
    splits: dict[str, list[Raw]] = {split: [] for split in SPLITS}
    for stem, contents in files.items():
        split = "train" if stem < FIRST_DEV else "dev" if stem < FIRST_TEST else "test"
        splits[split] += clean_trees(stem, parse_trees(contents, f"{stem}.mrg"))
    return Source("sample", splits, _checksum(contents.encode() for contents in files.values()))


def read_sample(path: str | Path | None = None) -> dict[str, str]:
    """The text of each file of the sample by its stem, in order."""
    if path is None:
        found = installed_sample() or _download_sample()
        if found is None:
            raise UserError(
                "NLTK's treebank sample is in none of NLTK's data folders and could not be downloaded; "
                "fetch it elsewhere with `python -m nltk.downloader treebank` and set NLTK_DATA to its folder"
            )
    else:
        found = _locate_sample(Path(path))
        if found is None:
            raise UserError(f"no treebank.zip and no wsj_0001.mrg in --source {path}")
    try:
        if found.is_dir():
            return {stem: (found / f"{stem}.mrg").read_text(encoding="utf-8") for stem in SAMPLE_STEMS}
        with zipfile.ZipFile(found) as archive:
            return {stem: _member(archive, f"treebank/combined/{stem}.mrg") for stem in SAMPLE_STEMS}
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError, KeyError) as error:
        raise UserError(f"{found} is not NLTK's complete treebank sample: {error}") from error


def _member(archive: zipfile.ZipFile, name: str) -> str:
    size = archive.getinfo(name).file_size
    if size > MAX_FILE_BYTES:
        raise UserError(f"{name} in {archive.filename} unpacks to {size} bytes: not NLTK's treebank sample")
    return archive.read(name).decode()


def installed_sample() -> Path | None:
    """The sample in one of NLTK's data folders."""
    import nltk.data  # takes a second, and only this function needs it

    return next(filter(None, (_locate_sample(Path(folder)) for folder in nltk.data.path)), None)


def _locate_sample(path: Path) -> Path | None:
    """The zip file or the folder of .mrg files that `path` is or contains."""
    if path.is_file():
        return path
    for folder in (path, path / "combined", path / "treebank/combined", path / "corpora/treebank/combined"):
        if (folder / "wsj_0001.mrg").is_file():
            return folder
    return next((file for file in (path / "treebank.zip", path / "corpora/treebank.zip") if file.is_file()), None)


def _download_sample() -> Path | None:
    """Let NLTK fetch the sample into its default folder; None without a network."""
    import nltk

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_SECONDS)
    try:
        folder = nltk.downloader.Downloader().default_download_dir()
        with redirect_stderr(StringIO()):  # it complains at length about a missing network
            done = nltk.download("treebank", download_dir=folder, quiet=True)
        return _locate_sample(Path(folder)) if done else None
    except (OSError, ValueError):
        return None
    finally:
        socket.setdefaulttimeout(timeout)


# --- the open text, with the sample's trees as test

SAMPLE_SHA256 = "f018900543fbff4571439fd5e5ebdae00ba53dfdd6543e48491230d76d0e06a1"  # its `Source.checksum`
# The head of the text, a word list and the sample's sentences, is no training data. The text lacks four
# of the sample's. tests/corpus/test_open.py finds these numbers by aligning the two.
HELD_OUT = {
    "removed_from_train": 3911,
    "removed_found_in_test": 3910,
    "removed_not_in_test": 1,
    "test_not_in_text": 4,
}
MIN_RECURRING = 5  # words; shorter sentences recur everywhere


def open_source(path: str | Path | None = None) -> Source:
    """The open text after section 01 as train, its next part as dev, and all trees of NLTK's sample as test.

    `path` is what `text.read_open_text` takes; the sample is taken from NLTK's folders.
    """
    parts = text.read_open_text(path)
    sample = sample_source()
    if sample.checksum != SAMPLE_SHA256:
        raise UserError(
            f"NLTK's treebank sample is not the expected one (its sha256 begins {sample.checksum[:12]}): "
            "fetch it again with `python -m nltk.downloader --force treebank`"
        )
    test = [
        raw._replace(sentence=replace(raw.sentence, words=text.as_open_text(raw.sentence.words)))
        for split in SPLITS
        for raw in sample.splits[split]
    ]
    train = parts["train"][HELD_OUT["removed_from_train"] :]
    splits = {"train": clean_text("train", train), "dev": clean_text("dev", parts["valid"]), "test": test}

    def facts(numbered: Splits) -> dict[str, Any]:
        """Adds the test sentences that the newspaper printed again, word for word, elsewhere."""
        ids = {split: [tuple(sentence.ids) for sentence in numbered[split]] for split in SPLITS}
        recurring = {
            f"test_recurring_in_{split}": sum(
                len(sentence) >= MIN_RECURRING and sentence in printed for sentence in ids["test"]
            )
            for split, printed in (("train", set(ids["train"])), ("dev", set(ids["dev"])))
        }
        return {"open": HELD_OUT | recurring}

    return Source("open", splits, _checksum([text.SHA256.encode(), sample.checksum.encode()]), facts)


# --- the Wall Street Journal of the Penn Treebank

WSJ_SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
WSJ_LAYOUTS = ("", "wsj", "combined/wsj", "combined", "parsed/mrg/wsj", "treebank_3/parsed/mrg/wsj")
WSJ_SENTENCE_F1 = {"left": 8.7, "right": 39.5, "oracle": 84.3}  # of the test section, as published
WSJ_TOLERANCE = 0.1


def wsj_source(path: str | Path | None) -> Source:
    """Sections 02-21, 22 and 23; refused if trivial trees do not have the published scores on section 23."""
    if path is None:
        raise UserError("the corpus 'wsj' needs --source FOLDER: the Penn Treebank's tree folder (LDC99T42)")
    root = _wsj_root(Path(path))
    files = {
        split: [file for section in sections for file in _mrg_files(root / f"{section:02d}")]
        for split, sections in WSJ_SECTIONS.items()
    }
    splits = {
        split: [raw for file in files[split] for raw in clean_trees(file.stem, read_trees(file))] for split in files
    }
    found = branching_f1([raw.sentence for raw in splits["test"] if len(raw.sentence) >= 2])
    if any(abs(found[name] - f1) > WSJ_TOLERANCE for name, f1 in WSJ_SENTENCE_F1.items()):
        numbers = ", ".join(f"{name} {found[name]:.2f} (expected {f1})" for name, f1 in WSJ_SENTENCE_F1.items())
        raise UserError(
            f"section 23 is not the published test set: sentence F1 of branching baselines is {numbers}; "
            "check that --source holds the complete, unchanged trees of LDC99T42"
        )
    return Source("wsj", splits, _checksum(file.read_bytes() for split in files for file in files[split]))


def _wsj_root(path: Path) -> Path:
    """The folder with the section folders 00 to 24, in any of the usual layouts."""
    if not path.is_dir():
        raise UserError(f"--source {path} is not a folder; name the Penn Treebank's tree folder (with 02 to 23 in it)")
    needed = [section for sections in WSJ_SECTIONS.values() for section in sections]
    missing = {
        layout: [section for section in needed if not _mrg_files(path / layout / f"{section:02d}")]
        for layout in WSJ_LAYOUTS
    }
    layout = min(missing, key=lambda layout: len(missing[layout]))
    if missing[layout]:
        sections = " ".join(f"{section:02d}" for section in missing[layout])
        raise UserError(
            f"{path} lacks .mrg files of section {sections}; tried the layouts NN/, wsj/NN/, combined/wsj/NN/, "
            "combined/NN/ and parsed/mrg/wsj/NN/"
        )
    return path / layout


def _mrg_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() == ".mrg") if folder.is_dir() else []


SOURCES = {"toy": toy_source, "sample": sample_source, "open": open_source, "wsj": wsj_source}
