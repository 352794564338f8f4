rule report:
    input:
        code=sources("report"),
        manifest=manifest_path,
        tiles=tile_paths,
        profiles=profile_paths,
        plan="results/plan/{experiment}.json",
        card="results/train/{experiment}/model.json",
        history="results/train/{experiment}/history.parquet",
        timing="results/train/{experiment}/timing.parquet",
        run="results/train/{experiment}/run.json",
        metrics="results/evaluate/{experiment}/metrics.json",
        equal=equal_run_paths,
        maps=lambda wildcards: map_paths(wildcards.experiment),
    output:
        page=report(
            "results/report/{experiment}.html",
            caption="../report/report.rst",
            category="Reports",
            labels={"experiment": "{experiment}", "file": "report"},
        ),
        # map.png lies beside them, but only for a dataset with scenes, so it cannot be declared.
        figures=report(
            multiext("results/report/{experiment}/", "confusion.svg", "curves.svg", "workers.svg"),
            caption="../report/figure.rst",
            category="Reports",
            labels={"experiment": "{experiment}", "file": "figure"},
        ),
    log:
        "logs/report/{experiment}.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=4000,
    params:
        *each(report_settings),
        config=config_path,
    message:
        "Report {wildcards.experiment}"
    shell:
        "landbalance report {wildcards.experiment} --config {params.config:q} --results results 2>&1 | tee -i {log:q}"


rule index:
    input:
        code=sources("report"),
        pages=expand("results/report/{experiment}.html", experiment=CONFIG.experiments),
    output:
        page=report("results/report/index.html", caption="../report/index.rst", category="Reports"),
    log:
        "logs/report/index.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=2000,
    params:
        *each(index_settings),
        config=config_path,
    message:
        "Write the overview of all experiments"
    shell:
        "landbalance report --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
