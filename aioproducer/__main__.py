"""``python -m aioproducer``: the ``aioproducer`` command when its script is not on the PATH."""

from aioproducer.cli import main

if __name__ == "__main__":
    main()
