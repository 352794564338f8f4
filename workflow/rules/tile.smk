# Each scene is cut by a job of its own; the stage then draws the splits and lists all tiles. A scene whose files and
# settings are what they were is left as it is, also when the manifest is new: so an added scene is the only one cut.
rule tile_scene:
    input:
        code=sources("tile"),
        manifest="results/download/{dataset}/manifest.json",
    output:
        # The tiles lie in a folder of this name. They are no output, which would be deleted before the job.
        note="results/tile/{dataset}/scenes/{scene}.json",
    log:
        "logs/tile/{dataset}/{scene}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: cores(general)
    resources:
        mem_mb=memory(general, 4000),
        runtime=time_limit(general),
        slurm_partition=slurm("partition", general),
        slurm_account=slurm("account", general),
        constraint=slurm("constraint", general),
        qos=slurm("qos", general),
    params:
        *each(cut_settings),
        config=config_path,
    message:
        "Cut {wildcards.scene} of {wildcards.dataset} into tiles"
    shell:
        "landbalance tile {wildcards.dataset} --scene {wildcards.scene} --config {params.config:q} --results results"
        " 2>&1 | tee -i {log:q}"


rule tile:
    input:
        code=sources("tile"),
        manifest="results/download/{dataset}/manifest.json",
        scenes=scene_notes,
    output:
        index="results/tile/{dataset}/index.parquet",
        statistics="results/tile/{dataset}/statistics.json",
    log:
        "logs/tile/{dataset}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: tile_cores
    resources:
        mem_mb=memory(general, 4000),
        runtime=time_limit(general),
        slurm_partition=slurm("partition", general),
        slurm_account=slurm("account", general),
        constraint=slurm("constraint", general),
        qos=slurm("qos", general),
    params:
        *each(tile_settings),
        config=config_path,
    message:
        "Split the tiles of {wildcards.dataset}"
    shell:
        "landbalance tile {wildcards.dataset} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
