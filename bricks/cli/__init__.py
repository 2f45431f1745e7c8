"""The command line: one command a file; each parses, makes one library call, and renders.

Only this package prints and sets exit statuses. No other package imports it.
"""
