"""A run's folder: the one reader of its files, without torch.

`config.yaml` has the settings, `history.csv` the training curve, `metrics.json` the scores, `predictions.*.jsonl` the
trees. A damaged file is named, with what to do, in one sentence.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from nbl.corpus.folder import Corpus, Vocabulary
from nbl.errors import UserError
from nbl.files import mismatches, write_text
from nbl.predictions import Prediction, predictions_path, read_predictions
from nbl.sentence import Sentence
from nbl.settings import MODELS, Training, is_exact, parse

if TYPE_CHECKING:
    from nbl.matrix import Experiment

DONE = "done"
EVALUATE = "run `nbl evaluate` again"
PLACE = frozenset({"device", "threads"})  # where a run is trained
# One row per epoch. Losses are -log p, natural logarithms; F1 and the shares of left- and right-branching
# constituents are in per cent; seconds are those of training, without the evaluation on dev.
COLUMNS = (
    "epoch",
    "train_loss",  # mean over the sentences, while the parameters change
    "train_perplexity",
    "dev_perplexity",
    "dev_f1",
    "test_f1",  # only where dev has no trees, and only to be looked at
    "left_branching",
    "right_branching",
    "seconds",
    "sentences_per_second",
    "peak_memory_mb",
)
Row = dict[str, float | None]
Read = TypeVar("Read")


@dataclass(frozen=True)
class Config:
    """All that decides a run's result. Two runs with equal ones end with the same bytes on one machine."""

    model: str
    vocab_size: int
    hyperparameters: dict[str, Any]
    training: Training
    seed: int
    threads: int
    device: str  # "cpu" or "cuda"
    corpus: dict[str, str]  # its identity

    @classmethod
    def of(cls, document: Any) -> Config:
        """The settings in what `asdict` made of them; KeyError, TypeError and the like where they are not."""
        values = {field.name: document[field.name] for field in fields(cls)}
        return cls(
            **values
            | {"model": str(values["model"]), "corpus": dict(values["corpus"])}
            | {"hyperparameters": {str(key): value for key, value in values["hyperparameters"].items()}}
            | {"training": Training(**values["training"])}
        )

    def refuse_other(self, found: Config, path: Path) -> None:
        """Refuse to resume the run in `path`, which other settings made, and name them."""
        ours, theirs = _flat(asdict(self)), _flat(asdict(found))
        differing = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
        listed = "; ".join(f"{key} is {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differing)
        if differing and PLACE.issuperset(differing):
            raise OtherPlace(f"{path} is this run's, but {listed}: resume it there, or delete the folder {path.parent}")
        if differing:
            raise UserError(
                f"{path} belongs to another run ({listed}): "
                f"choose another --out, start again with --replace, or delete the folder {path.parent}"
            )


class OtherPlace(UserError):
    """A run's settings are the same, but not where it is trained."""


def make_config(
    model: str, assignments: Iterable[str], corpus: Corpus, *, seed: int, threads: int, device: str
) -> Config:
    """The settings of a new run: the model's defaults, changed by assignments `KEY=VALUE`."""
    sizes, training = parse(model, assignments)
    return Config(model, len(corpus.vocabulary), sizes, training, seed, threads, device, corpus.identity)


class RunFolder:
    """The files of a run, each read when it is first needed."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @classmethod
    def of(cls, results: Path, corpus: str, experiment: Experiment, seed: int) -> RunFolder:
        """The folder of a planned run."""
        return cls(results / corpus / "runs" / experiment.name / f"seed{seed}")

    @property
    def experiment(self) -> str:
        """The name of the experiment it is a seed of."""
        return self.path.parent.name

    @cached_property
    def config(self) -> Config:
        """The settings that made the run."""
        return self._parse("config.yaml", lambda text: Config.of(yaml.load(text, yaml.CSafeLoader)))

    @cached_property
    def environments(self) -> list[dict[str, str]]:
        """Where it was trained: each machine and version of the code, in order."""
        return self._parse("config.yaml", lambda text: list(yaml.load(text, yaml.CSafeLoader)["environments"]))

    @property
    def exact(self) -> bool:
        """Whether its log p are exact."""
        return is_exact(self.config.model, self.config.hyperparameters)

    @property
    def has_heads(self) -> bool:
        """Whether the grammar is lexicalised."""
        return MODELS[self.config.model].lexicalised

    @cached_property
    def history(self) -> list[Row]:
        """The training curve: one row per epoch with the `COLUMNS`, None where there is no value."""
        return self._parse("history.csv", _rows)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The scores of the test part, as `nbl evaluate` wrote them."""
        return self._parse("metrics.json", lambda text: dict(json.loads(text)), EVALUATE)

    def has_predictions(self, decoder: str) -> bool:
        """Whether there are predictions of a decoder for the test part."""
        return any(self.path.glob(f"predictions.{decoder}.jsonl*"))

    def predictions(
        self, decoder: str, sentences: Sequence[Sentence | Prediction] | None = None, split: str = "test"
    ) -> list[Prediction]:
        """A decoder's predictions; see `read_predictions`."""
        return read_predictions(predictions_path(self.path, decoder, split), sentences)

    def vocabulary(self, corpus_dir: Path | None = None) -> Vocabulary:
        """The vocabulary of the run's word numbers: its own, or that of its corpus; another one is refused."""
        recorded = self.config.corpus.get("vocabulary_sha256")
        path = (corpus_dir or self.path) / "vocab.txt"
        if not path.exists():
            raise UserError(
                f"there is no {path}: name the corpus the run was trained on (--corpus-dir, or corpus_dir= in Python)"
            )
        vocabulary = Vocabulary.read(path)
        if vocabulary.digest != recorded:
            raise UserError(
                f"{path} is not the vocabulary of the run: corpus.vocabulary_sha256 is "
                f"{recorded!r} in {self.path / 'config.yaml'}, {vocabulary.digest!r} here"
            )
        return vocabulary

    def status(self, experiment: Experiment, seed: int) -> str:
        """ "done", or what is wrong: missing, unfinished, damaged, not evaluated, or made by other settings."""
        if (self.path / "resume.pt").exists():
            return "unfinished"
        if not (self.path / "config.yaml").exists():
            return "missing"
        if found := mismatches(self.path):
            return f"damaged: {', '.join(name for names in found.values() for name in names)}"
        try:
            differences = experiment.differences(self.config)
        except UserError:
            return "damaged: config.yaml"
        if self.config.seed != seed:
            differences["seed"] = self.config.seed, seed
        if differences:
            listed = [f"{key} {recorded} instead of {planned}" for key, (recorded, planned) in differences.items()]
            return f"made by other settings: {', '.join(listed)}"
        if not all((self.path / f"{step}.sha256").exists() for step in ("train", "evaluate")):
            return "not evaluated" if (self.path / "train.sha256").exists() else "unfinished"
        return DONE

    def refuse_other(self, corpus: Corpus, corpus_dir: Path) -> None:
        """Refuse a corpus other than the one the run was trained on, and name what differs."""
        recorded = self.config.corpus
        differences = [
            f"corpus.{key} is {recorded.get(key)!r} in {self.path / 'config.yaml'}, {value!r} in {corpus_dir}"
            for key, value in corpus.identity.items()
            if recorded.get(key) != value
        ]
        if differences:
            raise UserError(f"the run belongs to another corpus: {'; '.join(differences)}")

    def refuse_unfinished(self) -> None:
        """Refuse a run that is under way, or that stopped before its end."""
        if (self.path / "resume.pt").exists():
            raise UserError(f"the run {self.path} is not finished: let `nbl train` end, or call it again")

    def _parse(self, name: str, read: Callable[[str], Read], again: str = "") -> Read:
        """What `read` makes of a file's text; where it fails, the file is damaged."""
        path = self.path / name
        if not (self.path / "config.yaml").exists():
            raise UserError(f"{self.path} is not a run folder (no config.yaml); make one with `nbl train`")
        try:
            return read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError, csv.Error) as error:
            raise damaged(path, error, again or f"delete the folder {self.path} and train again") from error


def damaged(path: Path, error: Exception, again: str) -> UserError:
    """The one sentence on a damaged file, with how to make it again."""
    return UserError(f"{path} is damaged ({' '.join(f'{type(error).__name__}: {error}'.split())}): {again}")


def write_config(path: Path, config: Config, environments: list[dict[str, str]]) -> None:
    """Write `config.yaml`: the settings, and each environment that worked on the run, in order."""
    document = asdict(config) | {"environments": environments}
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write a table, a row per dictionary; what a row lacks is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _rows(text: str) -> list[Row]:
    return [
        {name: float(row[name]) if row.get(name) else None for name in COLUMNS} | {"epoch": int(row["epoch"])}
        for row in csv.DictReader(io.StringIO(text))
    ]


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots.

    >>> _flat({"seed": 0, "training": {"lr": 0.001}})
    {'seed': 0, 'training.lr': 0.001}
    """
    result: dict[str, Any] = {}
    for key, value in document.items():
        result |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return result
