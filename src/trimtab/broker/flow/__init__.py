"""What flows in and out: input queues, limits, and the order in which outgoing traffic leaves."""
