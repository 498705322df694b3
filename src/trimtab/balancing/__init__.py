"""Moving subscribers between brokers so that no broker carries too much."""
