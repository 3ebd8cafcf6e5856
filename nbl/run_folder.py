"""A run's folder, as far as it can be read without torch: which grammar it is, and of which corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from nbl.corpus.folder import Corpus
from nbl.errors import UserError
from nbl.settings import MODELS, is_compound


@dataclass(frozen=True)
class RunFolder:
    """What `config.yaml` says about a run, where `nbl.config` has all of it."""

    path: Path
    model: str
    compound: bool  # its log p is that of the words given z, less KL: not exact
    threads: int
    corpus: dict[str, str]  # its identity

    @property
    def has_heads(self) -> bool:
        """Whether the grammar is lexicalised."""
        return MODELS[self.model].lexicalised

    def refuse_other(self, corpus: Corpus, corpus_dir: Path) -> None:
        """Refuse a corpus other than the one the run was trained on, and name what differs."""
        config = self.path / "config.yaml"
        differences = [
            f"corpus.{key} is {self.corpus.get(key)!r} in {config}, {value!r} in {corpus_dir}"
            for key, value in corpus.identity.items()
            if self.corpus.get(key) != value
        ]
        if differences:
            raise UserError(f"the run belongs to another corpus: {'; '.join(differences)}")

    def refuse_unfinished(self) -> None:
        """Refuse a run that is under way, or that stopped before its end."""
        if (self.path / "resume.pt").exists():
            raise UserError(f"the run {self.path} is not finished: let `nbl train` end, or call it again")


def read_run(path: str | Path) -> RunFolder:
    """Read a run's `config.yaml`; a folder without one, or a damaged one, is named and refused."""
    path = Path(path)
    file = path / "config.yaml"
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        compound = is_compound(config["model"], config["hyperparameters"])
        return RunFolder(path, config["model"], compound, int(config["threads"]), dict(config["corpus"]))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path} is no run's folder (no config.yaml); make one with `nbl train`") from error
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{file} is damaged ({reason}): train again") from error
