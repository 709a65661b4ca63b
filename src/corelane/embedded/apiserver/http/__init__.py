"""HTTP: connections, negotiation, authentication, and one handler for each verb on a resource."""
