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
        maps=shown_paths,
        assessed=assessed_path,
    output:
        page=report(
            "results/report/{experiment}.html",
            caption="../report/report.rst",
            category="Reports",
            labels={"experiment": "{experiment}", "picture": "all, in one page"},
        ),
        charts=[chart(name) for name in CHARTS],
        map=report(
            "results/report/{experiment}/map.png",
            caption="../report/picture.rst",
            category="Maps",
            labels={"experiment": "{experiment}", "picture": "map"},
        ),
    log:
        "logs/report/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(mapped_experiments()),
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=4000,
    params:
        *each(report_settings),
        config=config_path,
        cluster=cluster_path,
    message:
        "Report {wildcards.experiment}"
    shell:
        "landbalance report {wildcards.experiment} --cluster {params.cluster:q}"
        " --config {params.config:q} --results results 2>&1 | tee -i {log:q}"


# A dataset of tiles in folders has no scene and so no map.
use rule report as report_without_map with:
    output:
        page=rules.report.output.page,
        charts=rules.report.output.charts,
    wildcard_constraints:
        experiment=any_of(set(CONFIG.experiments) - set(mapped_experiments())),


rule index:
    input:
        code=sources("report"),
        pages=expand("results/report/{experiment}.html", experiment=CONFIG.experiments),
        predictions=expand("results/evaluate/{experiment}/predictions.parquet", experiment=CONFIG.experiments),
    output:
        page=report(
            "results/report/index.html",
            caption="../report/index.rst",
            category="Reports",
            labels={"experiment": "all", "picture": "overview"},
        ),
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


# Not part of `all`: it is for configurations that repeat experiments with several seeds. A run that ends early leaves
# results that `landbalance compare` shows, the cells without any as missing.
rule compare:
    input:
        code=sources("report"),
        results=compared_paths(),
    output:
        page=report(
            "results/compare/index.html",
            caption="../report/compare.rst",
            category="Reports",
            labels={"experiment": "all", "picture": "arms compared"},
        ),
        picture=report(
            "results/compare/arms.svg",
            caption="../report/compare.rst",
            category="Workers",
            labels={"experiment": "all", "picture": "arms compared"},
        ),
        table="results/compare/arms.csv",
        values="results/compare/arms.json",
    log:
        "logs/compare.log",
    conda:
        "../../envs/landbalance.yaml"
    threads: 1
    resources:
        mem_mb=2000,
    params:
        *each(compare_settings),
        config=config_path,
    message:
        "Compare the arms of all experiments"
    shell:
        "landbalance compare --config {params.config:q} --results results 2>&1 | tee -i {log:q}"
