"""The part of etcd's public wire API that the store uses, under a package name of our own."""
