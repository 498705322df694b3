"""A live view of a running network in the browser."""
