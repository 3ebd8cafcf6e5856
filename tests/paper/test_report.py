"""Tables, figures and the document: every number is the runs', what is missing is marked, bytes do not change."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import fake_results
import pytest
import yaml
from fake_results import COMPOUND, RUNS, SEEDS, WORDS, change_metrics, fake_params, write_results
from tiny_runs import call

from nbl import settings
from nbl.errors import UserError
from nbl.paper import tables
from nbl.paper.document import compile_document, macro, write_report
from nbl.paper.published import PUBLISHED, read_published
from nbl.paper.render import LATEX, MARKDOWN
from nbl.paper.results import read_results, self_f1
from nbl.paper.roles import MODELS
from nbl.paper.statistics import Summary
from nbl.settings import Model

PARAMS = fake_params()
PROJECT = Path(__file__).parents[2]
FILES = {
    *(f"{name}.tex" for name in "main_result label_recall bindings check corpus complexity decoders".split()),
    *(f"{name}.tex" for name in "qualitative seeds numbers bayesnet paper".split()),
    *(
        f"{name}.{kind}"
        for name in "f1_perp_rank f1_perp_nt das_h das_nt time_length time_nt".split()
        for kind in ("pdf", "png")
    ),
    "check.json",
}


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A complete matrix of invented results; not to be changed."""
    folder = tmp_path_factory.mktemp("results")
    write_results(folder)
    return folder


@pytest.fixture
def changeable(complete, tmp_path):
    return Path(shutil.copytree(complete, tmp_path / "results"))


@pytest.fixture(scope="module")
def paper():
    return read_published(PUBLISHED)


@pytest.fixture(scope="module")
def report(complete, paper, tmp_path_factory):
    """The report of the complete matrix; not to be changed."""
    out = tmp_path_factory.mktemp("report")
    write_report(read_results(complete, "toy", PARAMS), paper, out)
    return out


