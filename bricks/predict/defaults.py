"""Limits of predictions, for the command line too, which should not import the predictors."""

# The least number of measured bricks from which a predictor is learned.
MIN = 30
