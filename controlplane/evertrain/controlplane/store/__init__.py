"""Durable state: one protocol (``api``), three stores (memory, embedded, etcd), one contract test suite."""
