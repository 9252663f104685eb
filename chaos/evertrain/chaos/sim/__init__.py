"""The control plane in virtual time: real decisions and shells, simulated machines. One seed, one history."""
