"""Device time of calls that were never measured, from their shapes and a card's published peaks."""
