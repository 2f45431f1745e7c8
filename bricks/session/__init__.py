"""The main path as one object: a cache, a runtime on this host, and how models are cut.

Here so that a program needs one name, :class:`~bricks.session.bench.Bench`. Must not render
anything.
"""
