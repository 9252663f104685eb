"""The command line for operators and researchers: ``ctl``. Talks to a coordinator; decides nothing about jobs."""
