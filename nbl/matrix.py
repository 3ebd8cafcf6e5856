"""The experiment matrix: which runs the tables in `params.yaml` need.

An experiment is a model with its settings, a run is an experiment with one seed. Tables name experiments;
those of all tables together, each once, are the matrix. Nothing here needs torch: Snakemake reads the matrix
each time it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from nbl.errors import UserError
from nbl.files import read_text
from nbl.settings import CORPORA, DECODERS, LEGACY, MODELS, SETTINGS, TRAINING, is_compound, with_PT

if TYPE_CHECKING:
    from nbl.run_folder import Config

SCHEMA = Path(__file__).with_name("params.schema.yaml")
FILE_KEYS = ("trees", "text", "heads")  # a user's own files, each FILE or PART=FILE
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A model with its settings, its seeds, the tables that need it, and the decoders those need."""

    name: str  # of its folder, too
    model: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    decoders: tuple[str, ...]
    tables: tuple[str, ...] = ()

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """The settings that are the model's own."""
        return with_PT({key: value for key, value in self.settings.items() if key not in TRAINING})

    @property
    def NT(self) -> int:
        return int(self.settings["NT"])

    @property
    def compound(self) -> bool:
        """Whether its perplexity is not exact."""
        return is_compound(self.model, self.settings)

    @property
    def assignments(self) -> list[str]:
        """The settings as `nbl train --set` takes them, in a fixed order."""
        return [f"{key}={_text(self.settings[key])}" for key in sorted(self.settings)]

    def differences(self, config: Config) -> dict[str, tuple[Any, Any]]:
        """What a run's `config.yaml` records, and what is planned instead."""
        planned = with_PT({"model": self.model} | self.settings)
        recorded = {"model": config.model} | config.hyperparameters | asdict(config.training)
        return {key: (recorded.get(key), planned[key]) for key in sorted(planned) if recorded.get(key) != planned[key]}


