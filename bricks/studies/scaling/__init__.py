"""Data-parallel training of a recorded program over several ranks, predicted from its bricks."""
