rule train_settings:
    output:
        settings="results/settings/train/{experiment}.txt",
    log:
        "logs/settings/train/{experiment}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=400,
    params:
        *each(train_settings),
    message:
        "Note the settings of training {wildcards.experiment}"
    shell:
        "printf '%s\\n' {params:q} > {output.settings:q} 2> {log:q}"


rule train:
    input:
        settings="results/settings/train/{experiment}.txt",
        tiles=tile_paths,
        plan=plan_to_train_by,
        weights=starting_weights_path,
    output:
        # Not the checkpoints beside them: Snakemake deletes outputs before it tries again.
        weights="results/train/{experiment}/model.safetensors",
        card="results/train/{experiment}/model.json",
        history="results/train/{experiment}/history.parquet",
        timing="results/train/{experiment}/timing.parquet",
        run="results/train/{experiment}/run.json",
    log:
        "logs/train/{experiment}.log",
    # On nodes from Slurm this job only submits the one that trains, and follows it.
    localrule: CLUSTER.from_slurm
    conda:
        "../../envs/landbalance.yaml"
    threads: 1 if CLUSTER.from_slurm else node_threads
    resources:
        mem_mb=8000,
        attempt=lambda wildcards, attempt: attempt,
    params:
        config=config_path,
        cluster=cluster_path,
    message:
        "Train {wildcards.experiment} on all workers of its plan"
    shell:
        "landbalance train {wildcards.experiment} --cluster {params.cluster:q} --attempt {resources.attempt}"
        " --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