@pytest.fixture(scope="module")
def empty_report(paper, tmp_path_factory):
    """The report of a corpus without any results."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "results" / "toy").mkdir(parents=True)
    write_report(read_results(folder / "results", "toy"), paper, folder / "out")
    return folder / "out"


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in text.splitlines() if "&" in line]


def f1_of(results: Path, run: str, decoder: str) -> list[float]:
    """Straight from the files."""
    paths = [results / "toy" / "runs" / run / f"seed{seed}" / "metrics.json" for seed in SEEDS]
    documents = [json.loads(path.read_text())["decoders"] for path in paths]
    return [document[decoder]["trees"]["kim"]["sentence_f1"] for document in documents]


def test_the_main_table_has_the_runs_numbers_and_the_papers(complete, paper):
    text = tables.main_result(read_results(complete, "toy", PARAMS), paper, LATEX)
    rows = {row[0]: row for row in reversed(rows_of(text))}  # the first of each name
    (other,) = (row for row in rows_of(text) if row[:2] == [r"NL-PCFG$^\star$", "4/8"])
    assert other[2].startswith(f"{fmean(f1_of(complete, 'nlpcfg-NT=4', 'cyk')):.1f}")
    assert other[3] == other[4] == ""  # the paper's number is not for this size
    for name, run, decoder, theirs in (
        (r"NL-PCFG$^\star$", "nlpcfg", "cyk", r"53.3$_{\pm 2.1}$"),
        (r"NL-PCFG, compound$^\dagger$", COMPOUND, "mbr", ""),
        (r"TN-PCFG$^\dagger$", "tnpcfg", "mbr", r"57.7$^{\mathrm{q}}$"),
    ):
        values = f1_of(complete, run, decoder)
        assert rows[name][2] == rf"{fmean(values):.1f}$_{{\pm {stdev(values):.1f}}}$"
        assert rows[name][3] == theirs
    difference = fmean(f1_of(complete, "nlpcfg", "cyk")) - 53.3
    assert rows[r"NL-PCFG$^\star$"][4] == f"({difference:+.1f})".replace("+", "$+$").replace("-", "$-$")
    assert rows["StructFormer"][3::3] == [rf"{v}$^{{\mathrm{{q}}}}$" for v in (54.0, 46.2, 61.6)]
    assert rows["S-DIORA"][2] == ""
    assert rows[r"N-PCFG$^\star$"][5:] == [""] * 6
    oracle = json.loads((complete / "toy/corpus/stats.json").read_text())["splits"]["test"]["trees"]["sentence_f1"]
    assert float(rows["Oracle trees"][2]) == pytest.approx(oracle["oracle"], abs=0.05)


def test_the_best_is_bold_and_follows_the_numbers(changeable, paper):
    def bold():
        text = tables.main_result(read_results(changeable, "toy", PARAMS), paper, LATEX)
        return [row[0] for row in rows_of(text) if r"\textbf" in row[2]]

    means = {run: fmean(f1_of(changeable, run, "mbr")) for run in ("npcfg", "tnpcfg", "nlpcfg", "nblpcfg")}
    assert max(means, key=means.get) == "nblpcfg"
    assert bold() == [r"NBL-PCFG$^\dagger$"]
    for seed in SEEDS:
        change_metrics(changeable / f"toy/runs/npcfg/seed{seed}/metrics.json", f1=99.0)
        change_metrics(changeable / f"toy/runs/tnpcfg/seed{seed}/metrics.json", f1=98.96)  # prints the same
    assert bold() == [rf"{name}$^\{sign}$" for name in ("N-PCFG", "TN-PCFG") for sign in ("star", "dagger")]


def test_a_new_model_has_its_rows_and_no_part_in_the_paper_s_claims(complete, paper, tmp_path, monkeypatch):
    claims = write_report(read_results(complete, "toy", PARAMS), paper, tmp_path).claims
    monkeypatch.setitem(settings.MODELS, "mine", Model("Mine", "mine", "Mine", {"NT": 5}, lexicalised=True))
    monkeypatch.setitem(MODELS, "mine", "Mine")
    monkeypatch.setitem(fake_results.RUNS, "mine", ("mine", {"NT": 6, "PT": 12}, 0.99, 0.99, 1.0))
    results = write_results(tmp_path / "more", runs=("mine",)).parent
    shutil.copytree(complete, results, dirs_exist_ok=True)
    assert write_report(read_results(results, "toy"), paper, tmp_path).claims == claims
    rows = rows_of((tmp_path / "main_result.tex").read_text())
    assert [row[1] for row in rows if row[0].startswith("Mine")] == ["6/12", "6/12"]
    assert macro("mine", "mbr", "f1") in (tmp_path / "numbers.tex").read_text()


def test_commands_without_any_run_leave_what_there_is(tmp_path):
    """As in a clone, which has the tables but no runs."""
    (tmp_path / "results" / "toy").mkdir(parents=True)
    out = tmp_path / "out"
    out.mkdir()
    (out / "check.tex").write_text("of others")
    options = ["--corpus", "toy", "--results", tmp_path / "results", "--out", out, "--published", PUBLISHED]
    for verb in ("check", "tables"):
        code, _, err = call(verb, *options, "--params", PROJECT / "params.yaml")
        assert code == 2
        assert "toy holds no finished run of those in" in err
    assert [path.name for path in out.iterdir()] == ["check.tex"]
    assert (out / "check.tex").read_text() == "of others"


def test_without_pdflatex_no_pdf_of_other_numbers_stays(complete, tmp_path, monkeypatch):
    (tmp_path / "paper.pdf").write_text("old")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    options = ["--corpus", "toy", "--results", complete, "--out", tmp_path, "--published", PUBLISHED]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, _, err = call("tables", *options, "--params", tmp_path / "params.yaml")
    assert code == 0
    assert "pdflatex is not installed" in err
    assert not (tmp_path / "paper.pdf").exists()


def test_an_approximate_perplexity_is_marked_and_never_bold(changeable, paper):
    for seed in SEEDS:
        change_metrics(changeable / f"toy/runs/cpcfg/seed{seed}/metrics.json", perplexity=1.0)
    text = tables.label_recall(read_results(changeable, "toy", PARAMS), paper, LATEX)
    rows = {row[0]: row for row in rows_of(text) if row[1] == "ours"}
    assert rows["C-PCFG"][-1] == r"1.0$^{\approx}$$_{\pm 0.0}$"
    assert sum(r"\textbf" in row[-1] for row in rows.values()) == 1
    assert "is approximate" in text


def test_missing_seeds_and_runs_are_marked(changeable, paper, tmp_path):
    runs = changeable / "toy" / "runs"
    (runs / "nlpcfg" / "seed2" / "metrics.json").unlink()
    shutil.rmtree(runs / "tnpcfg")
    shutil.rmtree(changeable / "toy" / "bench")
    (runs / "npcfg" / "seed0" / "predictions.mbr.jsonl").unlink()
    results = read_results(changeable, "toy", PARAMS)
    rows = {row[0]: row for row in reversed(rows_of(tables.main_result(results, paper, LATEX)))}
    assert rows[r"NL-PCFG$^\star$"][2].endswith("(3/4)")
    assert rows[r"TN-PCFG$^\dagger$"][2] == "-- (0/4)"
    assert "/4" not in rows[r"NBL-PCFG$^\star$"][2]
    write_report(results, paper, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_a_report_of_nothing_is_complete(empty_report, tmp_path):
    assert {path.name for path in empty_report.iterdir()} == FILES
    with pytest.raises(UserError, match="no results for 'elsewhere'"):
        read_results(tmp_path, "elsewhere")


def test_two_reports_have_the_same_bytes_and_no_words(complete, paper, report, tmp_path):
    write_report(read_results(complete, "toy", PARAMS), paper, tmp_path)
    for path in sorted(report.iterdir()):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
        if path.suffix in {".tex", ".json"}:
            assert not {word for pair in WORDS for word in pair} & set(re.findall(r"\w+", path.read_text()))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("which", ["report", "empty_report"])
def test_the_document_compiles_to_the_same_bytes(which, request, tmp_path):
    pdfs = []
    for name in ("one", "two"):
        folder = shutil.copytree(request.getfixturevalue(which), tmp_path / name)
        assert compile_document(folder) == ""
        pdfs.append((folder / "paper.pdf").read_bytes())
    assert pdfs[0] == pdfs[1]


@pytest.mark.parametrize("which", ["report", "empty_report"])
def test_the_document_uses_only_numbers_that_there_are(which, request):
    """Also where there are no results: LaTeX must not stop at an undefined macro."""
    folder = request.getfixturevalue(which)
    defined = re.findall(r"\\newcommand\{\\([A-Za-z]+)\}", (folder / "numbers.tex").read_text())
    assert len(defined) == len(set(defined))
    text = (folder / "paper.tex").read_text()
    used = set(re.findall(r"\\([A-Z][A-Za-z]+)", text)) - {"AtBeginDocument", "LTcapwidth"}
    assert len(used) > 40
    assert used <= set(defined)
    for name in re.findall(r"\\(?:input|includegraphics(?:\[.*?\])?)\{(\w+)\}", text):
        assert (folder / f"{name}.tex").exists() or (folder / f"{name}.pdf").exists()


@pytest.mark.parametrize(
    ("corpus", "words"), [("toy", "not comparable"), ("open", "indicative"), ("wsj", "for the same data")]
)
def test_captions_say_what_the_papers_numbers_are_worth(tmp_path, paper, corpus, words):
    write_results(tmp_path, corpus, seeds=(0, 1), runs=("nlpcfg", "nblpcfg"))
    results = read_results(tmp_path, corpus)
    for text in (tables.main_result(results, paper, LATEX), tables.bindings(results, paper, LATEX)):
        assert words in " ".join(text.split())
        assert (re.search(r"\(\$[+-]\$\d", text) is None) == (corpus == "wsj")


def test_results_of_other_settings_are_refused(changeable):
    path = changeable / "toy/runs/nblpcfg/seed1/config.yaml"
    path.write_text(path.read_text().replace("lr: 0.001", "lr: 0.002").replace("d_H: 30", "d_H: 31"))
    with pytest.raises(UserError, match="settings") as error:
        read_results(changeable, "toy", PARAMS)
    told = "nblpcfg/seed1: d_H is 31 there, 30 in params.yaml; lr is 0.002 there, 0.001 in params.yaml"
    assert told in str(error.value)
    with pytest.raises(UserError, match=r"nblpcfg/seed1 and .*seed0 differ in more than the seed"):
        read_results(changeable, "toy")  # a corpus of one's own has no plan


def test_results_of_another_corpus_are_refused(changeable):
    path = changeable / "toy/runs/nblpcfg/seed1/config.yaml"
    path.write_text(path.read_text().replace("name: toy", "name: toy\n  vocabulary_sha256: 0123abcd"))
    with pytest.raises(UserError, match="nblpcfg/seed1 was trained on another corpus"):
        read_results(changeable, "toy", PARAMS)


def test_the_plan_decides_what_counts(changeable):
    """Runs and seeds nobody planned are left out; planned ones without results are expected."""
    runs = changeable / "toy" / "runs"
    shutil.copytree(runs / "npcfg", runs / "npcfg-NT=99")
    shutil.rmtree(runs / "tnpcfg")
    results = read_results(changeable, "toy", fake_params(seeds=(0, 1, 7)))
    assert list(results.plan.experiments) == list(RUNS)
    assert results.summary(results.plan.find("npcfg"), "mbr", "f1").n == 2
    assert results.summary(results.plan.find("npcfg"), "mbr", "f1").expected == 3
    assert results.summary(results.plan.find("tnpcfg"), "mbr", "f1").expected == 3
    assert results.summary(results.plan.find("tnpcfg"), "mbr-legacy", "f1").expected == 0


@pytest.mark.parametrize("name", ["config.yaml", "metrics.json"])
def test_damaged_files_are_named(changeable, name):
    path = changeable / "toy/runs/nblpcfg/seed1" / name
    path.write_text("{")
    with pytest.raises(UserError, match=rf"nblpcfg/seed1/{name} is damaged"):
        read_results(changeable, "toy", PARAMS)


def test_runs_are_found_by_their_settings_not_their_names(changeable):
    runs = changeable / "toy" / "runs"
    (runs / "nblpcfg-binding=D-B").rename(runs / "something")
    (runs / COMPOUND).rename(runs / "else")
    plan = read_results(changeable, "toy").plan
    assert plan.find("nblpcfg-D-B").name == "something"
    assert plan.find("nlpcfg-compound").name == "else"
    assert [e.hyperparameters["d_H"] for e in plan.by_d_H()] == [5, 10, 20, 30, 40, 50]
    assert [e.hyperparameters["NT"] for e in plan.by_NT("nblpcfg")] == [2, 4, 6, 8, 10]
    assert [e.name for e in plan.by_NT("nlpcfg")][2] == "nlpcfg"


def test_self_f1_is_the_mean_agreement_with_the_other_seeds(complete):
    results = read_results(complete, "toy", PARAMS)
    agreements = self_f1(results)
    assert set(agreements) == set(RUNS)
    spans = [
        [{tuple(span[:2]) for span in json.loads(line)["spans"]} for line in path.read_text().splitlines()]
        for path in sorted((complete / "toy/runs/nblpcfg").glob("seed*/predictions.mbr.jsonl"))
    ]
    # All trees have nine words: eight spans, the sentence among them.
    pairs = [fmean((len(a & b) - 1) / 7 for a, b in zip(spans[0], other, strict=True)) for other in spans[1:]]
    assert agreements["nblpcfg"][0] == pytest.approx(100 * fmean(pairs))


def test_preferences_are_in_the_tables_without_a_corpus(changeable):
    """What the fake predictions say, counted here by hand: every sentence begins with DT JJ NN, a gold NP."""
    path = changeable / "toy/runs/nblpcfg/seed0"
    cyk, mbr = (
        [json.loads(line) for line in (path / f"predictions.{decoder}.jsonl").read_text().splitlines()]
        for decoder in ("cyk", "mbr")
    )
    shutil.rmtree(changeable / "toy/corpus")
    results = read_results(changeable, "toy", PARAMS)
    nbl = results.plan.find("nblpcfg")
    trees = [{tuple(span[:2]) for span in record["spans"]} for record in mbr]
    assert results.values(nbl, "mbr", "adjective_noun:phrases")[0] == len(trees)
    left = fmean((0, 3) in tree and (0, 2) in tree for tree in trees)
    assert results.values(nbl, "mbr", "adjective_noun:left")[0] == pytest.approx(100 * left, abs=1e-5)
    shapes = [results.values(nbl, "mbr", f"adjective_noun:{shape}")[0] for shape in ("left", "right", "neither")]
    assert sum(shapes) == pytest.approx(100, abs=1e-5)
    # the one VP of each sentence is [3, 9), its head word 3
    tops = [
        [word for word in range(3, 9) if not 3 < record["heads"][word] <= 9]
        for record in cyk
        if [3, 9] in [span[:2] for span in record["spans"]]
    ]
    single = [words[0] for words in tops if len(words) == 1]
    assert results.values(nbl, "cyk", "gold_left_headed:VP")[0] == 100
    assert results.values(nbl, "cyk", "found:VP")[0] == len(single) > 0
    assert results.values(nbl, "cyk", "right_head:VP")[0] == pytest.approx(
        100 * single.count(3) / len(single), abs=1e-5
    )
    text = tables.qualitative(results)
    assert f"the {len(trees)} gold constituents" in text
    row = next(row for row in rows_of(text) if row[0] == "VP")
    mean = fmean(results.values(nbl, "cyk", "right_head:VP").values())
    assert row[1] == "100.0"
    assert row[-1].startswith(f"{mean:.1f}$")


def test_decoders_table_pairs_right_and_released(complete):
    rows = rows_of(tables.decoders(read_results(complete, "toy", PARAMS), LATEX))
    row = next(row for row in rows if row[0] == r"NL-PCFG$^\star$")
    difference = fmean(f1_of(complete, "nlpcfg", "cyk-legacy")) - fmean(f1_of(complete, "nlpcfg", "cyk"))
    assert row[3] == f"{difference:+.2f}".replace("-", "$-$").replace("+", "$+$")


def test_complexity_finds_the_exponents_that_were_put_in(tmp_path, paper):
    write_results(tmp_path, runs=())
    path = tmp_path / "toy/bench/inside.csv"
    lines = ["implementation,b,l,m,median,low,high,rounds,sgemm_gflops"]
    sizes = [(20, 10), (30, 10), (40, 10), (30, 5), (30, 20), (30, 15)]
    # the longer the sentence, the slower the machine happens to be
    lines += [f"NBL torch,1,{l},{m},{l**3.5 * m**1.5 / rate},1,1,5,{rate}" for l, m in sizes for rate in [100 / l]]
    path.write_text("\n".join(line.replace("NBL torch", '"NBL, torch"') for line in lines) + "\n")
    (row,) = rows_of(tables.complexity(read_results(tmp_path, "toy"), paper))[1:]
    assert row[0] == "NBL, torch"
    assert row[2] == "$O(l^4 d_H + l^3 m d_H)$"
    assert row[3] == "3.50"  # three lengths: no standard error
    assert row[4].startswith("1.50$")


def test_no_row_has_more_cells_than_its_table_has_columns(report):
    for name in ("main_result", "label_recall", "bindings", "corpus", "complexity", "decoders", "qualitative", "seeds"):
        text = (report / f"{name}.tex").read_text()
        for columns, body in re.findall(r"\\begin\{(?:tabular|longtable)\}\{(\w+)\}(.*?)\\end\{", text, re.DOTALL):
            for row in rows_of(body):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", " ".join(row)))
                assert len(row) + spans <= len(columns), (name, row)


def test_published_numbers_are_complete_and_sourced(paper):
    assert len(paper.cells) == 74
    assert all(cell.run in paper.runs and cell.line > 0 for cell in paper.cells)
    by_table = {
        table: [c for c in paper.cells if c.table == table] for table in ("main_result", "bindings", "label_recall")
    }
    assert [len(cells) for cells in by_table.values()] == [23, 16, 35]
    assert paper.find("main_result", "nblpcfg", "mbr", "f1").std == 1.6
    assert paper.find("bindings", "nblpcfg-D-wq", "mbr", "udas").value == 45.7
    quoted = {cell.run for cell in paper.cells if cell.quoted}
    assert quoted == {"npcfg", "cpcfg", "tnpcfg", "nlpcfg-compound", "s-diora", "structformer"}
    keys = [(cell.table, cell.run, cell.decoder, cell.metric) for cell in paper.cells]
    assert len(keys) == len(set(keys))


def test_reports_need_no_torch():
    code = "import sys, nbl.commands.paper; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cells():
    assert LATEX.mean(Summary((1.0, 2.0), 4), approximate=True) == r"1.5$^{\approx}$$_{\pm 0.7}$ (2/4)"
    assert MARKDOWN.mean(Summary((1.0, 2.0), 4), approximate=True) == "≈ 1.5 ± 0.7 (2/4)"
    assert LATEX.text("a_b & 5 %") == r"a\_b \& 5 \%"
    assert macro("nblpcfg-D-wq", "cyk", "f1") == r"\NblpcfgDWqCykFOne"


def test_the_seeds_table_has_every_seed(complete):
    results = read_results(complete, "toy", PARAMS)
    text = tables.seeds(results, self_f1(results))
    assert len([row for row in rows_of(text) if row[1].isdigit()]) == len(RUNS) * len(SEEDS)
    values = f1_of(complete, "nblpcfg", "mbr")
    assert all(f"{value:.2f}" in text for value in values)
    assert rf"\textit{{{fmean(values):.2f}}}$\pm${3.182 * stdev(values) / 2:.2f}" in text
