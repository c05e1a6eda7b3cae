"""Which configs go with which mechanism, and JAAS login modules as in Java's configs."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from aioproducer.config import login
from aioproducer.config.jaas import parse_jaas
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConfigError


def parse(**values: Any) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "a:1", "security_protocol": "SASL_SSL", **values})


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**values)
    return str(caught.value)


async def provider() -> str:
    return "token"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://s3cret@host/token", "is refused; allowed: https://host/..."),
        ("https://", "is refused"),
        ("https://host:99999/token", "is refused"),
        ("https://[s3cret/token", "is refused"),
        ("https://user:s3cret@host/token", "has a user in it: give sasl_oauthbearer_client_credentials_client_id and"),
    ],
)
def test_token_endpoints_that_are_not_taken_are_not_shown(url: str, expected: str) -> None:
    told = refusal(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_credentials_client_id="client",
        sasl_oauthbearer_client_credentials_client_secret="secret",
    )
    assert expected in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://id.example/token", "'https://id.example/token'"),
        ("https://id.example/token?code=s3cret", "'https://id.example/token?[hidden]'"),
        ("https://id.example#s3cret", "'https://id.example#[hidden]'"),
        ("https://me:s3cret@s3cret@id.example", "'https://[hidden]@id.example'"),
        ("https://id.example/token?a\ns3cret", "'https://id.example/token?[hidden]'"),
        ("https://s3cret:s3cret@id.example/a@b?s3cret", "'https://[hidden]@id.example/a@b?[hidden]'"),
    ],
)
def test_what_may_be_secret_in_a_url_is_not_shown(url: str, shown: str) -> None:
    config = parse(security_protocol="SSL", sasl_oauthbearer_token_endpoint_url=url)
    assert config.sasl_oauthbearer_token_endpoint_url == url
    assert f"sasl_oauthbearer_token_endpoint_url={shown}" in repr(config)


@pytest.mark.parametrize("url", [b"https://id.example?s3cret", "https://id.example?s3cret\udc80", ["s3cret"]])
def test_a_url_of_another_type_is_not_shown(url: Any) -> None:
    assert "s3cret" not in refusal(sasl_oauthbearer_token_endpoint_url=url)


KEY = "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl_oauthbearer_assertion_private_key_file", KEY),
        ("sasl_oauthbearer_assertion_private_key_file", f"# key\n{KEY}"),
        ("sasl_oauthbearer_assertion_file", "eyJhbGci.eyJzdWIi.s3cret"),
        ("sasl_oauthbearer_assertion_file", "\n eyJhbGci.eyJzdWIi.s3cret"),
        ("ssl_keystore_location", KEY),
        ("ssl_truststore_location", KEY),
        ("ssl_keystore_location", "\xfe\xed\xfe\xed\0s3cret"),
        ("ssl_keystore_location", Path(KEY)),
    ],
)
def test_what_a_file_holds_in_place_of_its_path_is_not_shown(name: str, value: str | Path) -> None:
    """The secret would appear in the error about a missing file."""
    assert refusal(**{name: value}) == f"{name}=[hidden] is refused: it is what a file holds; give the file's path"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} username="alice" password="s3cret";', {"username": "alice", "password": "s3cret"}),
        (f"{PLAIN}\n  username='a b'\n  password=plain ;", {"username": "a b", "password": "plain"}),
        (f'{PLAIN} password="a\\"b\\\\c;=" ;', {"password": 'a"b\\c;='}),
        (f'{PLAIN} password="a\\\nb";', {"password": "a\nb"}),
        (f"{PLAIN} password='a\\'b';", {"password": "a'b"}),
        (f"{PLAIN};", {}),
        ("PlainLoginModule Required username=alice;", {"username": "alice"}),
    ],
)
def test_login_modules(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PLAIN,
        f'{PLAIN} username="s3cret',
        f"{PLAIN} username=s3cret",
        f"{PLAIN} s3cret",
        f"{PLAIN} username = s3cret password",
        f"{PLAIN} username s3cret word;",
        f'{PLAIN} password=s3cret"word";',
        f"{PLAIN} s3cret;",
        "a b c=s3cret;",
        '"s3cret word" required a=b;',
    ],
)
def test_texts_that_are_no_login_module_are_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_a_login_module_or_a_config_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        text = list(f'{PLAIN} username="alice" password="s3cret";')
        for _ in range(rng.randint(1, 6)):
            text.insert(rng.randrange(len(text) + 1), rng.choice("\"'\\;= \n\0ä"))
        with contextlib.suppress(ConfigError):
            parse_jaas("".join(text))


def test_a_login_module_takes_the_place_of_user_and_password() -> None:
    config = parse(sasl_mechanism="PLAIN", sasl_jaas_config=f'{PLAIN} username="alice" password="s3cret";')
    assert (config.sasl_username, config.sasl_password) == ("alice", "s3cret")
    assert "s3cret" not in repr(config)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "sasl_mechanism=GSSAPI needs sasl_kerberos_service_name, most often kafka"),
        ({"sasl_mechanism": "CRAM-MD5"}, "sasl_mechanism='CRAM-MD5' is refused"),
        ({"sasl_mechanism": ""}, "sasl_mechanism is empty, but security_protocol="),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism=PLAIN needs sasl_username"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "a"}, "sasl_mechanism=SCRAM-SHA-256 needs sasl_password"),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": f"{PLAIN} username=a password=s3cret;"},
            "sasl_jaas_config names PlainLoginModule, but sasl_mechanism=SCRAM-SHA-256 goes with ScramLoginModule",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_jaas_config": f"{PLAIN} username=a password=s3cret;",
            },
            "sasl_username contradicts sasl_jaas_config",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "s3cret\0"},
            "can't hold the character NUL",
        ),
        ({"sasl_mechanism": "PLAIN"}, "needs sasl_username, or sasl_credentials_provider"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_credentials_provider": provider, "sasl_password": "s3cret"},
            "sasl_credentials_provider contradicts sasl_password: give one",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_credentials_provider": provider,
                "sasl_jaas_config": f"{PLAIN} username=a password=s3cret;",
            },
            "sasl_credentials_provider contradicts sasl_jaas_config, which has a username too",
        ),
        ({"sasl_mechanism": "PLAIN", "sasl_credentials_provider": ("a", "s3cret")}, "provider=[hidden] is refused"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "s3cret"}, "provider=[hidden] is refused"),
        (
            {
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_service_name": "kafka",
                "sasl_credentials_provider": provider,
            },
            "sasl_credentials_provider is for PLAIN and SCRAM, not for sasl_mechanism=GSSAPI",
        ),
        ({"sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url"),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "ftp://x"},
            "sasl_oauthbearer_token_endpoint_url is refused; allowed: https",
        ),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "https://x"},
            "needs sasl_oauthbearer_client_credentials_client_id",
        ),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "https://x",
                "sasl_oauthbearer_scope": "b",
                "sasl_jaas_config": "x.OAuthBearerLoginModule required clientId=me clientSecret=s3cret scope=a;",
            },
            "sasl_oauthbearer_scope contradicts sasl_jaas_config, which has scope too",
        ),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "https://x",
                "sasl_oauth_token_provider": provider,
            },
            "sasl_oauth_token_provider contradicts sasl_oauthbearer_token_endpoint_url",
        ),
    ],
)
def test_what_does_not_go_together(values: dict[str, Any], expected: str) -> None:
    text = refusal(**values)
    assert expected in text
    assert "s3cret" not in text


URL = "sasl_oauthbearer_token_endpoint_url"
RETRIEVER = "sasl_oauthbearer_jwt_retriever_class"
ASSERTION = "sasl_oauthbearer_assertion"
ID, SECRET = (f"sasl_oauthbearer_client_credentials_client_{name}" for name in ("id", "secret"))
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


@pytest.mark.parametrize(
    ("values", "retriever", "has_secret"),
    [
        ({URL: "https://x", ID: "a", SECRET: "b"}, "ClientCredentialsJwtRetriever", True),
        ({URL: "https://x/token?tenant=shop", ID: "a", SECRET: "b"}, "ClientCredentialsJwtRetriever", True),
        ({URL: "file:///x"}, "FileJwtRetriever", False),
        ({URL: "file:///x", RETRIEVER: f"{PACKAGE}.FileJwtRetriever"}, "FileJwtRetriever", False),
        ({URL: "https://x", f"{ASSERTION}_private_key_file": "k"}, "ClientCredentialsJwtRetriever", False),
        (
            {URL: "https://x", f"{ASSERTION}_private_key_file": "k", ID: "a", SECRET: "b"},
            "ClientCredentialsJwtRetriever",
            True,
        ),
        (
            {
                URL: "https://x",
                f"{ASSERTION}_private_key_file": "k",
                f"{ASSERTION}_claim_iss": "i",
                ID: "a",
                SECRET: "b",
            },
            "ClientCredentialsJwtRetriever",
            False,
        ),
        ({URL: "https://x", f"{ASSERTION}_file": "f", ID: "a", SECRET: "b"}, "ClientCredentialsJwtRetriever", False),
        (
            {URL: "https://x", f"{ASSERTION}_file": "f", RETRIEVER: f"{PACKAGE}.JwtBearerJwtRetriever"},
            "JwtBearerJwtRetriever",
            False,
        ),
    ],
)
def test_where_the_token_comes_from(values: dict[str, Any], retriever: str, has_secret: bool) -> None:
    """Like Kafka's DefaultJwtRetriever: from a file if the URL says so; by assertion rather than by secret."""
    config = parse(sasl_mechanism="OAUTHBEARER", **values)
    assert config.sasl_oauthbearer_jwt_retriever_class == retriever
    assert (config.sasl_oauthbearer_client_credentials_client_secret is not None) == has_secret


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({URL: "https://x", f"{ASSERTION}_claim_iss": "i"}, f"needs {ASSERTION}_private_key_file, or {ASSERTION}_file"),
        ({URL: "https://x", RETRIEVER: "JwtBearerJwtRetriever"}, f"needs {ASSERTION}_private_key_file, or "),
        ({URL: "https://x", RETRIEVER: "FileJwtRetriever"}, f"contradicts {URL}, which is not of a file"),
        ({URL: "file:///x", RETRIEVER: "JwtBearerJwtRetriever"}, f"contradicts {URL}, which is of a file"),
        ({URL: "file://host/x"}, f"{URL} is refused; allowed: https://host/..., http://host/..., file:///path"),
        ({URL: "file:///"}, f"{URL} is refused; allowed: https://host/..., http://host/..., file:///path"),
        ({URL: "https:///a"}, f"{URL} is refused; allowed: https://host/..., http://host/..., file:///path"),
        ({URL: "file:///a?b"}, f"{URL} of a file has a ? or # in it: in a file's name they are %3F and %23"),
        ({URL: "file:///a#b"}, f"{URL} of a file has a ? or # in it: in a file's name they are %3F and %23"),
        ({URL: "https://x", RETRIEVER: "com.example.Own"}, "for others, use sasl_oauth_token_provider"),
    ],
)
def test_tokens_that_can_come_from_nowhere(values: dict[str, Any], expected: str) -> None:
    assert expected in refusal(sasl_mechanism="OAUTHBEARER", **values)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"sasl_jaas_config": "x.Krb5LoginModule required serviceName=broker;"}, "broker"),
        ({"sasl_kerberos_service_name": "kafka"}, "kafka"),
        (
            {
                "sasl_kerberos_service_name": "kafka",
                "sasl_jaas_config": "x.Krb5LoginModule required serviceName=broker;",
            },
            "kafka",
        ),
    ],
)
def test_the_service_name_of_kerberos(values: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "check_package", lambda *_: None)  # gssapi is built against a library of the system
    assert parse(sasl_mechanism="GSSAPI", **values).sasl_kerberos_service_name == name


