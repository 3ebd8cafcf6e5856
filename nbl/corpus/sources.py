"""Where sentences come from: the embedded toy grammar, NLTK's sample, the open text, the Penn Treebank.

Every function returns a `Source`; cleaning and heads are the same for all of them. A user's own
files are in `nbl.corpus.own`.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from nbl.corpus import nltk_sample, open_text, toy
from nbl.corpus.clean import spans_of, tags_of, words_of
from nbl.corpus.folder import Raw, Source, Splits, branching_f1
from nbl.corpus.heads import SCHEMES
from nbl.corpus.treebank import Tree, parse_trees, read_trees
from nbl.errors import UserError
from nbl.sentence import SPLITS, Sentence

WSJ_SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
WSJ_LAYOUTS = ("", "wsj", "combined/wsj", "combined", "parsed/mrg/wsj", "treebank_3/parsed/mrg/wsj")
WSJ_SENTENCE_F1 = {"left": 8.7, "right": 39.5, "oracle": 84.3}  # of the test section, as published
WSJ_TOLERANCE = 0.1


def clean_trees(name: str, trees: Iterable[Tree]) -> list[Raw]:
    """Clean the trees of one file, find their heads; ids are the file's name and the tree's number from 0."""
    return [_clean_one(f"{name}.{number}", tree) for number, tree in enumerate(trees)]


def _clean_one(id: str, tree: Tree) -> Raw:
    heads = {scheme.name: scheme.heads(tree) for scheme in SCHEMES.values()}
    leaves = [(leaf.label, leaf.word or "") for leaf in tree.preterminals() if leaf.label != "-NONE-"]
    return Raw(Sentence(id, words_of(tree), [], tags_of(tree), spans_of(tree), heads), leaves)


def toy_source(path: str | Path | None = None) -> Source:
    """The embedded corpus, with the lowest perplexity that any model can expect on its dev and test parts.

    Its vocabulary is the grammar's whole lexicon, so that no word is unknown.
    """
    if path is not None:
        raise UserError(f"the corpus 'toy' is part of nbl and takes no --source (got {path})")
    sampled = toy.sample_corpus()
    texts = {split: "".join(tree.bracket + "\n" for tree in trees) for split, trees in sampled.items()}
    splits = {split: clean_trees(f"toy-{split}", parse_trees(text, f"toy {split}")) for split, text in texts.items()}

    def facts(numbered: Splits) -> dict[str, Any]:
        information = toy.bilexical_information(sampled["train"])._asdict()
        result: dict[str, Any] = {"bilexical_nats_per_sentence": {k: round(v, 6) for k, v in information.items()}}
        if all(0 not in sentence.ids for split in SPLITS for sentence in numbered[split]):
            result["true_perplexity"] = {
                split: round(toy.true_perplexity(sentence.words for sentence in numbered[split]), 6)
                for split in ("dev", "test")
            }
        return {"toy": result}

    checksum = _checksum(text.encode() for text in texts.values())
    return Source("toy", splits, checksum, facts, toy.toy_grammar().surface_words())


def sample_source(path: str | Path | None = None) -> Source:
    """NLTK's sample of the Penn Treebank, wsj_0001 to wsj_0199, split by file."""
    files = nltk_sample.read_files(path)
    splits: dict[str, list[Raw]] = {split: [] for split in SPLITS}
    for stem, text in files.items():
        splits[nltk_sample.split_of(stem)] += clean_trees(stem, parse_trees(text, f"{stem}.mrg"))
    return Source("sample", splits, _checksum(text.encode() for text in files.values()))


def wsj_source(path: str | Path | None) -> Source:
    """The Penn Treebank's Wall Street Journal: sections 02-21, 22, 23; refused if the test section is off."""
    if path is None:
        raise UserError("the corpus 'wsj' needs --source FOLDER: the Penn Treebank's tree folder (LDC99T42)")
    root = _wsj_root(Path(path))
    files = {
        split: [file for s in sections for file in _mrg_files(root / f"{s:02d}")]
        for split, sections in WSJ_SECTIONS.items()
    }
    splits = {
        split: [raw for file in files[split] for raw in clean_trees(file.stem, read_trees(file))] for split in files
    }
    _check_wsj([raw.sentence for raw in splits["test"]])
    return Source("wsj", splits, _checksum(file.read_bytes() for split in files for file in files[split]))


