rule map:
    input:
        code=sources("map"),
        manifest=manifest_path,
        weights="results/train/{experiment}/model.safetensors",
        card="results/train/{experiment}/model.json",
    output:
        # Not in `snakemake --report`, which would embed whole scenes; the report's map.png stands there.
        map="results/map/{experiment}/{scene}.tif",
        # The style, and what the settings ask for besides.
        beside=expand("results/map/{{experiment}}/{{scene}}.{ending}", ending=CONFIG.map.endings[1:]),
    log:
        "logs/map/{experiment}/{scene}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: cores(fastest)
    resources:
        mem_mb=memory(fastest, 4000),
        runtime=time_limit(fastest),
        slurm_partition=slurm("partition", fastest),
        slurm_account=slurm("account", fastest),
        constraint=slurm("constraint", fastest),
        qos=slurm("qos", fastest),
        gres=slurm("gres", fastest),
    params:
        *each(map_settings),
        config=config_path,
    message:
        "Map {wildcards.scene} with {wildcards.experiment}"
    shell:
        "landbalance map {wildcards.experiment} {wildcards.scene}"
        " --config {params.config:q} --results results 2>&1 | tee -i {log:q}"


rule mosaic:
    input:
        code=sources("map"),
        maps=lambda wildcards: map_paths(wildcards.experiment),
    output:
        map="results/map/{experiment}/mosaic.tif",
        style="results/map/{experiment}/mosaic.qml",
    log:
        "logs/mosaic/{experiment}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=memory(general, 2000),
        runtime=time_limit(general),
        slurm_partition=slurm("partition", general),
        slurm_account=slurm("account", general),
        constraint=slurm("constraint", general),
        qos=slurm("qos", general),
    params:
        *each(mosaic_settings),
        config=config_path,
    message:
        "Lay the maps of {wildcards.experiment} together"
    shell:
        "landbalance mosaic {wildcards.experiment} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
