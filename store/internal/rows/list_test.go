//go:build !race

package rows

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const many = 20_000

// manyJobs is a store of many jobs: on 100 hosts, of 10 procedures, half of them ended; of
// every 1,000 one in the queue, and ten labelled. It is made once, and only read.
var manyJobs = sync.OnceValue(func() *trial {
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	ctx := context.Background()
	for h := range 50 {
		s.SetGate(fmt.Sprint("h", 2*h), store.Gate{Open: true, Most: 1 << 20})
	}
	for from := 0; from < many; from += 500 {
		calls := make([]store.Submission, 500)
		for n := range calls {
			calls[n] = oneOfMany(from + n)
		}
		out, err := s.Submit(ctx, calls, calls[0].Job.SubmitTime)
		if err != nil {
			panic(err)
		}
		var ts []store.Transition
		for _, o := range out {
			if o.Job.State == harp.StateSent {
				ts = append(ts, about(o.Job, store.End))
			}
		}
		if _, err := s.Apply(ctx, ts...); err != nil {
			panic(err)
		}
	}
	e.commits = nil
	return e
})

func oneOfMany(n int) store.Submission {
	c := call(fmt.Sprint("h", n%100))
	c.Job.Procedure = fmt.Sprint("p", n%10)
	c.Job.SubmitTime = noon.Add(time.Duration(n) * time.Second)
	if n%1000 == 1 {
		c.Job.Queue, c.Job.Concurrency = harp.Value{0x80}, 1000
	}
	if n%(many/10) == 2 {
		c.Job.Labels = map[string]string{"rare": "yes"}
	}
	return c
}

// filters are listings over many jobs, how many they find, and how many entries
// their first page may examine.
var filters = []struct {
	name     string
	filter   store.Filter
	found    int
	examined int
}{
	{"all", store.Filter{}, many, 100},
	{"host", store.Filter{Host: "h7"}, many / 100, 100},
	{"procedure", store.Filter{Procedure: "p3"}, many / 10, 100},
	{"queue", store.Filter{Queue: harp.Value{0x80}}, many / 1000, many/1000 + 1},
	{"label", store.Filter{Labels: map[string]string{"rare": "yes"}}, 10, 11},
	{"state", store.Filter{States: []harp.State{harp.StateSucceeded}}, many / 2, 100},
	{"none", store.Filter{States: []harp.State{harp.StateFailed}}, 0, 1},
	{"label and host and procedure", store.Filter{Labels: map[string]string{"rare": "yes"}, Host: "h2", Procedure: "p2"}, 10, 35},
	{"label and nothing", store.Filter{Labels: map[string]string{"rare": "yes"}, Host: "h3"}, 0, 30},
	{"host and state", store.Filter{Host: "h6", States: []harp.State{harp.StateSucceeded}}, many / 100, 200},
	{"host and other state", store.Filter{Host: "h6", States: []harp.State{harp.StateQueued}}, 0, 2*many/100 + 1},
	{"old", store.Filter{Until: noon.Add(1000 * time.Second)}, 1000, 100},
	{"old of a host", store.Filter{Until: noon.Add(1000 * time.Second), Host: "h1"}, 10, 11},
	{"new", store.Filter{Since: noon.Add((many - 10) * time.Second)}, 10, 11},
	{"new of a host", store.Filter{Since: noon.Add((many - 1000) * time.Second), Host: "h1"}, 10, 11},
}

// TestListMany checks what a listing finds among many jobs, and how much it
// looks at for it.
func TestListMany(t *testing.T) {
	s := opened(t, manyJobs(), Options{})
	for _, f := range filters {
		found, examined, cursor := 0, -1, ""
		for pages := 0; ; pages++ {
			page, err := s.List(t.Context(), f.filter, cursor)
			if err != nil {
				t.Fatal(err)
			}
			if page.Examined > store.MaxExamined {
				t.Errorf("%s: a page examined %d", f.name, page.Examined)
			}
			if examined < 0 {
				examined = page.Examined
			}
			found += len(page.Jobs)
			if cursor = page.Cursor; cursor == "" {
				break
			}
			if pages > many {
				t.Fatalf("%s: the pages do not end", f.name)
			}
		}
		if found != f.found || examined > f.examined {
			t.Errorf("%s: %d found, want %d; the first page examined %d, at most %d", f.name, found, f.found, examined, f.examined)
		}
	}
}

// BenchmarkList reads the first page of listings over many jobs.
func BenchmarkList(b *testing.B) {
	s := opened(b, manyJobs(), Options{})
	for _, f := range filters {
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				page, err := s.List(b.Context(), f.filter, "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(page.Examined), "examined")
				b.ReportMetric(float64(len(page.Jobs)), "jobs")
			}
		})
	}
}
