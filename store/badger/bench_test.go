package badger_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// BenchmarkCall takes jobs through submit, started and finish, so many at a time:
// the commits of a call that may start at once.
func BenchmarkCall(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			st := open(b, b.TempDir(), badger.Options{})
			defer st.Close()
			st.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						endJob(b, st, submit(b, st, "h"))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

func endJob(b *testing.B, st store.Store, j *store.Job) store.Change {
	out, err := st.Apply(b.Context(), store.Transition{ID: j.ID, Event: store.Event{
		Kind: store.End, At: time.Now(), Attempt: j.Attempt, Fence: j.Fence, Value: harp.Value{0xc3},
	}})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		b.Error(err)
		return store.Change{}
	}
	return out[0]
}

// BenchmarkClaim claims jobs one by one, 10,000 of the same queue waiting for an
// absent host and as many for this one.
func BenchmarkClaim(b *testing.B) {
	st := open(b, b.TempDir(), badger.Options{})
	defer st.Close()
	q, err := harp.QueueName(map[string]string{"name": "q"})
	if err != nil {
		b.Fatal(err)
	}
	fill := func(host string, n int) {
		for ; n > 0; n -= 500 {
			batch := make([]store.Submission, min(n, 500))
			for i := range batch {
				batch[i] = submission(host)
				batch[i].Job.Queue = q
			}
			if _, err := st.Submit(b.Context(), batch, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	}
	fill("away", 10_000)
	fill("h", b.N+1)
	st.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	jobs, err := st.Claim(b.Context(), []string{"h"}, 1, time.Now())
	if err != nil || len(jobs) != 1 {
		b.Fatal(len(jobs), err)
	}
	j := jobs[0]
	b.ResetTimer()
	for range b.N {
		j = endJob(b, st, j).Claimed[0]
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}

// BenchmarkAppend stores records of 100 B, in appends of so many, by one or more
// jobs at a time.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ jobs, each int }{{1, 1}, {1, 100}, {1, 600}, {64, 1}, {64, 100}} {
		b.Run(fmt.Sprintf("%d jobs, %d records", c.jobs, c.each), func(b *testing.B) {
			st := open(b, b.TempDir(), badger.Options{})
			defer st.Close()
			st.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
			records := make([]harp.Record, c.each)
			for i := range records {
				records[i] = harp.Record{Time: time.Now(), Kind: harp.KindStdout, Value: bytes.Repeat([]byte{0xc0}, 100)}
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range c.jobs {
				wg.Go(func() {
					j := submit(b, st, "h")
					for next := uint64(0); left.Add(int64(-c.each)) > int64(-c.each); next += uint64(c.each) {
						a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: next, Records: records, Arrived: time.Now()}
						if _, err := st.Append(b.Context(), a); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkRead reads records of 100 B back, a mebibyte at a time.
func BenchmarkRead(b *testing.B) {
	st := open(b, b.TempDir(), badger.Options{})
	defer st.Close()
	st.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	j := submit(b, st, "h")
	const all, each = 100_000, 500
	records := make([]harp.Record, each)
	for i := range records {
		records[i] = harp.Record{Kind: harp.KindStdout, Value: bytes.Repeat([]byte{0xc0}, 100)}
	}
	for first := uint64(0); first < all; first += each {
		if _, err := st.Append(b.Context(), store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: first, Records: records}); err != nil {
			b.Fatal(err)
		}
	}
	from, n := uint64(0), 0
	b.ResetTimer()
	for n < b.N {
		got, err := st.Read(b.Context(), j.ID, from%all, store.ReadLimit{Bytes: 1 << 20})
		if err != nil || len(got) == 0 {
			b.Fatal(len(got), err)
		}
		from, n = got[len(got)-1].Seq+1, n+len(got)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkList reads pages of 100 over 100,000 jobs.
func BenchmarkList(b *testing.B) {
	st := open(b, b.TempDir(), badger.Options{})
	defer st.Close()
	for from := 0; from < 100_000; from += 500 {
		batch := make([]store.Submission, 500)
		for i := range batch {
			batch[i] = submission(fmt.Sprint("h", (from+i)%100))
			batch[i].Job.Procedure = fmt.Sprint("p", (from+i)%7)
			batch[i].Job.SubmitTime = time.Unix(int64(from+i), 0)
		}
		if _, err := st.Submit(b.Context(), batch, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range map[string]store.Filter{
		"all":                {},
		"host":               {Host: "h7"},
		"host and procedure": {Host: "h7", Procedure: "p1"},
		"nothing found":      {Host: "h7", States: []harp.State{harp.StateLost}},
		"old":                {Until: time.Unix(5000, 0), Host: "h7"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, err := st.List(b.Context(), f, "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(page.Examined), "examined")
			}
		})
	}
}

// BenchmarkOpen opens a store with so many jobs that have not ended.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			st := open(b, dir, badger.Options{})
			for from := 0; from < n; from += 500 {
				batch := make([]store.Submission, 500)
				for i := range batch {
					batch[i] = submission("away")
				}
				if _, err := st.Submit(b.Context(), batch, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
			if err := st.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				st := open(b, dir, badger.Options{})
				b.StopTimer()
				if err := st.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
