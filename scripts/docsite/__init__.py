"""The documentation site: gathers its pages, builds it, and checks its links."""
