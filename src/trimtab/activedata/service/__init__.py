"""The JSON service of an active-data process, and what its status tells."""
