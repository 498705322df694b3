"""The commands on a running network: start it, publish, subscribe, watch it, change it. Begin with `commands`."""
