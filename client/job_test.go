package client

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// TestJob: what a user does with a job gives the same over every wiring.
func TestJob(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		ctx := t.Context()
		job, err := caller.Host("web01").Call(ctx, "p", harp.Args{"a": 1}, harp.Queue(harp.Args{"q": 1}), harp.Info("mine"), harp.Label("k", "v"))
		if err != nil {
			t.Fatal(err)
		}
		status, err := job.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := harp.JobStatus{
			ID: job.ID(), Host: "web01", Procedure: "p", Args: must(harp.NewValue(harp.Args{"a": 1})), Queue: must(harp.NewValue(harp.Args{"q": 1})),
			Info: must(harp.NewValue("mine")), Labels: map[string]string{"k": "v"}, State: harp.StateRunning, SubmitTime: harp.IDTime(job.ID()),
		}
		if !reflect.DeepEqual(status, want) {
			t.Errorf("got %+v, want %+v", status, want)
		}
		if res, err := job.Result(ctx); err != nil || res.Done() || !reflect.DeepEqual(res, harp.Result{}) {
			t.Error(res, err)
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := job.Wait(short); !errors.Is(err, context.Canceled) || harp.RanOf(err) != harp.MayHaveRun {
			t.Error(err)
		}
		if live, err := job.Cancel(ctx); err != nil || !live {
			t.Error(live, err)
		}
		if live, err := job.Cancel(ctx); err != nil || live {
			t.Error(live, err)
		}
		if _, err := job.Get(ctx); !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidRun {
			t.Error(err)
		}
		if res, err := job.Result(ctx); err != nil || res.State != harp.StateCancelled || !errors.Is(res.Err, harp.ErrCancelled) {
			t.Error(res, err)
		}
	})
}

// TestWaitingGet: Get, Wait and typed Get wait for the end.
func TestWaitingGet(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add()
		go func() {
			d.until(func() bool { return d.waiting == 3 })
			exit := 3
			d.end(id, harp.Result{State: harp.StateSucceeded, Value: must(harp.NewValue(42)), ExitCode: &exit})
		}()
		got := make(chan int, 3)
		go func() {
			n, err := harp.Get[int](t.Context(), caller.Job(id))
			if err != nil {
				t.Error(err)
			}
			got <- n
		}()
		go func() {
			v, err := caller.Job(id).Get(t.Context())
			if err != nil {
				t.Error(err)
			}
			var n int
			if err := v.Decode(&n); err != nil {
				t.Error(err)
			}
			got <- n
		}()
		res, err := caller.Job(id).Wait(t.Context())
		if err != nil || !res.Done() || *res.ExitCode != 3 {
			t.Error(res, err)
		}
		for range 2 {
			if n := <-got; n != 42 {
				t.Error(n)
			}
		}
	})
}

// TestAncestorDefect5 is a regression test: in harp's ancestor a handle that had once
// seen that a job was not finished said so for ever.
func TestAncestorDefect5(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add()
		job := caller.Job(id)
		if res, err := job.Result(t.Context()); err != nil || res.Done() {
			t.Fatal(res, err)
		}
		if status, err := job.Status(t.Context()); err != nil || status.State.Ended() {
			t.Fatal(status, err)
		}
		d.emit(id, "last words")
		d.end(id, succeeded)
		if res, err := job.Result(t.Context()); err != nil || !res.Done() {
			t.Error("the same handle still says that the job has not finished:", res, err)
		}
		if status, err := job.Status(t.Context()); err != nil || !status.State.Ended() {
			t.Error("the same handle still says that the job has not finished:", status, err)
		}
		if _, err := job.Get(t.Context()); err != nil {
			t.Error(err)
		}
		if got := seqs(t, job.Stream(t.Context())); !slices.Equal(got, numbers(0, 1)) {
			t.Error(got)
		}
	})
}

// TestErrorsOverEveryWiring: whatever error a Service answers with, a caller gets the
// same identity and content, wherever the Service is.
func TestErrorsOverEveryWiring(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		for name, f := range allFailures() {
			if name != "closed" { // of a Service over a network it means: ask again
				d.failing("RefreshHosts", f.Err())
				_, err := caller.Hosts().Refresh(t.Context())
				sameError(t, err, f)
			}
			id := d.add()
			d.end(id, harp.Result{State: harp.StateFailed, Err: f.Err()})
			res, err := caller.Job(id).Result(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sameError(t, res.Err, f)
			status, err := caller.Job(id).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sameError(t, status.Err, f)
			_, err = caller.Job(id).Get(t.Context())
			sameError(t, err, f)
		}
	})
}

