"""Basics that every package uses: ids, time, errors, settings, backoff. No I/O."""
