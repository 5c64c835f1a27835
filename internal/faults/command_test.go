//go:build linux && !race

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// counting is a command that says to the witness that it begins and ends, and prints
// numbers meanwhile, one of them from a grandchild in a session of its own.
const counting = `
count:
  params:
    to: {type: int, required: true}
    witness: {type: path, required: true}
  command:
    - /bin/sh
    - -c
    - |
      echo "begin $HARP_JOB $HARP_ATTEMPT $$ sh 0" >> "$2"
      setsid sleep 1000 &
      i=0
      while [ $i -lt "$1" ]; do echo $i; i=$((i+1)); sleep 0.02; done
      echo "end $HARP_JOB $HARP_ATTEMPT $$ sh 0" >> "$2"
      exit 5
    - sh
    - "{{.to}}"
    - "{{.witness}}"
  success: [5]
  grace: 1s
`

// T2 with commands: agents are killed again and again, and what they run goes on. No
// command runs twice or is left behind, and no result or line of one is lost.
func TestKillAgentOfCommands(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Agent.Procedures = t.TempDir()
	must(t, os.WriteFile(filepath.Join(f.Agent.Procedures, "count.yaml"), []byte(counting), 0o600))
	must(t, f.StartDispatcher())
	caller := callers(t, f, 1)[0]
	hosts := names(2)
	startAgents(t, f, caller, hosts...)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := counter{t: t, fleet: f, caller: caller, jobs: map[string]*counted{}}
	var calling sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(report.Seed, uint64(i)))
		calling.Go(func() {
			for ctx.Err() == nil {
				c.call(hosts[r.IntN(len(hosts))], 1+r.IntN(60))
			}
		})
	}
	r := rand.New(rand.NewPCG(report.Seed, 78))
	for range pick(8, 200) {
		between(r, 100*time.Millisecond, 700*time.Millisecond)
		name := hosts[r.IntN(len(hosts))]
		must(t, f.KillAgent(name))
		must(t, f.StartAgent(name))
	}
	stop()
	calling.Wait()
	c.check()
	eventually(t, "supervisors are gone", func() bool { return c.leftovers() == 0 })
	must(t, f.Stop())
	report.Note(t.Name(), "commands", len(c.jobs))
}

// counter calls count, and knows what came of it.
type counter struct {
	t      *testing.T
	fleet  *Fleet
	caller *harp.Caller

	mu   sync.Mutex // guards what follows
	jobs map[string]*counted
}

// counted is one call of count.
type counted struct {
	to      int
	printed []string
	err     error
	value   int
}

// call calls count and follows it to its end.
func (c *counter) call(host string, to int) {
	ctx := context.WithoutCancel(c.t.Context())
	job, err := c.caller.Host(host).Call(ctx, "count", harp.Args{"to": to, "witness": c.fleet.WitnessFile()}, harp.OfflineWait(harp.NoLimit))
	if err != nil {
		c.t.Errorf("a call is refused: %v", err)
		return
	}
	one := &counted{to: to}
	for r, err := range job.Follow(ctx, harp.Since(0)) {
		if err != nil {
			c.t.Errorf("job %s: %v", job.ID(), err)
			return
		}
		if want := uint64(len(one.printed)); r.Seq != want || r.Truncated > 0 {
			c.t.Errorf("job %s: record %d (%d bytes left out) instead of %d", job.ID(), r.Seq, r.Truncated, want)
		}
		var text string
		if err := r.Value.Decode(&text); err != nil {
			c.t.Error(err)
		}
		one.printed = append(one.printed, text)
	}
	one.value, one.err = harp.Get[int](ctx, job)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[job.ID()] = one
}

// check compares what callers saw with what was witnessed.
func (c *counter) check() {
	c.t.Helper()
	must(c.t, c.fleet.ReadWitness())
	begins, ends := map[string]int{}, map[string]int{}
	for _, l := range c.fleet.History.Witness {
		switch l.What {
		case witness.Begin:
			begins[l.Job]++
		case witness.End:
			ends[l.Job]++
		}
	}
	lost := 0
	for id, one := range c.jobs {
		if errors.Is(one.err, harp.ErrLost) && begins[id] == 0 {
			lost++ // its agent died before the command was there
			continue
		}
		whole := strings.Join(one.printed, " ") == numbers(one.to)
		if one.err != nil || one.value != 5 || !whole || begins[id] != 1 || ends[id] != 1 {
			c.t.Errorf("job %s returned %d, %v, %d of %d lines; it began %d times and ended %d times",
				id, one.value, one.err, len(one.printed), one.to, begins[id], ends[id])
		}
		delete(begins, id)
	}
	report.Note(c.t.Name(), "lost before they began", lost)
	for id := range maps.Keys(begins) {
		c.t.Errorf("job %s began, and nobody knows of it", id)
	}
}

// numbers are those that count prints.
func numbers(to int) string {
	var b strings.Builder
	for i := range to {
		fmt.Fprintf(&b, "%d ", i)
	}
	return strings.TrimSpace(b.String())
}

// leftovers is how many processes there are that one of the jobs has started.
func (c *counter) leftovers() (n int) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(c.t, err)
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended just now
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if id, is := strings.CutPrefix(string(v), "HARP_JOB="); is && c.jobs[id] != nil {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				c.t.Logf("process %d of job %s is there", pid, id)
				n++
			}
		}
	}
	for _, name := range names(2) {
		left, err := os.ReadDir(filepath.Join(c.fleet.AgentDir(name), "run"))
		if err == nil {
			n += len(left)
		}
	}
	return n
}
