// A program of a language with a runtime of its own: threads of that runtime, a stack that moves, a map, a channel
// between two goroutines.
package main

import "fmt"

func sums(n int, out chan<- int) {
	words := make(map[int]int)
	for i := 0; i < n; i++ {
		words[i%97] += i * i
	}
	total := 0
	for _, v := range words {
		total ^= v
	}
	out <- total
}

func main() {
	out := make(chan int)
	for i := 1; i <= 4; i++ {
		go sums(1000*i, out)
		fmt.Println("sum", <-out)
	}
}
