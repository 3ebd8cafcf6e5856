# Corpus -> trained grammars -> predictions and metrics, for every run of the matrix.


rule runs:
    input:
        run_files("train.sha256", "evaluate.sha256", "metrics.json"),
    message:
        "All runs are made"


# A run that was interrupted has a resume.pt in its folder and goes on from it. What an older model of the run made
# of the test sentences goes at once: should the training fail, it must not be taken for the new one's. If the clock was
# set back while it trained, what went in is from the future now, and Snakemake would throw away what came out. If
# Snakemake was killed, it throws away what a training came to since; finished.pt, which lasts until the run is evaluated,
# brings it back.
rule train:
    input:
        corpus=CORPUS_FILES,
        code=grammar_code("nbl.train"),
    output:
        f"{RUN}/config.yaml",
        f"{RUN}/vocab.txt",
        f"{RUN}/history.csv",
        f"{RUN}/checkpoint.pt",
        sums=f"{RUN}/train.sha256",
    log:
        f"{LOGS}/{{run}}/seed{{seed}}.train.log",
    benchmark:
        f"{LOGS}/{{run}}/seed{{seed}}.train.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    threads: 1
    resources:
        gpu=int(SETTINGS["device"] != "cpu"),
    params:
        options=lambda wildcards: (
            f"--model {EXPERIMENTS[wildcards.run].model} --device {SETTINGS['device']}"
            f" --set {' '.join(EXPERIMENTS[wildcards.run].assignments)}"
        ),
    message:
        "Train {wildcards.run}, seed {wildcards.seed}"
    shell:
        "(folder=$(dirname {output.sums:q}); "
        "rm -f $folder/evaluate.sha256 $folder/metrics.json $folder/predictions.*; "
        f"nbl train --corpus-dir {RESULTS}/corpus --out $folder --replace --keep-state"
        " --seed {wildcards.seed} {params.options}; "
        "(cd $folder; sha256sum config.yaml vocab.txt history.csv checkpoint.pt > train.new); "
        "mv $folder/train.new {output.sums:q}; "
        "find {input:q} -newer {output.sums:q} -exec touch {{}} + || true"
        ") > {log} 2>&1"


rule evaluate:
    input:
        run=multiext(f"{RUN}/", "config.yaml", "checkpoint.pt"),
        corpus=CORPUS_FILES,
        code=grammar_code("nbl.predict", "nbl.evaluate"),
    output:
        f"{RUN}/metrics.json",
        f"{RUN}/predictions.mbr.jsonl",
        sums=f"{RUN}/evaluate.sha256",
    log:
        f"{LOGS}/{{run}}/seed{{seed}}.evaluate.log",
    benchmark:
        f"{LOGS}/{{run}}/seed{{seed}}.evaluate.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    threads: 1
    resources:
        gpu=int(SETTINGS["device"] != "cpu"),
    params:
        options=lambda wildcards: (
            f"--device {SETTINGS['device']}"
            f" --decoder {' '.join(EXPERIMENTS[wildcards.run].decoders)}"
        ),
    message:
        "Parse and score {wildcards.run}, seed {wildcards.seed}"
    shell:
        "(folder=$(dirname {output.sums:q}); "
        f"nbl evaluate $folder --corpus-dir {RESULTS}/corpus {{params.options}}; "
        "cd $folder; sha256sum metrics.json predictions.*.jsonl > evaluate.new; "
        "mv evaluate.new evaluate.sha256; rm -f finished.pt"
        ") > {log} 2>&1"
