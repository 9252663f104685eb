"""gRPC in front of the shell: translate, hand over, answer."""
