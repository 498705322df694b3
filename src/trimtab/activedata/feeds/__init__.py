"""Feeds: records from files, the service and the overlay, taken once and durably."""
