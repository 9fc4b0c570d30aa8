"""Spot notices: what EC2 announces, and the replacement of machines that leave."""
