rule plan:
    input:
        code=sources("plan"),
        profiles=profile_paths,
        tiles=tile_paths,
    output:
        plan="results/plan/{experiment}.json",
        picture="results/plan/{experiment}.svg",
    log:
        "logs/plan/{experiment}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=2000,
    params:
        *each(plan_settings),
        config=config_path,
        cluster=cluster_path,
    message:
        "Share the batch of {wildcards.experiment} among the workers"
    shell:
        "landbalance plan {wildcards.experiment} --cluster {params.cluster:q}"
        " --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
