"""The studies of the producer's internals count what belongs to a record, separately from the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import bench_instructions, bench_profile, limits, report
from benchmarks.__main__ import main
from benchmarks.bench_instructions import own_counts, short
from benchmarks.bench_profile import Answer, Profile, shares
from benchmarks.groups import CHECKSUM, CODEC, COPY, GROUPS, OTHER, group_of
from benchmarks.limits import Limits
from benchmarks.looking_on import CLIENTS
from benchmarks.plan import RECORD_CASES, Effort
from benchmarks.worker import Outcome

CALLGRIND = """\
# callgrind format
events: Ir

ob=(1) /usr/lib/libpython3.11.so.1.0
fl=(1) ceval.c
fn=(1) evaluate
16 100
+2 5
cob=(2) /x/aioproducer/_record_batch.cpython-311-x86_64-linux-gnu.so
cfi=(2) _record_batch.c
cfn=(2) __pyx_f_11aioproducer_13_record_batch_11RecordBatch_write
calls=3 40
16 600
* 7

ob=(2)
fl=(2)
fn=(2)
40 30
cob=(3) /usr/lib/libc.so.6
cfn=(3) memcpy
calls=1 1
-1 20

fn=(4) __pyx_f_11aioproducer_13_record_batch_11RecordBatch_write'2
41 4

ob=(3)
fn=(3)
1 20
"""

PERF = """\
   100.000100:      7f3f56f0aa52 _PyEval_EvalFrameDefault (/usr/lib/libpython3.11.so.1.0)
   100.500000:      7f3f56f0aa52 __pyx_f_write (/x/aioproducer/_record_batch.cpython-311-x86_64-linux-gnu.so)
   100.600000:  ffffffff813a4413 finish_task_switch.isra.0 ([kernel.kallsyms])
   100.700000:      7f3f56f0aa52 [unknown] ([unknown])
   100.800000:      7f3f56f0aa52 _crc32c_hw_adler (/y/_crc32c.cpython-311-x86_64-linux-gnu.so)
   102.000000:      7f3f56f0aa52 _PyEval_EvalFrameDefault (/usr/lib/libpython3.11.so.1.0)
