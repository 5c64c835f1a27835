// Package measure runs the same work with several technologies, round by round and
// taking turns, so that what the machine does meanwhile meets all of them.
package measure

import (
	"context"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// Workload is a kind of work, one row of the table, that several subjects do.
type Workload struct {
	Name     string   // short: for -run, and in the report
	What     string   // one sentence
	Axis     string   // what Points count: "in flight", "jobs"
	Points   []int    // sizes of the work, in the order they are run
	Quick    []int    // the same for a quick run
	Metrics  []Metric // what is measured; the first is the one that is plotted
	Subjects []Subject
	Named    []Named // what the text says, too

	// Rounds is how often at most each subject takes its turn; 0: as often as
	// the run says. For what takes long and differs little.
	Rounds int
	// Warm is for what gets faster with use: each point begins with a round that
	// is not counted.
	Warm bool
	// Alone is for subjects that would disturb each other by being there: one is
	// set up when the other is gone.
	Alone bool
	// Beside is for subjects that rest, in processes of their own: their rounds are at the
	// same time.
	Beside bool
}

// Metric is something that is measured.
type Metric struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Lower bool   `json:"lower"` // is better
}

// Named is a subject that the text compares with the first one, by the first metric and at
// one size of the work, as a reader may not find it among the others.
type Named struct {
	Subject string `json:"subject"`
	At      int    `json:"at"`
	Why     string `json:"why"`
}

// Subject does a workload's work with one technology.
type Subject struct {
	Name string
	Note string // what a reader must know to compare it
	// Bound marks what no user would pick: it shows what the machine can do.
	Bound bool
	// Setup makes what is needed for rounds; ctx bounds that only.
	Setup func(ctx context.Context, l *lab.Lab) (Rig, error)
}

// Rig is a subject ready to work. One goroutine uses it.
type Rig interface {
	// Round works once and says what was measured.
	Round(ctx context.Context, p Point) (Sample, error)
	// Close takes down what Setup made and waits for it.
	Close() error
}

// Point is how much work a round is.
type Point struct {
	Work int           // of the workload's Points
	For  time.Duration // how long a round lasts where its work has no end
}

// Sample is what a round measured, by the names of the metrics. What is missing was
// not measured.
type Sample map[string]float64

// rig is a Rig made of functions.
type rig struct {
	round func(context.Context, Point) (Sample, error)
	close func() error
}

// NewRig makes a Rig of its two methods.
func NewRig(round func(context.Context, Point) (Sample, error), closing func() error) Rig {
	return &rig{round, closing}
}

func (r *rig) Round(ctx context.Context, p Point) (Sample, error) { return r.round(ctx, p) }

func (r *rig) Close() error { return r.close() }
