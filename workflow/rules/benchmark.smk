# The speed of the inside algorithms on this machine.


rule benchmark_all:
    input:
        expand(f"{RESULTS}/bench/{{part}}.csv", part=SETTINGS["benchmark"]["parts"]),
    message:
        "The speed is measured"


# With all cores for itself, it runs alone, so that no other job disturbs the measurement. A cluster's profile sets
# the threads instead, before they are asked for here.
rule benchmark:
    input:
        # Of training, the step alone is measured.
        code=code_of(
            "nbl.bench.*", "nbl.models.*", without=["nbl.corpus", "nbl.metrics"]
        ),
    output:
        rules.benchmark_all.input,
        f"{RESULTS}/bench/summary.json",
    log:
        f"{LOGS}/benchmark.log",
    benchmark:
        f"{LOGS}/benchmark.benchmark.tsv"
    conda:
        "../envs/nbl.yaml"
    threads: lambda wildcards: workflow.cores
    params:
        options=" ".join(
            [f"--part {part}" for part in SETTINGS["benchmark"]["parts"]]
            + ["--quick"] * SETTINGS["benchmark"]["quick"]
            + [f"--rounds {SETTINGS['benchmark']['rounds']}"]
        ),
    message:
        "Measure the speed of the inside algorithms, alone on the machine"
    shell:
        f"nbl bench --out {RESULTS}/bench {{params.options}} > {{log}} 2>&1"