def test_client_id_and_secret_of_the_login_module() -> None:
    config = parse(
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://id.example/token",
        sasl_jaas_config="x.OAuthBearerLoginModule required clientId=me clientSecret=s3cret scope=produce;",
    )
    assert config.sasl_oauthbearer_client_credentials_client_id == "me"
    assert config.sasl_oauthbearer_client_credentials_client_secret == "s3cret"
    assert config.sasl_oauthbearer_scope == "produce"


OIDC_MODULE = "x.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    "values",
    [
        {ID: " me\n", SECRET: " s3cret\n", "sasl_oauthbearer_scope": "produce "},
        {"sasl_jaas_config": f'{OIDC_MODULE} clientId=" me" clientSecret="s3cret\n" scope=" produce\n";\n'},
    ],
    ids=["configs", "jaas"],
)
def test_spaces_around_client_id_and_secret_are_not_part_of_them(values: dict[str, Any]) -> None:
    """As in Java: values from a file or the environment often end with a newline."""
    config = parse(sasl_mechanism="OAUTHBEARER", **{URL: "https://x", **values})
    assert config.sasl_oauthbearer_client_credentials_client_id == "me"
    assert config.sasl_oauthbearer_client_credentials_client_secret == "s3cret"
    assert config.sasl_oauthbearer_scope == "produce"