// TestHostsAndQueues: listings, single items and what is not there.
func TestHostsAndQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		ctx := t.Context()
		d.pageSize = 2
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			d.hosts = append(d.hosts, harp.HostStatus{Name: name, Online: true, Labels: map[string]string{"n": name}, LastHeard: time.Unix(3, 0).UTC()})
			d.procs = append(d.procs, harp.ProcedureDoc{Name: name, Params: []string{"x"}, Args: json.RawMessage(`{"type":"object"}`)})
			d.queues = append(d.queues, harp.QueueStatus{Name: must(harp.NewValue(harp.Args{"n": name})), Concurrency: 1, Running: 1, Waiting: 2})
		}
		var hosts []harp.HostStatus
		for h, err := range caller.Hosts().List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, h)
		}
		if !reflect.DeepEqual(hosts, d.hosts) {
			t.Errorf("got %+v", hosts)
		}
		if h, err := caller.Hosts().Get(ctx, "c"); err != nil || !reflect.DeepEqual(h, d.hosts[2]) {
			t.Error(h, err)
		}
		if _, err := caller.Hosts().Get(ctx, "z"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		_, err := caller.Hosts().Get(ctx, "")
		wantField(t, err, "host")
		docs, err := caller.Hosts().Procedures(ctx, "a")
		if err != nil || !reflect.DeepEqual(docs, d.procs) {
			t.Error(docs, err)
		}
		if _, err := caller.Hosts().Procedures(ctx, "z"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		if n, err := caller.Hosts().Refresh(ctx); err != nil || n != 5 {
			t.Error(n, err)
		}
		var queues []harp.QueueStatus
		for q, err := range caller.Queues().List(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			queues = append(queues, q)
		}
		if !reflect.DeepEqual(queues, d.queues) {
			t.Errorf("got %+v", queues)
		}
		if q, err := caller.Queues().Get(ctx, map[string]string{"n": "b"}); err != nil || !reflect.DeepEqual(q, d.queues[1]) {
			t.Error(q, err)
		}
		if n, err := caller.Queues().Cancel(ctx, harp.Args{"n": "b"}); err != nil || n != 3 {
			t.Error(n, err)
		}
		for _, name := range []any{nil, "x", 5, make(chan int)} {
			_, err := caller.Queues().Get(ctx, name)
			wantField(t, err, "queue")
			_, err = caller.Queues().Cancel(ctx, name)
			wantField(t, err, "queue")
		}
		if _, err := caller.Queues().Get(ctx, harp.Args{}); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		if _, err := caller.Queues().Cancel(ctx, harp.Args{}); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		if info, err := caller.Ping(ctx); err != nil || info.Software != "fake/1" || !info.Time.Equal(time.Unix(5, 0)) {
			t.Error(info, err)
		}
	})
}

// TestJobs: jobs are listed by pages, newest first, and a page can be asked for by
// its cursor.
func TestJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 2
		var want []string
		for range 5 {
			want = append([]string{d.add()}, want...)
		}
		var got []string
		for s, err := range caller.Jobs(t.Context(), harp.JobFilter{Host: "web01"}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		page, err := caller.JobsPage(t.Context(), harp.JobFilter{}, "")
		if err != nil || len(page.Items) != 2 || page.Cursor == "" {
			t.Fatal(page, err)
		}
		if page, err = caller.JobsPage(t.Context(), harp.JobFilter{}, page.Cursor); err != nil || page.Items[0].ID != want[2] {
			t.Error(page, err)
		}
		_, err = caller.JobsPage(t.Context(), harp.JobFilter{}, "x")
		wantField(t, err, "cursor")
		for _, err := range caller.Jobs(t.Context(), harp.JobFilter{}) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		for s, err := range caller.Jobs(t.Context(), harp.JobFilter{Host: "other"}) {
			t.Error(s, err)
		}
	})
}

// TestConflict: an id is the same job again only for the same request.
func TestConflict(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := harp.NewID()
		host := caller.Host("web01", harp.JobID(id))
		for range 2 {
			if job, err := host.Call(t.Context(), "p", harp.Args{"a": 1}); err != nil || job.ID() != id {
				t.Fatal(job, err)
			}
		}
		_, err := host.Call(t.Context(), "p", harp.Args{"a": 2})
		if !errors.Is(err, harp.ErrConflict) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err, harp.RanOf(err))
		}
		if len(d.order) != 1 {
			t.Errorf("%d jobs", len(d.order))
		}
	})
}

