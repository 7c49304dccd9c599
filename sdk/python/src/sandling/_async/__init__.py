"""The client's source. ``sandling._sync`` is made from it by ``scripts/generate_sync.py``; change this, not that."""
