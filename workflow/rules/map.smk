rule map:
    input:
        code=sources("map"),
        manifest=manifest_path,
        weights="results/train/{experiment}/model.safetensors",
        card="results/train/{experiment}/model.json",
    output:
        map=report(
            "results/map/{experiment}/{scene}.tif",
            caption="../report/map.rst",
            category="Maps",
            labels={"experiment": "{experiment}", "scene": "{scene}"},
        ),
        style="results/map/{experiment}/{scene}.qml",
    log:
        "logs/map/{experiment}/{scene}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 4  # as far as there are as many
    resources:
        mem_mb=memory(fastest, 4000),
        runtime=slurm("minutes", fastest, 240),
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
