"""A naive balancer as a baseline: random clients to a random broker that is less loaded."""
