rule tile:
    input:
        code=sources("tile"),
        manifest="results/download/{dataset}/manifest.json",
    output:
        index="results/tile/{dataset}/index.parquet",
        statistics="results/tile/{dataset}/statistics.json",
    log:
        "logs/tile/{dataset}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=memory(general, 4000),
        runtime=slurm("minutes", general, 240),
        slurm_partition=slurm("partition", general),
        slurm_account=slurm("account", general),
        constraint=slurm("constraint", general),
        qos=slurm("qos", general),
    params:
        *each(tile_settings),
        config=config_path,
    message:
        "Cut {wildcards.dataset} into tiles"
    shell:
        "landbalance tile {wildcards.dataset} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
