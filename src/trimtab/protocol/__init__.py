"""What is said between brokers and clients: messages, events, effects and errors, and their form as bytes."""
