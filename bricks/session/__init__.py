"""A session of measuring and predicting: a cache, a runtime on this host, one set of options.

Here so that studies, analyses and commands get one object, a
:class:`~bricks.session.workspace.Workspace`. Must not render anything.

    options.py              the options, checked, and the target that they describe
    resources.py            what is open: cache, published data, worker
    plans.py                models decomposed; their plans in caches, on any target
    measured_target.py      results of a target
    latency_model.py        a predictor learned from these; latencies.py learns again when needed
    estimator.py            estimates of plans, from all measurements or this host's
    campaigns.py            measuring; adaptive.py decides which bricks
    workspace.py            ``Workspace``, which has all of these
    networks.py             collectives measured between ranks

Questions to a workspace are functions of it: measuring.py, predicting.py, machine_peaks.py,
whole_models.py, batch.py.
"""
