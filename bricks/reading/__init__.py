"""Read model files as :class:`bricks.graph.model.Model`: checked, in one form, without weights.

Reading has to know operators, unlike ``graph``: which constants steer shapes, and which values
count for a model's digest. Must not know bricks or runtimes.
"""
