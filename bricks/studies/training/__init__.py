"""Trainings: how long a program takes to learn, predicted beside measured, and whether it is right.

The time of a step is recomposed from bricks; loading data and evaluating are measured as a whole.
The number of steps is counted, since no measurement of bricks tells it. Must not render anything.
"""
