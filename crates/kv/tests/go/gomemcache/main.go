// The commands that gomemcache sends, each with the answer that memcached gives; the first that differs ends the program.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

func must(holds bool, what string, found ...interface{}) {
	if !holds {
		fmt.Fprintln(os.Stderr, "gomemcache:", what, fmt.Sprint(found...))
		os.Exit(1)
	}
}

func main() {
	client := memcache.New(os.Args[1:]...)
	large := bytes.Repeat([]byte("v"), 200_000)
	must(client.Ping() == nil, "every replica answers")
	must(client.Set(&memcache.Item{Key: "go:a", Value: large, Flags: 7}) == nil, "set")
	item, err := client.Get("go:a")
	must(err == nil && bytes.Equal(item.Value, large) && item.Flags == 7, "get", err)
	err = client.Add(&memcache.Item{Key: "go:a", Value: large})
	must(errors.Is(err, memcache.ErrNotStored), "add of what is there", err)
	must(client.Replace(&memcache.Item{Key: "go:a", Value: []byte("1")}) == nil, "replace")
	must(client.Append(&memcache.Item{Key: "go:a", Value: []byte("0")}) == nil, "append")
	must(client.Prepend(&memcache.Item{Key: "go:a", Value: []byte("1")}) == nil, "prepend")
	count, err := client.Increment("go:a", 5)
	must(err == nil && count == 115, "incr", count, err)
	count, err = client.Decrement("go:a", 200)
	must(err == nil && count == 0, "decr", count, err)
	item, err = client.Get("go:a")
	must(err == nil, "get", err)
	must(client.Set(&memcache.Item{Key: "go:a", Value: []byte("other")}) == nil, "set")
	item.Value = []byte("late")
	must(errors.Is(client.CompareAndSwap(item), memcache.ErrCASConflict), "cas of an old item")
	item, _ = client.Get("go:a")
	item.Value = []byte("in time")
	must(client.CompareAndSwap(item) == nil, "cas")
	must(client.Touch("go:a", 100) == nil, "touch")
	many, err := client.GetMulti([]string{"go:a", "go:none"})
	must(err == nil && len(many) == 1 && string(many["go:a"].Value) == "in time", "a get of several", err)
	must(client.Delete("go:a") == nil, "delete")
	_, err = client.Get("go:a")
	must(errors.Is(err, memcache.ErrCacheMiss), "a miss", err)
	item, err = client.Get("struck")
	must(err == nil && string(item.Value) == "balance 1000", "a struck item", err)
	fmt.Println("ok")
}
