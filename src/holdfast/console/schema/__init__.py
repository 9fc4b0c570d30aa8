"""JSON Schemas and the OpenAPI document."""
