"""Make the release files: static programs, wheels, an image, a bill of materials, checksums."""
