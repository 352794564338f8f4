"""Results that were made on other machines and are still valid: nothing is measured, planned or trained again for them.

After a full run on a cluster, the same folder has nothing to do on a laptop, and the other way round, as long as data,
settings and code are the same. So each experiment has a record of the cluster description that it was made with; another
description only counts when the experiment has to be trained again. A change within one description always counts.
"""

from landbalance.workflow import record_site, recorded_cluster


def site():
    """Return the name of the cluster description in use: its path."""
    return str(CLUSTER_FILE)


def record_of(experiment):
    """Return the path of the record of where an experiment was made."""
    return RESULTS / "settings" / "site" / f"{experiment}.json"


@functools.cache
def own_cluster(experiment):
    """Return what an experiment may use of the cluster description in use."""
    return CLUSTER.limited_to(CONFIG.experiments[experiment].nodes)


@functools.cache
def cluster_of(experiment):
    """Return the cluster description that counts for an experiment."""
    made = all((RESULTS / "train" / experiment / name).exists() for name in ("model.safetensors", "run.json"))
    if CLUSTER.retrain or not made:
        return own_cluster(experiment)
    return recorded_cluster(record_of(experiment), site(), science(experiment)) or own_cluster(experiment)


def science(experiment):
    """Return a digest of all that decides an experiment's model: data, settings, code."""
    wildcards = SimpleNamespace(experiment=experiment, dataset=CONFIG.experiments[experiment].dataset)
    settings = [*download_settings(wildcards), *tile_settings(wildcards), *train_settings(wildcards)]
    settings += [digest(stage) for stage in ("download", "tile")]
    return hashlib.sha256("\n".join(settings).encode()).hexdigest()


def all_nodes():
    """Return the kinds of nodes of this run's cluster description, and of those that results were made with."""
    clusters = [CLUSTER, *map(cluster_of, CONFIG.experiments)]
    return list({node.name: node for cluster in reversed(clusters) for node in cluster.nodes}.values())


def node_called(name):
    """Return a kind of node by its name."""
    return next(node for node in all_nodes() if node.name == name)


def record_sites():
    """Note with which cluster description the experiments were made, after a run that left nothing to do."""
    for experiment in CONFIG.experiments:
        if cluster_of(experiment) is own_cluster(experiment):
            plan = RESULTS / "plan" / f"{experiment}.json"
            record_site(record_of(experiment), plan, site(), science(experiment), own_cluster(experiment))
