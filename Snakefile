# The whole workflow: download → tile → profile → plan → train → evaluate → map → report.
# What is computed stands in config.yaml, where in a profile, each stage in workflow/rules/<stage>.smk.
from snakemake.utils import min_version

min_version("9.0")


# A file named by --configfile takes the place of config.yaml; the two are not mixed.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/sites.smk"
include: "workflow/rules/paths.smk"
include: "workflow/rules/resources.smk"


try:
    CONFIG = checked_config()
    CLUSTER_FILE = cluster_file()
    CLUSTER = load_cluster(CLUSTER_FILE)
    if workflow.is_main_process:
        check_run(CONFIG, CLUSTER, "configuration", str(CLUSTER_FILE))
        check_site(CLUSTER, str(CLUSTER_FILE))
except UserError as error:
    sys.exit(f"error: {error}")
use_own_commands()


wildcard_constraints:
    dataset=any_of(CONFIG.datasets),
    model=any_of(CONFIG.models),
    experiment=any_of(CONFIG.experiments),
    scene=any_of(name for dataset in CONFIG.datasets.values() for name in dataset.scenes),
    node=any_of(node.name for node in all_nodes()),


include: "workflow/rules/download.smk"
include: "workflow/rules/tile.smk"
include: "workflow/rules/profile.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/map.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    download,  # compute nodes often have no way to the internet
    plan,
    report,
    index,
    compare,
    profile_settings,
    train_settings,


# Not during a dry run, which leaves no file behind.
onstart:
    freeze(CONFIG, RESULTS)
    show_alive(log)
    if workflow.execution_settings.lock:
        cancel_orphans(Path(".snakemake", "log"))


onsuccess:
    record_sites()


onerror:
    show_failures(CONFIG, CLUSTER_FILE, RESULTS)


# All that one looks at, so that a lost file is made again.
rule all:
    default_target: True
    input:
        expand(rules.plan.output, experiment=CONFIG.experiments),
        expand(rules.train.output, experiment=CONFIG.experiments),
        expand(rules.evaluate.output, experiment=CONFIG.experiments),
        [path for experiment in CONFIG.experiments for path in all_map_paths(experiment)],
        [path for experiment in CONFIG.experiments for path in report_paths(experiment)],
        rules.index.output,
    message:
        "All results are there; open results/report/index.html"