@pytest.mark.parametrize(
    "values", [{ID: "me", SECRET: " \n"}, {"sasl_jaas_config": f'{OIDC_MODULE} clientId=me clientSecret=" ";'}]
)
def test_a_secret_of_spaces_is_none(values: dict[str, Any]) -> None:
    assert f"{URL} needs {SECRET}" in refusal(sasl_mechanism="OAUTHBEARER", **{URL: "https://x", **values})


def test_spaces_around_other_secrets() -> None:
    """Java's ConfigDef strips them too; only values in ``sasl_jaas_config`` are left as they are."""
    config = parse(
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password=" s3cret\n",
        ssl_key_password=" s3cret\n",
        sasl_oauthbearer_assertion_private_key_passphrase="s3cret\r\n",
    )
    assert config.ssl_key_password == "s3cret"
    assert config.sasl_oauthbearer_assertion_private_key_passphrase == "s3cret"
    assert config.sasl_password == " s3cret\n"
    module = f'{PLAIN} username=alice password=" s3cret\n";'
    assert parse(sasl_mechanism="PLAIN", sasl_jaas_config=module).sasl_password == " s3cret\n"


ENDPOINT = "sasl_jaas_config, of TLS to the token endpoint: "


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ("ssl.truststore.location=/ca.jks", {}, f"{ENDPOINT}ssl_truststore_type=PEM, ssl_truststore_"),
        ("ssl.keystore.key=s3cret", {}, f"{ENDPOINT}ssl_keystore_key needs ssl_keystore_certificate_chain too"),
        ("ssl.provider=BC", {}, f"{ENDPOINT}config ssl.provider only means something to the JVM"),
        ("ssl.trust=s3cret", {}, f"{ENDPOINT}config ssl.trust is unknown"),
        ("ssl.cipher.suites=A", {}, f"{ENDPOINT}ssl.cipher.suites can't be chosen there"),
        (
            'ssl.endpoint.identification.algorithm=""',
            {},
            f"{ENDPOINT}ssl.endpoint.identification.algorithm has to be https, as the host name is always checked",
        ),
        (
            "ssl.truststore.location=/ca.pem",
            {URL: "http://x"},
            f"sasl_jaas_config has ssl.truststore.location, which is for TLS to a token endpoint: {URL} is not https:",
        ),
        (
            "ssl.key.password=s3cret ssl.protocol=TLSv1.2",
            {URL: None, "sasl_oauth_token_provider": provider},
            "sasl_jaas_config has ssl.key.password, ssl.protocol, which is for TLS to a token endpoint:",
        ),
    ],
)
def test_what_a_login_module_can_not_say_of_tls(options: str, values: dict[str, Any], expected: str) -> None:
    module = f"{OIDC_MODULE} clientId=me clientSecret=s3cret {options};"
    told = refusal(sasl_mechanism="OAUTHBEARER", **{URL: "https://x", "sasl_jaas_config": module, **values})
    assert expected in told
    assert "s3cret" not in told


