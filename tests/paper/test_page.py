"""Runs for git and the page of results: nothing but what the runs say, and no word of a treebank."""

import gzip
import json
import shutil
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml
from fake_results import WORDS, fake_params, write_results
from tiny_runs import call

from nbl.paper.page import BEGIN, END

PROJECT = Path(__file__).parents[2]
CHOSEN = ("npcfg", "cpcfg", "nlpcfg", "nlpcfg-NT=4", "nblpcfg", "nblpcfg-binding=D-B")
SEEDS = (0, 1, 2)
HISTORY = """epoch,train_loss,train_perplexity,dev_perplexity,dev_f1,test_f1,left_branching,right_branching,seconds,\
sentences_per_second,peak_memory_mb
1,9.0,99.0,40.0,12.5,,60.0,10.0,1800,100,500
2,8.0,88.0,30.0,55.5,,20.0,50.0,1800,100,500
3,7.0,77.0,35.0,44.4,,20.0,50.0,3600,100,500
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Results of some runs, as the pipeline leaves them; one is not finished."""
    monkeypatch.chdir(tmp_path)
    write_results(tmp_path / "results", seeds=SEEDS, runs=CHOSEN)
    Path("params.yaml").write_text(yaml.safe_dump(fake_params(seeds=SEEDS)))
    Path("README.md").write_text(f"# About\n\n{BEGIN}\nold\n{END}\n\nMore.\n")
    for path in Path("results").glob("toy/runs/nblpcfg/*/predictions.cyk.jsonl"):  # invented heads are no trees
        records = [json.loads(line) | {"heads": [2, 3, 4, 0, 4, 5, 6, 7, 8]} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for metrics in Path("results").glob("toy/runs/*/seed*/metrics.json"):
        run = metrics.parent
        (run / "history.csv").write_text(HISTORY)
        (run / "checkpoint.pt").write_bytes(b"large")
        config = yaml.safe_load((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(yaml.safe_dump(config | {"environments": [{"device": "an abacus"}]}))
        for step, names in {"train": ("config.yaml", "checkpoint.pt"), "evaluate": ("metrics.json",)}.items():
            lines = [f"{sha256((run / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
            (run / f"{step}.sha256").write_text("".join(lines))
    Path("results/toy/runs/npcfg/seed2/resume.pt").write_bytes(b"")
    return tmp_path


def test_export_has_all_that_is_done_and_no_words(project):
    code, out, err = call("export", "--trees")
    assert code == 0, err
    assert "17 of" in out
    assert "npcfg/seed2: unfinished" in err
    files = [path for path in Path("results/reference").rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert names == {"config.yaml", "history.csv", "metrics.json", "stats.json", "trees.json", "inside.csv"} | {
        f"predictions.{decoder}.jsonl.gz" for decoder in ("mbr", "cyk", "mbr-legacy", "cyk-legacy")
    }
    for path in files:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert not any(word.encode() in data for pair in (*WORDS, ('"zo"', '"vel"')) for word in pair)
    source = Path("results/toy/runs/nblpcfg/seed1/predictions.mbr.jsonl")
    copy = Path("results/reference") / source.relative_to("results").with_name("predictions.mbr.jsonl.gz")
    assert gzip.decompress(copy.read_bytes()) == source.read_bytes()


def test_no_results_to_export(project):
    code, _, err = call("export", "--results", "nowhere")
    assert code == 2
    assert err == "nbl: there are no results for 'toy': nowhere/toy/corpus holds no prepared corpus\n"
    assert not Path("results/reference").exists()


def test_tables_read_the_copy(project):
    call("export")
    for results in ("results", "results/reference"):
        code, _, err = call("tables", "--corpus", "toy", "--results", results, "--out", f"out/{results}")
        assert code == 0, err
    mine, copied = (Path(f"out/{results}/label_recall.tex").read_text() for results in ("results", "results/reference"))
    lines = list(zip(mine.splitlines(), copied.splitlines(), strict=True))
    changed = {ours.partition(" &")[0] for ours, theirs in lines if ours != theirs}
    assert "N-PCFG" in changed  # one of its seeds is not finished
    assert not {"NL-PCFG", "NBL-PCFG"} & changed


def test_page(project):
    call("export", "--trees")
    code, _, err = call("page")
    assert code == 0, err
    page, readme = Path("docs/results.md").read_text(), Path("README.md").read_text()
    f1 = [
        json.loads(path.read_text())["decoders"]["mbr"]["trees"]["kim"]["sentence_f1"]
        for path in sorted(Path("results/toy/runs/nblpcfg").glob("seed*/metrics.json"))
    ]
    for text in (page, readme):
        assert f"| NBL-PCFG† | 6/12 | **{fmean(f1):.1f}** ± {stdev(f1):.1f} / 60.4 ± 1.6 / (" in text
    run = "| `nblpcfg` | 1 | 3 | 2 | 30.0 | 12.5 | 55.5 | 44.4 | 20.0 / 50.0 | 60.0 | 2.00 | 1 | 1 | 100 | 500 |"
    perplexity = json.loads(Path("results/toy/runs/nblpcfg/seed1/metrics.json").read_text())["decoders"]["mbr"]
    assert f"{run} {perplexity['perplexity']:.1f} | {f1[1]:.1f} |" in page
    main = [line for line in readme.splitlines() if line.startswith("| ") and "| 6/12 |" in line]
    assert len(main) == 10  # five grammars with two decoders each
    assert all(("≈" in line) == ("| C-PCFG" in line) for line in main)
    udas = {
        decoder: [
            json.loads(Path(f"results/toy/runs/nlpcfg/seed{seed}/metrics.json").read_text())["decoders"][decoder][
                "heads"
            ]["stanford"]["udas"]
            for seed in SEEDS
        ]
        for decoder in ("mbr", "mbr-legacy")
    }
    change = fmean(udas["mbr-legacy"]) - fmean(udas["mbr"])
    (row,) = (line for line in page.splitlines() if line.startswith("| NL-PCFG† | ") and f" / {change:+.2f} | " in line)
    assert f"{fmean(udas['mbr']):.1f} ± {stdev(udas['mbr']):.1f} / {fmean(udas['mbr-legacy']):.1f} ± " in row
    assert "| NBL-PCFG beats NL-PCFG (not compound) in F1 |" in page
    assert "| NBL-PCFG has the lowest perplexity |" not in page  # no TN-PCFG: not run
    assert "\nold\n" not in readme
    assert readme.startswith("# About\n")
    assert readme.endswith("\n\nMore.\n")
    gold = Path("docs/results-toy-1-gold.svg").read_text()
    assert ">VBD<" in gold
    assert ">VP<" in gold
    assert Path("docs/results-toy-3-nblpcfg.svg").exists()
    assert (project / "docs/results-toy.png").read_bytes().startswith(b"\x89PNG")
    call("page")
    assert (Path("docs/results.md").read_text(), Path("README.md").read_text()) == (page, readme)


def test_selections_are_correlated_with_f1(project):
    """F1 60, 50, 40 of seeds 0, 1, 2. By dev perplexity 1 comes first, then 0 and 2: two pairs of three are in order.
    The trees of 1 and 2 are equal, those of 0 are not: one pair is a tie, and the other two are in the wrong order."""
    for metrics in Path("results").glob("toy/runs/*/seed*/metrics.json"):
        run, seed = metrics.parent, int(metrics.parent.name[4:])
        if run.parent.name != "nblpcfg":
            (run / "evaluate.sha256").unlink()
            continue
        scores = json.loads(metrics.read_text())
        scores["decoders"]["mbr"]["trees"]["kim"]["sentence_f1"] = 60.0 - 10 * seed
        metrics.write_text(json.dumps(scores))
        (run / "evaluate.sha256").write_text(f"{sha256(metrics.read_bytes()).hexdigest()}  metrics.json\n")
        (run / "history.csv").write_text(HISTORY.replace("88.0,30.0", f"88.0,{(31.0, 30.0, 32.0)[seed]}"))
        path = run / "predictions.mbr.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            l = record["length"]
            record["spans"] = [[i, l, None] if seed else [0, l - i, None] for i in range(l - 1)]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    call("export")
    shutil.rmtree("results/toy")  # neither needs the corpus
    call("page")
    page = Path("docs/results.md").read_text()
    assert "| `nblpcfg` | 50.0, 60.0, 40.0 | +0.33 | 50.0, 40.0, 60.0 | -0.82 |" in page


def test_other_sizes_have_rows_without_the_paper_s_number(project):
    call("export")
    call("page")
    rows = [line for line in Path("README.md").read_text().splitlines() if line.startswith("| NL-PCFG† | ")]
    own, other = (next(row for row in rows if f"| {size} |" in row) for size in ("6/12", "4/8"))
    assert " / 57.4 ± 1.4 / " in own
    assert "57.4" not in other
    assert "| NL-PCFG† 4/8 | " in Path("docs/results.md").read_text()


def test_the_published_page_is_what_the_published_runs_say(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_bytes((PROJECT / "README.md").read_bytes())
    paths = {"reference": "results/reference", "params": "params.yaml"}
    options = [word for name, path in paths.items() for word in (f"--{name}", PROJECT / path)]
    code, _, err = call("page", *options, "--docs", tmp_path, "--readme", readme)
    assert code == 0, err
    assert readme.read_text() == (PROJECT / "README.md").read_text()
    assert (tmp_path / "results.md").read_text() == (PROJECT / "docs/results.md").read_text()
    for path in tmp_path.glob("*.svg"):
        assert path.read_text() == (PROJECT / "docs" / path.name).read_text()


@pytest.mark.parametrize("corpus", ["sample", "open"])
def test_the_published_tables_are_what_the_published_runs_say(corpus, tmp_path):
    paths = {"results": "results/reference", "params": "params.yaml"}
    options = [word for name, path in paths.items() for word in (f"--{name}", PROJECT / path)]
    code, _, err = call("tables", "--corpus", corpus, *options, "--out", tmp_path)
    assert code == 0, err
    published = sorted((PROJECT / "paper_tables" / corpus).glob("*.tex"))
    assert {"main_result.tex", "decoders.tex"} <= {path.name for path in published}
    for path in published:
        assert (tmp_path / path.name).read_text() == path.read_text(), path


def test_no_place_in_the_readme(project):
    call("export")
    Path("README.md").write_text("# About\n")
    code, _, err = call("page")
    assert code == 2
    assert "the README has no place for results" in err
    assert not Path("docs").exists()


def test_nothing_to_tell(project):
    code, _, err = call("page")
    assert code == 2
    assert "there are no runs in results/reference" in err


def test_gaps_are_told(project):
    """No dev part, no CYK trees, no gold trees: what there is is told."""
    for path in Path("results/toy/runs").glob("*/seed*/history.csv"):
        path.write_text("epoch,train_loss,seconds,sentences_per_second,peak_memory_mb\n1,9,1,1,1\n2,8,1,1,1\n")
    call("export", "--trees")
    for path in Path("results/reference").glob("toy/runs/nblpcfg/seed*/metrics.json"):
        document = json.loads(path.read_text())
        del document["decoders"]["cyk"]
        path.write_text(json.dumps(document))
    stats = Path("results/reference/toy/corpus/stats.json")
    document = json.loads(stats.read_text())
    for split in document["splits"].values():
        split.pop("trees")
    stats.write_text(json.dumps(document))
    code, _, err = call("page")
    assert code == 0, err
    page = Path("docs/results.md").read_text()
    assert "| `nblpcfg` | 0 | 2 | 2 |  |  |  |  |" in page
    assert "best binary trees" not in page
    assert ".svg" not in page


def test_an_export_takes_the_place_of_the_one_before(project):
    call("export")
    run = Path("results/reference/toy/runs/nblpcfg/seed1")
    (run / "predictions.old.jsonl.gz").write_bytes(b"")
    gone = Path("results/toy/runs/nblpcfg/seed0")
    (gone / "checkpoint.pt").write_bytes(b"changed")
    call("export")
    assert not (run / "predictions.old.jsonl.gz").exists()
    assert (Path("results/reference") / gone.relative_to("results") / "metrics.json").exists()


def test_a_run_that_lacks_predictions_keeps_its_old_copy(project):
    call("export")
    copies = sorted(Path("results/reference").rglob("predictions.*.gz"))
    run = Path("results", *copies[0].parts[2:-1])
    (run / copies[0].name.removesuffix(".gz")).unlink()
    code, _, err = call("export")
    assert (code, sorted(Path("results/reference").rglob("predictions.*.gz"))) == (0, copies)
    assert f"{run}: {copies[0].name.removesuffix('.gz')} missing" in err
