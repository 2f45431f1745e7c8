"""A server that answers what a model takes on every known system, as pages and as JSON.

Its modules: limits, desk (the one workspace and its answers), jobs (models that wait for
decomposing), guard (what every request must keep), pages, openapi, app (the routes) and server.
"""
