"""The web application: routes, access, API, webhooks."""
