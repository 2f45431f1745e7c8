"""A server that answers what a model takes on every known system, as pages and as JSON.

Its modules: server_limits; answers and answer_service (a model on all systems), questioned_models
(uploads and other batches), study_pages and study_routes (any study with a page); jobs (the queue),
requests (checks of every request, and what handlers share), pages, openapi, model_routes, app and
server.
"""
