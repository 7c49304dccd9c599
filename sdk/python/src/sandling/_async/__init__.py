"""The source of both clients. ``scripts/generate_sync.py`` generates ``sandling._sync`` from it; edit only this one."""
