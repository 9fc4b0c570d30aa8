"""Helpers for working on Holdfast. They run on bare Python, before anything is installed, unless they say otherwise."""
