"""Shared by the fault tests: a server that can be killed, a simple client, and views of files and processes."""
