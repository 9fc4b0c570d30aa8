"""The only code that knows boto3, HTTP or SQL."""
