"""One broker process beside NATS, JetStream and Mosquitto in the same run. Begin with `plane`."""
