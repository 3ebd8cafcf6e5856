# Treebank or text -> sentences, vocabulary, statistics.


rule corpus_all:
    input:
        CORPUS_FILES,
    message:
        f"The corpus {CORPUS} is prepared"


rule corpus:
    input:
        files=matrix.source_files(SETTINGS),
        code=code_of("nbl.corpus.*"),
    output:
        CORPUS_FILES,
    log:
        f"{LOGS}/corpus.log",
    benchmark:
        f"{LOGS}/corpus.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    params:
        options=PREPARE,
    message:
        f"Prepare the corpus {CORPUS}"
    shell:
        f"nbl prepare --out {RESULTS}/corpus {{params.options}} > {{log}} 2>&1"
