//go:build linux

// Command cmd is a process of the fault tests.
package main

import (
	"fmt"
	"os"

	"github.com/harpcaller/harp/agent/supervise"
	"github.com/harpcaller/harp/internal/faults/actor"
)

func main() {
	supervise.Main()
	if err := actor.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
