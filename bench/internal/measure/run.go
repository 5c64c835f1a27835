package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// Plan is how workloads are run.
type Plan struct {
	Lab    *lab.Lab
	Rounds int
	For    time.Duration // of a round
	Quick  bool
	Log    io.Writer // gets a line for each round, from several goroutines
}

// Result is what became of a workload.
type Result struct {
	Workload string   `json:"workload"`
	What     string   `json:"what"`
	Axis     string   `json:"axis"`
	Metrics  []Metric `json:"metrics"`
	Subjects []Taken  `json:"subjects"`
	Named    []Named  `json:"named,omitempty"`
}

// Taken is what was measured of one subject.
type Taken struct {
	Name    string          `json:"name"`
	Note    string          `json:"note,omitempty"`
	Bound   bool            `json:"bound,omitempty"`
	Missing string          `json:"missing,omitempty"` // why there is nothing, or not all
	Rounds  map[int][]Round `json:"rounds"`            // by point
}

// Round is one sample and which round of the run it is from: those of one round
// are compared.
type Round struct {
	Round  int    `json:"round"`
	Sample Sample `json:"sample"`
}

// Run runs a workload. What one subject cannot do is in its Missing; the error is
// that ctx has ended.
func (p *Plan) Run(ctx context.Context, w Workload) (Result, error) {
	out := Result{Workload: w.Name, What: w.What, Axis: w.Axis, Metrics: w.Metrics, Named: w.Named}
	for _, s := range w.Subjects {
		out.Subjects = append(out.Subjects, Taken{Name: s.Name, Note: s.Note, Bound: s.Bound, Rounds: map[int][]Round{}})
	}
	begin := time.Now()
	switch {
	case w.Alone:
		for i := range w.Subjects {
			p.together(ctx, w, out.Subjects, []int{i})
		}
	case w.Beside:
		var wg sync.WaitGroup
		for i := range w.Subjects {
			wg.Go(func() { p.together(ctx, w, out.Subjects, []int{i}) })
		}
		wg.Wait()
	default:
		all := make([]int, len(w.Subjects))
		for i := range all {
			all[i] = i
		}
		p.together(ctx, w, out.Subjects, all)
	}
	p.logf("%s took %s\n", w.Name, time.Since(begin).Round(time.Second))
	return out, ctx.Err()
}

// together sets some subjects up and lets them take turns.
func (p *Plan) together(ctx context.Context, w Workload, taken []Taken, which []int) {
	rigs := map[int]Rig{}
	for _, i := range which {
		p.logf("%s: set up %s\n", w.Name, w.Subjects[i].Name)
		rig, err := w.Subjects[i].Setup(ctx, p.Lab)
		if err != nil {
			p.miss(w, &taken[i], err)
			continue
		}
		rigs[i] = rig
	}
	for _, work := range p.points(w) {
		if w.Warm {
			p.warm(ctx, w, taken, rigs, work)
		}
		for round := range p.rounds(w) {
			for _, i := range which {
				if rigs[i] != nil && taken[i].Missing == "" && ctx.Err() == nil {
					p.turn(ctx, w, &taken[i], rigs[i], work, round)
				}
			}
		}
	}
	for i, rig := range rigs {
		if err := rig.Close(); err != nil && ctx.Err() == nil {
			p.miss(w, &taken[i], fmt.Errorf("closing: %w", err))
		}
	}
}

// warm lets each work once without a look at it.
func (p *Plan) warm(ctx context.Context, w Workload, taken []Taken, rigs map[int]Rig, work int) {
	for i, rig := range rigs {
		if taken[i].Missing != "" || ctx.Err() != nil {
			continue
		}
		if _, err := p.round(ctx, rig, Point{Work: work, For: p.For / 2}); err != nil {
			p.miss(w, &taken[i], fmt.Errorf("at %d: %w", work, err))
		}
	}
}

func (p *Plan) round(ctx context.Context, rig Rig, at Point) (Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundWithin, errTooLong)
	defer cancel()
	return rig.Round(ctx, at)
}

func (p *Plan) turn(ctx context.Context, w Workload, t *Taken, rig Rig, work, round int) {
	begin := time.Now()
	s, err := p.round(ctx, rig, Point{Work: work, For: p.For})
	if err != nil {
		p.miss(w, t, fmt.Errorf("at %d: %w", work, err))
		return
	}
	t.Rounds[work] = append(t.Rounds[work], Round{round, s})
	line := ""
	for _, m := range w.Metrics {
		if v, ok := s[m.Name]; ok {
			line += fmt.Sprintf("  %s %.4g%s", m.Name, v, m.Unit)
		}
	}
	p.logf("%s %d/%d: %-22s%s  (%.1fs)\n", w.Name, work, round, t.Name, line, time.Since(begin).Seconds())
}

// roundWithin bounds a round that hangs.
const roundWithin = 10 * time.Minute

var errTooLong = errors.New("the round took too long")

func (p *Plan) miss(w Workload, t *Taken, err error) {
	t.Missing = err.Error()
	p.logf("%s: %s: %v\n", w.Name, t.Name, err)
}

// logf says how it goes; a log that cannot be written stops nothing.
func (p *Plan) logf(format string, a ...any) { _, _ = fmt.Fprintf(p.Log, format, a...) }

func (p *Plan) points(w Workload) []int {
	if p.Quick {
		return w.Quick
	}
	return w.Points
}

func (p *Plan) rounds(w Workload) int {
	if w.Rounds > 0 {
		return min(w.Rounds, p.Rounds)
	}
	return p.Rounds
}
