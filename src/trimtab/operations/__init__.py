"""What operators use beside brokers: what-if plans, the demonstration, load, and the emergency application."""
