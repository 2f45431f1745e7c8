"""A server that answers what a model takes on every known system, as pages and as JSON.

Its modules: server_limits; answer_question, answer_service, answer_rows and answer_page (a model on
all systems), questioned_models and model_work (uploads and other batches), study_pages, study_form,
study_service (any study with a page); jobs (the queue), guard (checks of every
request), requests, pages, openapi, model_routes, study_routes, app and server.
"""
