"""Show results to people: tables in a terminal, pictures, pages and traces.

Here so that data stays free of rendering. Must not compute results, only format them.
"""
