"""The replication paper's experiments: a broker that fails or is congested between its neighbours."""
