"""The vocabulary: the most frequent training words, and one symbol for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from nbl.errors import UserError
from nbl.files import write_text

UNKNOWN = "<unk>"
MAX_WORDS = 10_000


class Vocabulary:
    """Words and their numbers; number 0 is `<unk>`."""

    def __init__(self, words: Iterable[str]):
        self.words = [UNKNOWN, *words]
        self.number = {word: number for number, word in enumerate(self.words)}
        if len(self.number) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def of(
        cls,
        sentences: Iterable[list[str]],
        max_words: int = MAX_WORDS,
        min_count: int = 1,
        lexicon: Iterable[str] = (),
    ) -> Vocabulary:
        """The `max_words` most frequent words of the sentences, ties in the order of first occurrence.

        Words of fewer than `min_count` occurrences are left out: in a small corpus, where no word is cut
        off, that is how `<unk>` comes to occur in training at all. Words of `lexicon` that training lacks
        come after all others.

        >>> Vocabulary.of([["a", "b"], ["b", "c"]], max_words=2).words
        ['<unk>', 'b', 'a']
        """
        counts = Counter(word for sentence in sentences for word in sentence if word != UNKNOWN)
        words = [word for word, count in counts.most_common() if count >= min_count]
        words += [word for word in lexicon if word not in counts]
        return cls(words[:max_words])

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[str]) -> list[int]:
        """The words' numbers, 0 for a word that is not in the vocabulary."""
        return [self.number.get(word, 0) for word in words]

    def __str__(self) -> str:
        return "".join(word + "\n" for word in self.words)

    @property
    def digest(self) -> str:
        """A checksum: two runs with the same one number their words alike."""
        return sha256(str(self).encode()).hexdigest()

    def write(self, path: str | Path) -> None:
        """One word a line, in the order of the numbers."""
        write_text(path, str(self))

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        try:
            words = Path(path).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the vocabulary {path} ({error}); run `nbl prepare` again") from error
        if words[0] != UNKNOWN or words[-1] != "" or len(set(words)) != len(words):
            raise UserError(f"{path} is not a vocabulary written by `nbl prepare`; run it again")
        return cls(words[1:-1])
