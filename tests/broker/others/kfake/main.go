// A cluster of franz-go's kfake, steered by lines on standard input; each is answered with one line. It ends with them.
//
//	addresses                   of the running nodes
//	shuffle                     new leaders for all partitions
//	move TOPIC PARTITION NODE   a new leader for one
//	rehash                      new coordinators
//	remove NODE, add NODE PORT  a node leaves, with its connections alive; it comes back, for port 0 at any other port
//	fail API CODE COUNT         so many requests get this error, after the append if that is what it means
//	heal                        what is left of those errors is forgotten
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var apis = map[string]kmsg.Key{
	"Produce":         kmsg.Produce,
	"Metadata":        kmsg.Metadata,
	"InitProducerId":  kmsg.InitProducerID,
	"EndTxn":          kmsg.EndTxn,
	"TxnOffsetCommit": kmsg.TxnOffsetCommit,
}

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	var faults []*kfake.FaultHandle
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		number := func(at int) int32 {
			parsed, err := strconv.Atoi(words[at])
			if err != nil {
				panic(err)
			}
			return int32(parsed)
		}
		var err error
		answer := "done"
		switch words[0] {
		case "addresses":
			answer = strings.Join(cluster.ListenAddrs(), ",")
		case "shuffle":
			cluster.ShufflePartitionLeaders()
		case "move":
			err = cluster.MoveTopicPartition(words[1], number(2), number(3))
		case "rehash":
			cluster.RehashCoordinators()
		case "remove":
			err = cluster.RemoveNode(number(1))
		case "add":
			_, _, err = cluster.AddNode(number(1), int(number(2)))
		case "fail":
			api := apis[words[1]]
			code := kerr.TypedErrorForCode(int16(number(2)))
			whole := api == kmsg.InitProducerID || api == kmsg.EndTxn
			fault := kfake.Fault{Keys: []kmsg.Key{api}, Err: code, TopLevel: whole, Count: int(number(3))}
			faults = append(faults, cluster.Fault(fault))
		case "heal":
			for _, fault := range faults {
				fault.Remove()
			}
			faults = nil
		default:
			err = fmt.Errorf("what is %q?", words[0])
		}
		if err != nil {
			answer = "failed: " + err.Error()
		}
		fmt.Println(answer)
	}
}
