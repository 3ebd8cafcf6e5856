# Results -> one file of metrics and one of training curves, the paper's tables and figures.
TEX = "main_result label_recall bindings seeds corpus complexity decoders qualitative"
TEX += " numbers check bayesnet paper"
FIGURES = "f1_perp_rank f1_perp_nt das_h das_nt time_length time_nt"
COLLECTED = multiext(
    f"{RESULTS}/",
    "metrics.json",
    *["seeds.csv", "history.csv", "d_H.csv", "nonterminals.csv"],
)
REPORT = [
    *expand(f"{TABLES}/{{name}}.tex", name=TEX.split()),
    *expand(f"{TABLES}/{{name}}.{{kind}}", name=FIGURES.split(), kind=["pdf", "png"]),
    f"{TABLES}/check.json",
]


rule report_all:
    input:
        COLLECTED,
        REPORT,
    message:
        f"All tables and figures are in {TABLES}"


rule collect:
    input:
        made(run_files("train.sha256", "evaluate.sha256")),
        code=code_of("nbl.collect"),
    output:
        COLLECTED,
    log:
        f"{LOGS}/collect.log",
    benchmark:
        f"{LOGS}/collect.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    params:
        selection=SELECTION,
    message:
        "Collect scores and training curves of all runs"
    shell:
        "nbl collect --config {params.selection:q} --results results > {log} 2>&1"


rule report:
    input:
        made(run_files("evaluate.sha256")),
        COLLECTED,
        f"{RESULTS}/corpus/stats.json",
        bench=made(rules.benchmark_all.input),
        code=code_of("nbl.paper.document"),
    output:
        REPORT,
    log:
        f"{LOGS}/report.log",
    benchmark:
        f"{LOGS}/report.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    message:
        f"Write tables and figures to {TABLES}"
    shell:
        f"nbl tables --corpus {CORPUS} --results results --out {TABLES} > {{log}} 2>&1"