"""
LIMITS = Limits(
    copy=10e9, checksum=20e9, socket=5e9, lz4={100: 0.5e9, 1_024: 0.5e9}, lz4_share={100: 0.5, 1_024: 0.5}, call=2e-8
)


def test_a_function_counts_its_own_instructions_and_not_those_that_it_calls() -> None:
    write = "__pyx_f_11aioproducer_13_record_batch_11RecordBatch_write"
    assert own_counts(CALLGRIND) == {
        ("/usr/lib/libpython3.11.so.1.0", "evaluate"): 112,
        ("/x/aioproducer/_record_batch.cpython-311-x86_64-linux-gnu.so", write): 34,
        ("/usr/lib/libc.so.6", "memcpy"): 20,
    }


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("__pyx_pw_11aioproducer_10_admission_9Admission_15submit_nowait", "Admission.submit_nowait"),
        ("__pyx_pw_11aioproducer_9_delivery_8Delivery_1done", "Delivery.done"),
        ("__pyx_f_11aioproducer_8_hashing_murmur2_raw", "murmur2_raw"),
        ("__pyx_tp_dealloc_11aioproducer_9_delivery_Delivery", "Delivery.tp_dealloc"),
        ("__memcpy_avx_unaligned_erms", "__memcpy_avx_unaligned_erms"),
    ],
)
def test_names_of_compiled_functions_can_be_read(name: str, read: str) -> None:
    assert short(name) == read


@pytest.mark.parametrize(
    ("function", "library", "group"),
    [
        ("__memmove_avx512_unaligned_erms", "/usr/lib/libc.so.6", COPY.name),
        ("_int_malloc", "/usr/lib/libc.so.6", OTHER.name),
        ("LZ4_compress_fast", "/v/lib/python3.11/site-packages/lz4/frame/_frame.cpython-311.so", CODEC.name),
        ("_crc32c_hw_adler", "/v/lib/python3.11/site-packages/crc32c/_crc32c.cpython-311.so", CHECKSUM.name),
        ("__pyx_f", "/v/lib/python3.11/site-packages/uvloop/loop.cpython-311.so", "event loop"),
        ("__pyx_f", "/v/lib/python3.11/site-packages/aioproducer/_hashing.cpython-311.so", "murmur2"),
        ("__pyx_f", "/v/lib/python3.11/site-packages/aioproducer/_produce.cpython-311.so", "requests"),
        ("__pyx_f", "/w/aioproducer/_accumulator.cpython-311-x86_64-linux-gnu.so", "append"),
        ("PyDict_Next", "/usr/bin/python3.11", "interpreter"),
        ("__vdso_clock_gettime", "[vdso]", "clock"),
        ("tcp_sendmsg", "[kernel.kallsyms]", "kernel"),
    ],
)
def test_each_function_is_part_of_one_group(function: str, library: str, group: str) -> None:
    assert group_of(function, library).name == group


def test_samples_count_in_the_measured_section_only() -> None:
    done = Outcome(
        sent=12, failed=0, records=10, started=100.4, seconds=1.0, cpu_seconds=8e-5, peak_rss_bytes=1, latencies_ms={}
    )
    found = shares("aioproducer submit", PERF, done)
    assert found.samples == 4
    assert {group.name: round(seconds * 1e6, 3) for group, seconds in found.seconds.items()} == {
        "append": 2.0,
        "kernel": 4.0,
        "CRC-32C": 2.0,
    }
    assert found.cpu_seconds == pytest.approx(8e-6)


def test_a_limit_counts_the_codec_and_what_it_leaves_for_the_wire() -> None:
    plain = 1_024 + limits.RECORD_OVERHEAD_BYTES
    assert LIMITS.seconds(1_024, "none") == pytest.approx(
        {"copy into the batch": plain / 10e9, "CRC-32C": plain / 20e9, "socket": plain / 5e9}
    )
    assert LIMITS.seconds(1_024, "lz4") == pytest.approx(
        {"copy into the batch": plain / 10e9, "CRC-32C": plain / 40e9, "socket": plain / 10e9, "lz4": plain / 0.5e9}
    )


def test_the_machine_is_measured() -> None:
    found = limits.measure((100, 1_024))
    assert min(found.copy, found.checksum, found.socket, *found.lz4.values(), found.call) > 0
    assert all(0 < left < 1 for left in found.lz4_share.values())


def test_the_profile_has_a_table_a_case_and_a_picture(tmp_path: Path) -> None:
    profiles = [
        Profile(f"aioproducer {way}", 1e-6, {group: 1e-6 / len(GROUPS) for group in GROUPS}, 100)
        for way in ("submit_nowait", "send_many")
    ]
    answer = Answer(dict.fromkeys(RECORD_CASES, profiles), LIMITS)
    text = "\n".join(answer.markdown())
    for case in RECORD_CASES:
        assert f"| {case.name} | submit_nowait | send_many |" in text
    assert "| **all** | **1.00** | **1.00** |" in text
    (path,) = answer.draw(tmp_path)
    assert "the machine's limit" in path.read_text()


def test_an_answer_takes_the_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(
        f"# Benchmarks\n\n## {bench_instructions.QUESTION}\n\nold\n\n## Other?\n\nstays\n"
    )
    counts = {"aioproducer submit": {("/x/aioproducer/_hashing.so", "__pyx_f_11aioproducer_8_hashing_murmur2"): 61.0}}
    report.update([bench_instructions.Answer(counts)], "python -m benchmarks --only instructions --update", tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "old" not in text
    assert "| murmur2 | 61 |" in text
    assert "| `murmur2` | `_hashing` | 61 |" in text
    assert text.endswith("## Other?\n\nstays\n")


def test_what_is_not_on_the_machine_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--only", "profile", "--only", "instructions", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "skipped: profile: perf is not on this machine" in said
    assert "skipped: instructions: valgrind is not on this machine" in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not on this machine")
def test_instructions_are_counted() -> None:
    """Appending a record takes hundreds of instructions, the same number each time."""
    counts = bench_instructions.counted(CLIENTS[0], 2_000)
    assert not isinstance(counts, str), counts
    append = sum(count for (library, _), count in counts.items() if "/_record_batch." in library)
    assert 100 < append / 4_000 < 2_000


@pytest.mark.slow
@pytest.mark.skipif(bench_profile.missing() is not None, reason="perf is not there, or may not look here")
def test_time_is_sampled() -> None:
    found = bench_profile.profile(CLIENTS[0], RECORD_CASES[0], Effort(repeats=1, share=0.2, seconds=1.0))
    assert isinstance(found, Profile), found
    assert found.samples > 0
