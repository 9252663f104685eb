"""Checkers: what must hold of every run, whatever breaks. They watch the history while it is made."""
