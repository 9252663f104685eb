"""The local cluster: a coordinator and agents on this machine, started by ``ctl up`` and ended by ``ctl down``."""
