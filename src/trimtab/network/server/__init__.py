"""One broker in one process: its sockets, disk, meters and end. Begin with `broker_process`."""
