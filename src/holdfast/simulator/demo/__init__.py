"""The demo world of `holdfast run`: an ordinary day in a cluster and a GitHub organisation, stored in a file."""
