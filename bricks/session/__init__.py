"""A session of measuring and predicting: a cache, a runtime on this host, one set of options.

Here so that studies, analyses and commands get one object, a
:class:`~bricks.session.workspace.Workspace`. Must not render anything.

    options.py, setup.py    the options, checked, and the target that they describe
    resources.py            what is open: cache, published data, worker
    plans.py                models decomposed; known_plans.py: their plans in caches, on any target
    measured_target.py      results of a target; source_targets.py: other targets to learn from
    latency_model.py        a predictor learned from these; latencies.py learns again when needed
    estimator.py            estimates of plans; estimators.py chooses their measurements
    campaigns.py            measuring; adaptive.py decides which bricks
    workspace.py            ``Workspace``, which has all of these
    networks.py             collectives measured between ranks; local_networks.py: on this host

Questions to a workspace are functions of it: measuring.py, predicting.py, probing.py,
peak_memory.py, machine_peaks.py, whole_models.py, batch.py.
"""
