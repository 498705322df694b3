"""Load on a running network from one process, and an account of what it got."""
