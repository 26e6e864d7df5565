"""`python -m gate` is the `gate` command."""

from gate.cli import main

if __name__ == "__main__":
    main()
