"""The version of this package, as brokers see it too."""

VERSION = "0.1.0"
