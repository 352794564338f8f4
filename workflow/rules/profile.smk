rule profile_settings:
    output:
        settings="results/settings/profile/{dataset}/{model}/{node}.txt",
    log:
        "logs/settings/profile/{dataset}/{model}/{node}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=400,
    params:
        *each(profile_settings),
    message:
        "Note the settings of measuring {wildcards.model} on node {wildcards.node}"
    shell:
        "printf '%s\\n' {params:q} > {output.settings:q} 2> {log:q}"


rule profile:
    input:
        settings="results/settings/profile/{dataset}/{model}/{node}.txt",
        # A step takes as long whatever the tiles show; their shape is among the settings.
        statistics=ancient("results/tile/{dataset}/statistics.json"),
    output:
        profile="results/profile/{dataset}/{model}/{node}.json",
        picture="results/profile/{dataset}/{model}/{node}.svg",
    log:
        "logs/profile/{dataset}/{model}/{node}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: node_threads
    resources:
        mem_mb=memory(measured),
        runtime=time_limit(measured),
        slurm_partition=slurm("partition", measured),
        slurm_account=slurm("account", measured),
        constraint=slurm("constraint", measured),
        qos=slurm("qos", measured),
        gres=slurm("gres", measured),
        slurm_extra=alone,
    params:
        config=config_path,
        cluster=cluster_path,
    message:
        "Measure training steps of {wildcards.model} on node {wildcards.node}"
    shell:
        "landbalance profile {wildcards.dataset} {wildcards.model} {wildcards.node} --cluster {params.cluster:q}"
        " --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