def test_what_a_login_module_says_of_tls_is_of_the_token_endpoint_alone(caplog: pytest.LogCaptureFixture) -> None:
    options = "ssl.truststore.location=/ca.pem ssl.endpoint.identification.algorithm=HTTPS"
    module = f"{OIDC_MODULE} clientId=me clientSecret=s3cret {options};"
    config = parse(sasl_mechanism="OAUTHBEARER", sasl_jaas_config=module, **{URL: "https://x"})
    assert config.ssl_truststore_location is None
    endpoint = config.endpoint_tls()
    assert endpoint is not None
    assert endpoint.ssl_truststore_location == "/ca.pem"
    assert (endpoint.uses_tls, endpoint.client_id, caplog.text) == (True, "endpoint", "")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_what_would_be_without_effect_is_refused(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """An unused secret suggests that the connection is less secure than intended. For Java's names there is only a
    log line.
    """
    assert "sasl_password, sasl_username: without effect with security_protocol=" in refusal(
        security_protocol=protocol, sasl_username="a", sasl_password="s3cret"
    )
    parse(security_protocol=protocol, sasl_kerberos_service_name="kafka")
    assert "sasl_kerberos_service_name: without effect with security_protocol=" in caplog.text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ssl_truststore_location": "a", "ssl_truststore_certificates": "b"}, "give a file or PEM text, not both"),
        ({"ssl_keystore_key": "s3cret"}, "ssl_keystore_key needs ssl_keystore_certificate_chain too"),
        ({"ssl_keystore_certificate_chain": "c"}, "ssl_keystore_certificate_chain needs ssl_keystore_key too"),
        ({"ssl_endpoint_identification_algorithm": "LDAPS"}, "allowed: https, or empty"),
        ({"ssl_enabled_protocols": "SSLv3"}, "ssl_enabled_protocols=SSLv3, ssl_protocol=TLSv1.3 is refused"),
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.3"}, "it leaves out a version in between"),
        ({"ssl_protocol": "TLSv1.1"}, "no version of TLS is left by"),
    ],
)
def test_tls_configs_that_contradict_each_other(values: dict[str, Any], expected: str) -> None:
    text = refusal(security_protocol="SSL", **values)
    assert expected in text
    assert "s3cret" not in text


def test_a_context_is_alone() -> None:
    import ssl

    text = refusal(security_protocol="SSL", ssl_context=ssl.create_default_context(), ssl_protocol="TLSv1.2")
    assert text == "ssl_context contradicts ssl_protocol: it sets all of that itself"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    text = refusal(sasl_mechanism="SCRAM-SHA-256", sasl_username="a", sasl_password="s3cret")
    assert text == "sasl_mechanism=SCRAM-SHA-256 needs the package scramp: pip install 'aioproducer[scram]'"