def open_source(path: str | Path | None = None) -> Source:
    """The open text after section 01 to train on, its next part for development, the sample's trees as test.

    `path` is what `open_text.read_text` takes; the sample is looked for in NLTK's folders.
    """
    text = open_text.read_text(path)
    sample = sample_source()
    test = [raw for split in SPLITS for raw in sample.splits[split]]
    for raw in test:
        raw.sentence.words = open_text.as_text(raw.sentence.words)
    alignment = open_text.align(text.train, [raw.sentence.words for raw in test])
    train = text.train[alignment.boundary :]
    splits = {"train": _text_raws("train", train), "dev": _text_raws("dev", text.valid), "test": test}
    alignment_facts = {
        "removed_from_train": alignment.boundary,
        "removed_found_in_test": len(alignment.pairs),
        "removed_not_in_test": len(alignment.unmatched),
        "test_not_in_text": len(alignment.missing),
    }

    def facts(numbered: Splits) -> dict[str, Any]:
        """Test sentences of five or more words that the newspaper printed again, word for word, elsewhere."""
        ids = {split: [sentence.ids for sentence in numbered[split]] for split in SPLITS}
        recurring = {f"test_recurring_in_{s}": len(open_text.leaks(ids[s], ids["test"])) for s in ("train", "dev")}
        return {"open": alignment_facts | recurring}

    checksum = _checksum([open_text.SHA256.encode(), sample.checksum.encode()])
    return Source("open", splits, checksum, facts)


def _text_raws(part: str, sentences: list[list[str]]) -> list[Raw]:
    """Sentences of plain text that are clean already: no tags, trees or heads."""
    return [
        Raw(Sentence(f"{part}.{number}", words), [("NN", word) for word in words])
        for number, words in enumerate(sentences)
    ]


def _wsj_root(path: Path) -> Path:
    """The folder with the section folders 00 to 24, in any of the layouts in use."""
    if not path.is_dir():
        raise UserError(f"--source {path} is not a folder; name the Penn Treebank's tree folder (with 02 to 23 in it)")
    needed = [section for sections in WSJ_SECTIONS.values() for section in sections]
    missing: list[int] = needed
    for layout in WSJ_LAYOUTS:
        absent = [section for section in needed if not _mrg_files(path / layout / f"{section:02d}")]
        if not absent:
            return path / layout
        missing = min(missing, absent, key=len)
    sections = " ".join(f"{section:02d}" for section in missing)
    raise UserError(
        f"{path} lacks .mrg files of section {sections}; tried the layouts NN/, wsj/NN/, combined/wsj/NN/, "
        "combined/NN/ and parsed/mrg/wsj/NN/"
    )


def _mrg_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() == ".mrg") if folder.is_dir() else []


def _check_wsj(test: list[Sentence]) -> None:
    """The gate: trivial trees must score on section 23 what everybody's score."""
    found = branching_f1([sentence for sentence in test if len(sentence) >= 2])
    if any(abs(found[name] - f1) > WSJ_TOLERANCE for name, f1 in WSJ_SENTENCE_F1.items()):
        numbers = ", ".join(f"{name} {found[name]:.2f} (expected {f1})" for name, f1 in WSJ_SENTENCE_F1.items())
        raise UserError(
            f"section 23 is not the published test set: sentence F1 of branching baselines is {numbers}; "
            "check that --source holds the complete, unchanged trees of LDC99T42"
        )


def _checksum(chunks: Iterable[bytes]) -> str:
    digest = sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


SOURCES = {"toy": toy_source, "sample": sample_source, "open": open_source, "wsj": wsj_source}
