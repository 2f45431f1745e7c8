"""Show results to people: tables in a terminal.

Here so that data stays free of rendering. Must not compute results, only format them.
"""
