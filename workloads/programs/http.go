// A small HTTP server on Go's net/http: http ADDRESS FILE serves FILE at /file, and ends in order on SIGTERM.
//
// It stands for servers whose threads are the runtime's business: goroutines, a poller, a garbage collector that runs beside them.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: http ADDRESS FILE")
		os.Exit(64)
	}
	page, err := os.ReadFile(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "application/octet-stream")
		answer.Header().Set("Content-Length", strconv.Itoa(len(page)))
		answer.Write(page)
	})
	server := &http.Server{Addr: os.Args[1], Handler: mux}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		<-ended
		server.Shutdown(context.Background())
		close(done)
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-done
}
