"""The command line: one command a file, each parses, makes one call of the library, and renders.

Only this room prints and sets exit statuses. Nothing imports it.
"""