// TestCloseCaller: closing a Caller makes what waits in it return ErrClosed, and
// everything after it.
func TestCloseCaller(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add()
		waited := make(chan error, 3)
		go func() { _, err := caller.Job(id).Get(t.Context()); waited <- err }()
		go func() { _, err := caller.Job(id).Wait(t.Context()); waited <- err }()
		go func() {
			for _, err := range caller.Job(id).Follow(t.Context()) {
				waited <- err
			}
		}()
		d.until(func() bool { return d.waiting == 3 })
		for range 2 {
			if err := caller.Close(); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if err := <-waited; !errors.Is(err, harp.ErrClosed) || harp.RanOf(err) != harp.MayHaveRun {
				t.Error(err)
			}
		}
		_, err := caller.Host("web01").Call(t.Context(), "p", nil)
		if !errors.Is(err, harp.ErrClosed) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err, harp.RanOf(err))
		}
		if _, err := caller.Ping(t.Context()); !errors.Is(err, harp.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestPrintJSON: the JSON of the nouns is what the command line promises.
func TestPrintJSON(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		noun any
		want string
	}{
		{harp.JobStatus{}, `{"id":"","host":"","procedure":"","principal":{"kind":"","name":"","auth":""},"state":"","reason":"","started":"","attempt":0,"records":0}`},
		{harp.JobStatus{ID: "j", State: harp.StateTimedOut, Err: &harp.TimeoutError{Limit: time.Second, Of: harp.LimitSilenceTimeout}, SubmitTime: at, SilenceTimeout: harp.NoLimit, MaxExecTime: time.Minute, QueuePos: 2, UnknownOf: harp.StateSent, CancelRequested: &harp.CancelRequest{Time: at}}, `{"id":"j","host":"","procedure":"","principal":{"kind":"","name":"","auth":""},"state":"timed_out","reason":"","unknown_of":"sent","started":"","cancel_requested":{"by":{"kind":"","name":"","auth":""},"time":"2027-01-02T03:04:05Z"},"attempt":0,"submit_time":"2027-01-02T03:04:05Z","queue_pos":2,"records":0,"error":{"code":"timeout","ran":"yes","fault":"policy","limit":1000000000,"limit_of":"timeout"},"silence_timeout":"none","max_exec_time":"1m0s"}`},
		{harp.HostStatus{Name: "h"}, `{"name":"h","online":false}`},
		{harp.QueueStatus{Name: must(harp.NewValue(harp.Args{"q": 1})), Concurrency: 1}, `{"name":{"q":1},"concurrency":1,"running":0,"waiting":0,"paused":false}`},
		{harp.QueueStatus{Name: must(harp.NewValue(harp.Args{"q": 1})), Concurrency: 1, Paused: true, Pause: &harp.QueuePause{By: harp.Principal{Kind: "caller", Name: "ci", Auth: "tls"}, Reason: "disk", Since: at, Until: at}}, `{"name":{"q":1},"concurrency":1,"running":0,"waiting":0,"paused":true,"pause":{"by":{"kind":"caller","name":"ci","auth":"tls"},"reason":"disk","since":"2027-01-02T03:04:05Z","until":"2027-01-02T03:04:05Z"}}`},
		{harp.QueueStatus{Name: must(harp.NewValue(harp.Args{"q": 1})), Concurrency: 1, Paused: true, Pause: &harp.QueuePause{}}, `{"name":{"q":1},"concurrency":1,"running":0,"waiting":0,"paused":true,"pause":{}}`},
		{harp.Record{Seq: 1, Attempt: 1, Time: at, Kind: harp.KindData, Value: harp.Value{0xc3}, Partial: true, Truncated: 5}, `{"seq":1,"attempt":1,"time":"2027-01-02T03:04:05Z","kind":"data","value":true,"partial":true,"truncated":5}`},
		{harp.Result{State: harp.StateFailed, Value: harp.Value{0xc3}, Err: &harp.TimeoutError{Limit: time.Second, Of: harp.LimitSilenceTimeout}, ExitCode: ptr(3)}, `{"state":"failed","value":true,"exit_code":3,"error":{"code":"timeout","ran":"yes","fault":"policy","limit":1000000000,"limit_of":"timeout"}}`},
		{harp.Result{}, `{"state":""}`},
		{harp.Event{Cursor: "7", Time: at, Type: harp.EventHostOnline, Host: "h"}, `{"cursor":"7","time":"2027-01-02T03:04:05Z","type":"host.online","host":"h"}`},
		{
			harp.Event{Cursor: "7", Time: at, Type: harp.EventJobLost, Job: "j", Host: "h", Procedure: "p", Queue: must(harp.NewValue(harp.Args{"q": 1})), State: harp.StateLost, Reason: harp.LostForced, Attempt: 2, By: harp.Principal{Kind: "caller", Name: "ci", Auth: "tls"}, Labels: map[string]string{"a": "b"}},
			`{"cursor":"7","time":"2027-01-02T03:04:05Z","type":"job.lost","job":"j","host":"h","procedure":"p","queue":{"q":1},"state":"lost","reason":"forced","attempt":2,"by":{"kind":"caller","name":"ci","auth":"tls"},"labels":{"a":"b"}}`,
		},
		{harp.Attempt{Number: 1, Base: 2, Sent: at, Outcome: "lost", Reason: "journal_gone"}, `{"number":1,"base":2,"sent":"2027-01-02T03:04:05Z","outcome":"lost","reason":"journal_gone"}`},
		{harp.Record{}, `{"seq":0,"attempt":0,"time":"0001-01-01T00:00:00Z","kind":"","value":null}`},
	} {
		got, err := json.Marshal(c.noun)
		if err != nil || string(got) != c.want {
			t.Errorf("%T: %v\ngot  %s\nwant %s", c.noun, err, got, c.want)
		}
	}
}
