"""AWS's APIs through boto3."""
