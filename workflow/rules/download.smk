rule download:
    input:
        code=sources("download"),
        local=local_files,
    output:
        manifest="results/download/{dataset}/manifest.json",
    log:
        "logs/download/{dataset}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=2000,
    params:
        *each(download_settings),
        config=config_path,
    message:
        "Fetch the sources of {wildcards.dataset}"
    shell:
        "landbalance download {wildcards.dataset} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
