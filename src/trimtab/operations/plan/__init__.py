"""What-if: a running network goes on in the simulator, as it is and as planned. Begin with `plan`."""
