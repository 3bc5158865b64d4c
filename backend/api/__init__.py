"""The FastAPI application: routes, middleware and dependencies."""
