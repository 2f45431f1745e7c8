"""Answers to questions about many models, bricks and targets at once.

Here so that the main path stays short. Must not render anything.
"""
