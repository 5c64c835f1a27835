package dispatcher_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// callRunning calls a job that runs until the test ends it.
func (s *system) callRunning(t *testing.T, asked <-chan told) (*harp.Job, told) {
	t.Helper()
	job := must[*harp.Job](t)(s.caller.Host("web01").Call(t.Context(), "work", nil))
	m := <-asked
	m.say(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	synctest.Wait()
	return job, m
}

// emit sends records of which each follows in a frame of its own.
func (m told) emit(t *testing.T, n, size int) {
	t.Helper()
	for i := range int64(n) {
		value := wire.Encode(bytes.Repeat([]byte{'x'}, size))
		m.say(t, wire.TypeRecords, false, wire.Records{First: i, Records: []wire.Record{{Time: i + 1, Value: value}}})
	}
	synctest.Wait()
}

// Stream yields all records that there are, also while a caller waits for the result
// and so many follow other jobs that each page is a short one.
func TestStreamStopsEarlyBesideManyFollowers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		other, _ := sys.callRunning(t, asked)
		job, m := sys.callRunning(t, asked)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		waiting.Go(func() { _, _ = job.Get(ctx) })
		for range 64 {
			waiting.Go(func() {
				for _, err := range other.Follow(ctx) {
					if err == nil {
						t.Error("a job that emits nothing has a record")
					}
				}
			})
		}
		synctest.Wait()
		const n = 200
		m.emit(t, n, 1000)
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.Records != n {
			t.Fatalf("it has %d records", s.Records)
		}
		got := 0
		for _, err := range job.Stream(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got++
		}
		if got != n {
			t.Errorf("Stream yields %d of %d records, without an error", got, n)
		}
	})
}
