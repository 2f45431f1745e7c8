"""The main path as one object: a cache, a runtime on this host, and the granularity of models.

Here so that a program needs one name, :class:`~bricks.api.bench.Bench`. Must not render
anything.
"""
