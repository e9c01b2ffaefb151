// Judge reads a history of one group from standard input, an operation a line, and says whether some order of the operations that keeps
// to their times explains every answer. Porcupine searches for that order.
//
// An operation without an end has no known answer: it may have been executed at any time after its beginning, or never.
//
// Exit: 0 linearizable, 1 not, 2 no verdict (too long a search, or no history).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client int    `json:"client"`
	Op     string `json:"op"`
	Key    string `json:"key"`
	Value  string `json:"value"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	Out    string `json:"out"`
}

// The value of one key.
type item struct {
	exists bool
	value  string
}

// What one operation makes of a key, and what it answers.
func (now item) executed(in operation) (item, string) {
	switch in.Op {
	case "get":
		if now.exists {
			return now, "=" + now.value
		}
		return now, "MISS"
	case "set":
		return item{true, in.Value}, "STORED"
	case "append":
		if now.exists {
			return item{true, now.value + in.Value}, "STORED"
		}
		return now, "NOT_STORED"
	case "delete":
		if now.exists {
			return item{}, "DELETED"
		}
		return now, "NOT_FOUND"
	case "incr":
		if !now.exists {
			return now, "NOT_FOUND"
		}
		count, err := strconv.ParseUint(now.value, 10, 64)
		if err != nil {
			return now, "NO_NUMBER"
		}
		next := strconv.FormatUint(count+1, 10)
		return item{true, next}, next
	}
	panic("an operation that no client sends: " + in.Op)
}

var memcached = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string]int{}
		var parts [][]porcupine.Operation
		for _, op := range history {
			key := op.Input.(operation).Key
			at, known := keys[key]
			if !known {
				at = len(parts)
				keys[key] = at
				parts = append(parts, nil)
			}
			parts[at] = append(parts[at], op)
		}
		return parts
	},
	Init: func() interface{} { return item{} },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		in := input.(operation)
		next, out := state.(item).executed(in)
		return in.Return == nil || out == in.Out, next
	},
	DescribeOperation: func(input, output interface{}) string {
		in := input.(operation)
		if in.Return == nil {
			return fmt.Sprintf("%s(%s) -> ?", in.Op, in.Value)
		}
		return fmt.Sprintf("%s(%s) -> %s", in.Op, in.Value, in.Out)
	},
}

func read() ([]porcupine.Operation, error) {
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var in operation
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return nil, err
		}
		end := int64(math.MaxInt64)
		if in.Return != nil {
			end = *in.Return
		}
		history = append(history, porcupine.Operation{ClientId: in.Client, Input: in, Call: in.Call, Output: in.Out, Return: end})
	}
	return history, lines.Err()
}

func main() {
	limit := flag.Duration("limit", 60*time.Second, "how long to search")
	picture := flag.String("picture", "", "where to draw a history that has no order")
	flag.Parse()
	history, err := read()
	if err != nil || len(history) == 0 {
		fmt.Println("no history:", err)
		os.Exit(2)
	}
	verdict, info := porcupine.CheckOperationsVerbose(memcached, history, *limit)
	fmt.Printf("%d operations: %s\n", len(history), verdict)
	switch verdict {
	case porcupine.Ok:
		return
	case porcupine.Illegal:
		if *picture != "" {
			if err := porcupine.VisualizePath(memcached, info, *picture); err != nil {
				fmt.Println("no picture:", err)
			}
		}
		os.Exit(1)
	}
	os.Exit(2)
}
