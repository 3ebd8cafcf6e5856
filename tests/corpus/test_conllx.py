"""CoNLL-X files: what is read, what is refused, and how heads are matched with a tree's words."""

from pathlib import Path

import pytest

from nbl.corpus.conllx import ConllError, ConllToken, aligned_heads, read_conllx
from nbl.errors import UserError


def row(id: object, form: str, head: object) -> str:
    return f"{id}\t{form}\t_\tNN\tNN\t_\t{head}\tdep\t_\t_"


def write(folder: Path, *lines: str, newline: str = "\n", start: str = "") -> Path:
    path = folder / "heads.conllx"
    path.write_bytes((start + newline.join(lines)).encode())
    return path


def tokens(*heads: int) -> list[ConllToken]:
    return [ConllToken(i, "x", head, sentence=7, line=i) for i, head in enumerate(heads, start=1)]


def test_sentences_and_tokens(tmp_path: Path) -> None:
    path = write(tmp_path, row(1, "dogs", 2), row(2, "bark", 0), "", row(1, "oh", 0), "")
    assert read_conllx(path) == [
        [ConllToken(1, "dogs", 2, 1, 1), ConllToken(2, "bark", 0, 1, 2)],
        [ConllToken(1, "oh", 0, 2, 4)],
    ]


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        pytest.param([row(1, "dogs", 2), row(2, "bark", 0)], {}, id="no empty line at the end"),
        pytest.param([row(1, "dogs", 2), row(2, "bark", 0), "", ""], {"newline": "\r\n"}, id="CRLF"),
        pytest.param([row(1, "dogs", 2), row(2, "bark", 0), ""], {"start": "\ufeff"}, id="byte order mark"),
        pytest.param(["", "", row(1, "dogs", 2), row(2, "bark", 0), "", " ", ""], {}, id="more empty lines"),
        pytest.param(["# text = dogs bark", row(1, "dogs", 2), row(2, "bark", 0), ""], {}, id="comment"),
        pytest.param(
            [row("1-2", "dogsbark", "_"), row(1, "dogs", 2), row("1.1", "do", "_"), row(2, "bark", 0), ""],
            {},
            id="multi-word token and empty node",
        ),
    ],
)
def test_variants_of_the_format(tmp_path: Path, lines: list[str], options: dict[str, str]) -> None:
    [sentence] = read_conllx(write(tmp_path, *lines, **options))
    assert [(token.id, token.form, token.head) for token in sentence] == [(1, "dogs", 2), (2, "bark", 0)]


def test_a_word_may_be_a_number_sign(tmp_path: Path) -> None:
    [[token]] = read_conllx(write(tmp_path, row(1, "#", 0)))
    assert token.form == "#"


def test_an_empty_file_has_no_sentences(tmp_path: Path) -> None:
    assert read_conllx(write(tmp_path)) == []


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        pytest.param(["1\tdogs\t0"], 3, "3 tab-separated columns", id="columns"),
        pytest.param([row("one", "dogs", 0)], 3, "number is 'one'", id="id"),
        pytest.param([row(1, "dogs", "_")], 3, "head is '_'", id="head"),
        pytest.param([row(1, "dogs", -1)], 3, "head is '-1'", id="negative head"),
        pytest.param([row(1, "dogs", 0), row(3, "bark", 1)], 4, "token 3 stands where token 2", id="order"),
        pytest.param([row(1, "dogs", 0), row(2, "bark", 5)], 4, "head of token 2 is 5, but there are 2", id="range"),
        pytest.param([row(1, "dogs", 0), row(2, "bark", 0)], 4, "2 tokens with head 0", id="two roots"),
        pytest.param([row(1, "dogs", 2), row(2, "bark", 1)], 3, "0 tokens with head 0", id="no root"),
        pytest.param(
            [row(1, "the", 0), row(2, "dogs", 3), row(3, "bark", 2)],
            4,
            "token 2 is its own ancestor",
            id="cycle",
        ),
    ],
)
def test_errors_name_file_line_and_sentence(tmp_path: Path, lines: list[str], line: int, message: str) -> None:
    path = write(tmp_path, row(1, "oh", 0), "", *lines, "")
    with pytest.raises(ConllError) as error:
        read_conllx(path)
    assert str(error.value).startswith(f"{path}, line {line}, sentence 2: ")
    assert message in str(error.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing\.conllx"):
        read_conllx(tmp_path / "missing.conllx")
    path = tmp_path / "latin.conllx"
    path.write_bytes(row(1, "dog", 0).encode() + b"\n\n" + row(1, "caf\xe9", 0).encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.conllx, line 3: byte 0xe9 is not UTF-8"):
        read_conllx(path)


LEAVES = [("``", "``"), ("NNS", "x"), ("VBP", "x"), ("$", "$"), ("CD", "x"), (".", ".")]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(tokens(2, 0, 2), id="only the words"),
        pytest.param(tokens(3, 3, 0, 3, 3), id="without currency signs"),
        pytest.param(tokens(3, 3, 0, 5, 3, 3), id="all tokens"),
    ],
)
def test_three_numbers_of_tokens_are_understood(given: list[ConllToken]) -> None:
    assert aligned_heads(given, LEAVES) == [2, 0, 2]


def test_a_word_under_a_removed_token_climbs() -> None:
    assert aligned_heads(tokens(3, 3, 0, 3, 4, 3), LEAVES) == [2, 0, 2]


def test_the_first_word_below_a_removed_root_is_the_root() -> None:
    assert aligned_heads(tokens(6, 6, 6, 6, 4, 0), LEAVES) == [0, 1, 1]


@pytest.mark.parametrize("heads", [(0,), (0, 1), (0, 1, 1, 1), (0, 1, 1, 1, 1, 1, 1)])
def test_any_other_number_is_refused(heads: tuple[int, ...]) -> None:
    with pytest.raises(ConllError, match=rf"^sentence 7 .* has {len(heads)} tokens, its tree 6 \(3 words"):
        aligned_heads(tokens(*heads), LEAVES)


def test_a_sentence_without_tokens_is_refused() -> None:
    with pytest.raises(ConllError, match="0 tokens, its tree 6"):
        aligned_heads([], LEAVES)


def test_most_words_must_be_those_of_the_tree() -> None:
    leaves = [("DT", "The"), ("NN", "input\\/output"), ("VBZ", "rises")]
    rows = [("the", 2), ("input/output", 3), ("increases", 0)]
    given = [ConllToken(k, form, head, 7, 90 + k) for k, (form, head) in enumerate(rows, start=1)]
    assert aligned_heads(given, leaves) == [2, 3, 0]
    shifted = [token._replace(form=form) for token, form in zip(given, ["a", "dog", "rises"], strict=True)]
    with pytest.raises(ConllError, match=r"line 91, sentence 7: 'a' stands where the tree has 'The'"):
        aligned_heads(shifted, leaves)
