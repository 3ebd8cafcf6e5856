# Treebank or text -> sentences, vocabulary, statistics.


rule corpus_all:
    input:
        corpus_files(config["corpus"]),


rule corpus:
    input:
        code=modules("corpus/*.py", "metrics.py", "baselines.py", "files.py"),
    output:
        corpus_files("{corpus}"),
    log:
        "logs/{corpus}/corpus.log",
    benchmark:
        "logs/{corpus}/corpus.benchmark.tsv"
    wildcard_constraints:
        corpus=CORPORA,
    params:
        source=lambda wildcards: option(
            "--source", config["corpora"][wildcards.corpus]["source"]
        ),
        max_words=config["max_words"],
        min_count=lambda wildcards: config["corpora"][wildcards.corpus]["min_count"],
    shell:
        "nbl prepare --corpus {wildcards.corpus} --out results/{wildcards.corpus}/corpus"
        " {params.source:q} --max-words {params.max_words}"
        " --min-count {params.min_count} > {log} 2>&1"
