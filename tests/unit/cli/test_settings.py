"""The sources of a command's producer configs, and their precedence."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.settings import configs_of, make_producer


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """A .properties file of a Java program."""
    path = tmp_path / "producer.properties"
    path.write_text(
        "bootstrap.servers=file:1\nclient.id=file\nlinger.ms=1\ncompression.type=gzip\nmetric.reporters=x.Y\n"
    )
    return path


def shown(**options: object) -> str:
    """Servers and client id, as in the producer's repr."""
    return repr(make_producer(**options))  # type: ignore[arg-type]


def test_the_file_alone(properties: Path) -> None:
    assert shown(properties=properties) == "<Producer file of file:1>"


def test_the_server_at_this_machine_is_the_default() -> None:
    assert shown(configs=["client.id=me"]) == "<Producer me of localhost:9092>"


def test_configs_win_over_the_file_in_either_way_of_writing(properties: Path) -> None:
    assert shown(properties=properties, configs=["client_id=mine"]) == "<Producer mine of file:1>"
    assert shown(properties=properties, configs=["client.id=mine"]) == "<Producer mine of file:1>"


def test_the_last_of_equal_configs_wins() -> None:
    assert shown(configs=["client.id=one", "client_id=two"]) == "<Producer two of localhost:9092>"
    assert shown(configs=["client.id=one", "client_id=two", "client.id=three"]) == (
        "<Producer three of localhost:9092>"
    )


def test_own_options_win_over_all(properties: Path) -> None:
    options = {"properties": properties, "configs": ["bootstrap.servers=config:1"], "bootstrap": "option:1"}
    assert shown(**options) == "<Producer file of option:1>"


def test_a_file_needs_no_servers_where_an_option_names_them(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("client.id=file\n")
    assert shown(properties=path, bootstrap="option:1") == "<Producer file of option:1>"


def test_the_compression_option_is_checked_after_it_has_won(properties: Path) -> None:
    with pytest.raises(CommandError, match="compression_type"):
        make_producer(properties, bootstrap="a:1", compression="rar")
    make_producer(properties, ["compression.type=rar"], compression="lz4")


def test_values_may_hold_an_equals_sign() -> None:
    assert shown(configs=["client.id=a=b"]) == "<Producer a=b of localhost:9092>"


@pytest.mark.parametrize("config", ["s3cret", "=s3cret", ""])
def test_a_config_without_a_name_is_refused_and_not_shown(config: str) -> None:
    with pytest.raises(CommandError, match="takes name=value") as refused:
        make_producer(configs=[config])
    assert "s3cret" not in str(refused.value)


def test_transactions_are_not_for_rows() -> None:
    with pytest.raises(CommandError, match=r"transactional\.id"):
        make_producer(configs=["transactional_id=orders"])


@pytest.mark.parametrize("name", ["String", "ByteArray", "Bytes", "ByteBuffer"])
def test_serializers_that_leave_rows_as_they_are(name: str) -> None:
    """A file shared with a Java program names serializers for its objects; rows are bytes already."""
    serializer = f"org.apache.kafka.common.serialization.{name}Serializer"
    plain = make_producer(configs=[f"key.serializer={serializer}", f"value_serializer={serializer}"])
    assert plain._config.key_serializer is plain._config.value_serializer is None


@pytest.mark.parametrize("name", ["LongSerializer", "io.confluent.kafka.serializers.KafkaAvroSerializer"])
def test_other_serializers_are_not_for_rows(name: str) -> None:
    with pytest.raises(CommandError, match=rf"value\.serializer={name} can't be used here: rows are sent as they are"):
        make_producer(configs=[f"value.serializer={name}"])


def test_classes_for_records_of_a_java_program_do_not_matter_to_commands_that_send_none(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(
        "bootstrap.servers=a:1\nkey.serializer=org.example.Own\nvalue_serializer=org.example.Own\n"
        "partitioner.class=org.example.Own\ninterceptor.classes=org.example.Own\nlinger.ms=1\n"
    )
    assert configs_of(path, sends=False) == {"bootstrap.servers": "a:1", "linger.ms": "1"}
    assert configs_of(path, ["key.serializer=given"], sends=False)["key.serializer"] == "given"
    assert configs_of(path)["partitioner.class"] == "org.example.Own"
