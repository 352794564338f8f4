rule evaluate:
    input:
        code=sources("evaluate"),
        tiles=tile_paths,
        weights="results/train/{experiment}/model.safetensors",
        card="results/train/{experiment}/model.json",
    output:
        metrics="results/evaluate/{experiment}/metrics.json",
        confusion="results/evaluate/{experiment}/confusion.csv",
        predictions="results/evaluate/{experiment}/predictions.parquet",
    log:
        "logs/evaluate/{experiment}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: cores(fastest)
    resources:
        mem_mb=memory(fastest, EVALUATE_MB),
        runtime=time_limit(fastest),
        slurm_partition=slurm("partition", fastest),
        slurm_account=slurm("account", fastest),
        constraint=slurm("constraint", fastest),
        qos=slurm("qos", fastest),
        gres=slurm("gres", fastest),
    params:
        *each(evaluate_settings),
        config=config_path,
    message:
        "Judge {wildcards.experiment} on the test split"
    shell:
        "landbalance evaluate {wildcards.experiment} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