def read_params(path: Path, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a `params.yaml` and replace some of its top-level keys; all errors are reported together."""
    try:
        params = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    params = params | (changes or {}) if isinstance(params, dict) else params
    if found := errors(params):
        given = " or --config" if changes else ""
        raise UserError(f"{path}{given} is wrong:\n  " + "\n  ".join(found))
    return params


def errors(params: Any) -> list[str]:
    """All that is wrong with the parameters, one sentence each, with the path of the key."""
    found = sorted(Draft202012Validator(_schema()).iter_errors(params), key=lambda error: list(map(str, error.path)))
    result = [f"{'.'.join(map(str, error.path)) or 'params.yaml'}: {error.message}" for error in found]

    def sound(*path: str) -> bool:
        """Whether the schema has no objection at or below a path, nor to the lack of it."""
        return path[0] in params and not any(tuple(error.path)[: len(path)] == path for error in found)

    if not isinstance(params, Mapping) or not isinstance(params.get("corpora"), Mapping):
        return result
    for name, corpus in params["corpora"].items():
        if sound("corpora", name) and sound("decoders"):
            messages = (*_source_errors(name, corpus), *_corpus_errors(corpus, params["decoders"]))
            result += [f"corpora.{name}.{message}" for message in messages]
    if sound("corpus") and params["corpus"] not in params["corpora"]:
        result.append(f"corpus: {params['corpus']!r} is not one of {', '.join(params['corpora'])}")
    elif sound("corpus") and sound("corpora", params["corpus"]):
        known = params["corpora"][params["corpus"]]
        for key in filter(sound, ("tables", "experiments")):
            result += [
                f"{key}: {wanted!r} is not one of those of {params['corpus']}: {', '.join(known[key])}"
                for wanted in params[key] or ()
                if wanted not in known[key]
            ]
    return result


def _schema() -> dict[str, Any]:
    """The structure of `params.yaml`, with the names and values that `nbl.settings` describes."""
    schema = yaml.safe_load(read_text(SCHEMA))
    defined = schema["$defs"]
    defined["settings"]["properties"] |= {key: values.schema for key, values in SETTINGS.items()}
    defined["training"]["enum"] = list(TRAINING)
    defined["decoder"]["enum"] = list(DECODERS)
    return schema


def _source_errors(name: str, corpus: Params) -> Iterator[str]:
    """A corpus is one that nbl knows, perhaps with its place, or a user's own files."""
    own = [key for key in ("trees", "text") if key in corpus]
    if name in CORPORA:
        yield from (f"{key}: {name} is a corpus that nbl knows; one's own files need another name" for key in own)
    else:
        if not own:
            yield f"text: {name!r} is none of {', '.join(CORPORA)}; name its files here or under trees"
        if corpus.get("source") is not None:
            yield f"source: {corpus['source']!r} is for a corpus that nbl knows; name files under text or trees"


def source_options(name: str, corpus: Params) -> list[str]:
    """What `nbl prepare` is told of where a corpus comes from.

    >>> source_options("wsj", {"source": "ldc/wsj", "heads": ["test=corenlp.conllx"]})
    ['--corpus', 'wsj', '--source', 'ldc/wsj', '--heads', 'test=corenlp.conllx']
    >>> source_options("mine", {"text": ["train=a.txt", "b.txt"]})
    ['--text', 'train=a.txt', 'b.txt']
    """
    options = ["--corpus", name] if name in CORPORA else []
    if corpus.get("source") is not None:
        options += ["--source", corpus["source"]]
    return options + [word for key in FILE_KEYS if key in corpus for word in (f"--{key}", *corpus[key])]


def source_files(corpus: Params) -> list[str]:
    """The user's own files that a corpus is made from.

    >>> source_files({"text": ["train=a.txt", "b=1.txt"]})
    ['a.txt', 'b=1.txt']
    """
    return [re.sub("^(train|dev|test)=", "", file) for key in FILE_KEYS for file in corpus.get(key, ())]


def _corpus_errors(corpus: Params, decoders: Params) -> Iterator[str]:
    """What a schema cannot say: names that must be known, or follow from others."""
    models, tables = corpus["models"], corpus["tables"]
    for name in models:
        if name not in MODELS:
            yield f"models.{name}: {name!r} is not one of {', '.join(MODELS)}"
    for name, entry in corpus["experiments"].items():
        model = entry["model"]
        if model not in models:
            yield f"experiments.{name}.model: {model!r} is not one of {', '.join(models)}"
            continue
        for key in entry:
            if key not in {"model", "PT", *models[model], *TRAINING}:
                yield f"experiments.{name}.{key}: {model} has no {key}, but {', '.join(models[model])}"
        if name != experiment_name(entry):
            yield f"experiments.{name}: by its settings its name is {experiment_name(entry)!r}"
        if not any(name in names for names in tables.values()):
            yield f"experiments.{name}: no table needs it; name it in one of {', '.join(tables)}, or remove it"
    for table, names in tables.items():
        if table not in decoders:
            yield f"tables.{table}: `decoders` does not say how its runs are parsed"
        for name in names:
            if name not in corpus["experiments"]:
                yield f"tables.{table}: {name!r} is not among the experiments"
            elif any(decoder.endswith(LEGACY) for decoder in decoders.get(table, ())) and not _has_legacy(corpus, name):
                yield f"tables.{table}: {name!r} has no legacy decoders, only nlpcfg has"


def _has_legacy(corpus: Params, experiment: str) -> bool:
    model = corpus["experiments"][experiment]["model"]
    return model in MODELS and MODELS[model].legacy


def experiment_name(entry: Params) -> str:
    """The model and those of its own settings that are not its defaults.

    >>> experiment_name({"model": "nblpcfg", "d_H": 50, "NT": 10, "lr": 0.01})
    'nblpcfg-NT=10-d_H=50'
    """
    own = sorted(key for key in entry if key not in {"model", *TRAINING})
    return "-".join([entry["model"], *(f"{key}={_text(entry[key])}" for key in own)])


def experiments(params: Params) -> list[Experiment]:
    """The experiments that the chosen tables of the chosen corpus need, each once, in their order there."""
    corpus = params["corpora"][params["corpus"]]
    chosen = [table for table in corpus["tables"] if params["tables"] is None or table in params["tables"]]
    seeds = tuple(sorted(params["seeds"]))
    result = []
    for name, entry in corpus["experiments"].items():
        tables = tuple(table for table in chosen if name in corpus["tables"][table])
        if not tables or (params["experiments"] is not None and name not in params["experiments"]):
            continue
        asked = {decoder for table in tables for decoder in params["decoders"][table]}
        if not MODELS[entry["model"]].grammar:
            asked = {"mbr"}
        decoders = tuple(decoder for decoder in DECODERS if decoder in asked)
        result.append(Experiment(name, entry["model"], _settings(corpus, entry), seeds, decoders, tables))
    return result


def _settings(corpus: Params, entry: Params) -> dict[str, Any]:
    """An experiment's own settings over those of its model over those of all training on the corpus.

    PT follows NT, as `nbl train` has it, unless the experiment says otherwise.
    """
    return corpus["training"] | corpus["models"][entry["model"]] | {k: v for k, v in entry.items() if k != "model"}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
