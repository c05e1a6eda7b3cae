"""``python -m aioproducer``: the command ``aioproducer``, for when its script is not on the PATH."""

from aioproducer.cli import main

if __name__ == "__main__":
    main()
