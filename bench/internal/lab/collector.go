package lab

import "github.com/harpcaller/harp/internal/tune"

// Collector says when a process collects garbage.
type Collector int

// The collectors.
const (
	AsItComes    Collector = iota // as Go does by itself
	AsAgent                       // as an agent of the program harp
	AsDispatcher                  // as a dispatcher of the program harp
)

// Tuned is what is put behind the name of a peer that has a collector of harp's.
const Tuned = " tuned"

// String says what is set, for a subject's note.
func (c Collector) String() string {
	switch c {
	case AsAgent:
		return "GOGC=25 and 16 MiB before garbage is collected, as harp's agent"
	case AsDispatcher:
		return "GOGC=50 and 64 MiB before garbage is collected, as harp's dispatcher"
	case AsItComes:
	}
	return "as it comes"
}

// Set sets the collector of this process until it is undone.
func (c Collector) Set() (undo func()) {
	switch c {
	case AsAgent:
		return tune.Agent.Start()
	case AsDispatcher:
		return tune.Dispatcher.Start()
	case AsItComes:
	}
	return func() {}
}
