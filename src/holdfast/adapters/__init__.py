"""The only code that uses boto3, HTTP or SQL."""
