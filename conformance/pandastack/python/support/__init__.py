"""What the tests share: where the server is, raw HTTP, waiting, workspaces of their own."""
