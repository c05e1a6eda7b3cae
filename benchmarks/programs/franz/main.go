// franz-go at full speed: one Produce a record with a promise for each, its own defaults otherwise.
//
// Arguments: bootstrap topic codec linger_ms pool key_bytes value_bytes records. The pool is a file of key, value, key,
// value, ... Prints one JSON line.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func cpuSeconds(used *syscall.Rusage) float64 {
	must(syscall.Getrusage(syscall.RUSAGE_SELF, used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func codec(name string) kgo.CompressionCodec {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	found, ok := codecs[name]
	if !ok {
		must(fmt.Errorf("no codec %q", name))
	}
	return found
}

func main() {
	if len(os.Args) != 9 {
		must(fmt.Errorf("arguments: bootstrap topic codec linger_ms pool key_bytes value_bytes records"))
	}
	pool, err := os.ReadFile(os.Args[5])
	must(err)
	keyBytes, valueBytes, records := number(os.Args[6]), number(os.Args[7]), number(os.Args[8])
	count := len(pool) / (keyBytes + valueBytes)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.ProducerBatchCompression(codec(os.Args[3])),
		kgo.ProducerLinger(time.Duration(number(os.Args[4]))*time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	must(err)
	defer client.Close()
	ctx := context.Background()
	must(client.Ping(ctx))
	var acked, failed atomic.Int64
	ended := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		} else {
			acked.Add(1)
		}
	}
	var used syscall.Rusage
	started, cpu := time.Now(), cpuSeconds(&used)
	for i := 0; i < records; i++ {
		key := pool[i%count*(keyBytes+valueBytes):]
		client.Produce(ctx, &kgo.Record{Key: key[:keyBytes], Value: key[keyBytes : keyBytes+valueBytes]}, ended)
	}
	must(client.Flush(ctx))
	seconds := time.Since(started).Seconds()
	cpu = cpuSeconds(&used) - cpu
	fmt.Printf("{\"acked\": %d, \"failed\": %d, \"seconds\": %f, \"cpu_seconds\": %f, \"peak_rss_bytes\": %d}\n",
		acked.Load(), failed.Load(), seconds, cpu, used.Maxrss*1024)
}
