"""A server that answers what a model takes on every known system, as pages and as JSON.

Its modules: server_limits, answer_service (the workspace and its answers), jobs (the queue of
models), guard (checks of every request), answer_rows, pages, openapi, app (the routes) and server.
"""
