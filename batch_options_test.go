package harp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Options of batches are refused by a call of one host, which names them.
func TestBatchOptionsAreOfBatches(t *testing.T) {
	for field, opt := range map[string]Option{
		"parallel":       Parallel(1),
		"rolling":        Rolling("1"),
		"wave_pause":     WavePause(time.Second),
		"approve":        Approve(),
		"subset":         Subset("1"),
		"shuffle":        Shuffle(),
		"rate":           Rate(1, time.Second),
		"stop_after":     StopAfter("1"),
		"on_stop":        OnStop(CancelBatch),
		"max_hosts":      MaxHosts(1),
		"confirmed":      Confirmed("d"),
		"approve_first":  ApproveFirst(),
		"probe":          Probe(),
		"when_unfit":     WhenUnfit(SkipHost),
		"when_held":      WhenHeld(SkipHost),
		"queue_per_host": QueuePerHost(),
		"drift":          Options(CallOptions{DryRun: true, Batch: BatchOptions{Drift: "base"}}),
		"when_offline":   WhenOffline(SkipHost),
	} {
		var wrong *FieldError
		if _, err := NewRequest("web01", "p", nil, opt); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		r, err := NewBatchRequest("web*", "p", nil, opt, Queue(map[string]string{"q": "1"}))
		if err != nil {
			t.Errorf("%s of a batch: %v", field, err)
		}
		r.Target, r.Host, r.Needs = "", "web01", nil
		if err := r.Check(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s in a request of one host: %v", field, err)
		}
	}
}

// What cannot be is refused before anything is sent, and names the field.
func TestBadBatchOptions(t *testing.T) {
	many := make([]string, MaxWaves+1)
	for _, c := range []struct {
		field string
		opt   Option
	}{
		{"parallel", Parallel(0)},
		{"parallel", Parallel(-1)},
		{"rolling", Rolling()},
		{"rolling", Rolling("0")},
		{"rolling", Rolling("101%")},
		{"rolling", Rolling("5", "5")},
		{"rolling", Rolling("10%", "5%")},
		{"rolling", Rolling("x")},
		{"rolling", Rolling(many...)},
		{"wave_pause", WavePause(0)},
		{"wave_pause", WavePause(-1)},
		{"wave_pause", WavePause(NoLimit)},
		{"subset", Subset("")},
		{"subset", Subset("0%")},
		{"subset", Subset("+1")},
		{"subset", Subset("1.5")},
		{"rate", Rate(0, time.Second)},
		{"rate", Rate(1, 0)},
		{"rate", Rate(-1, time.Second)},
		{"rate_per", Rate(1, NoLimit)},
		{"stop_after", StopAfter("")},
		{"stop_after", StopAfter("-5%")},
		{"stop_after", StopAfter("5 %")},
		{"on_stop", OnStop("x")},
		{"max_hosts", MaxHosts(0)},
		{"max_hosts", MaxHosts(-1)},
		{"confirmed", Confirmed("")},
		{"confirmed", Confirmed(string(make([]byte, maxDigest+1)))},
		{"when_unfit", WhenUnfit("x")},
		{"when_held", WhenHeld("x")},
		{"when_offline", WhenOffline("x")},
		{"queue_per_host", QueuePerHost()},
		{"drift", Drift("")},
		{"drift", Drift("base")}, // no dry run
		{"drift", Options(CallOptions{DryRun: true, Batch: BatchOptions{Drift: strings.Repeat("n", MaxDriftName+1)}})},
		{"drift", Options(CallOptions{DryRun: true, Batch: BatchOptions{Drift: "\xff"}})},
		{"id", JobID(MemberID(NewID(), "web01", 1))},
	} {
		var wrong *FieldError
		if _, err := NewBatchRequest("web*", "p", nil, c.opt); !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	for _, which := range [][]string{{"running"}, {"x"}, {"failed("}, make([]string, MaxRetried+1)} {
		o := BatchOptions{Retry: which}
		if err := o.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("retry of %q: %v", which, err)
		}
	}
	for text, r := range map[string]Request{
		"host":  {Host: "web01", Target: "web*", Needs: []string{NeedBatch}},
		"needs": {Target: "web*"},
		"retry": {Target: "web*", Needs: []string{NeedBatch}, RetryOf: NewID()},
	} {
		r.ID, r.Procedure = NewID(), "p"
		var wrong *FieldError
		if err := r.Check(); !errors.As(err, &wrong) || wrong.Field != text {
			t.Errorf("a request with a wrong %s: %v", text, err)
		}
	}
}

// The last option wins, also as a struct, and a request keeps them on its way.
func TestBatchOptionsStack(t *testing.T) {
	given := BatchOptions{
		Parallel: 2, Rolling: []string{"1", "50%"}, WavePause: time.Minute, Approve: true, ApproveFirst: true, Subset: "10%", Shuffle: true, Rate: 3, RatePer: time.Second,
		StopAfter: "5%", OnStop: CancelBatch, MaxHosts: 9, Confirmed: "d", Probe: true, WhenUnfit: SkipHost, WhenHeld: SkipHost, QueuePerHost: true,
	}
	r, err := NewBatchRequest(" web01 , web02", "p", nil, Parallel(7), Options(CallOptions{Batch: given, Queue: Args{"q": 1}}), Subset("20%"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(r.Encode())
	given.Subset = "20%"
	if err != nil || got.Target != "web01,web02" || !got.IsBatch() || !slices.Equal(got.Batch.Rolling, given.Rolling) || got.Batch.Subset != "20%" || got.Batch.Parallel != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	other, again := got, got
	other.Batch.Subset, again.Batch.Parallel, again.Target = "10%", 5, "web01 , web02"
	if other.Digest() == got.Digest() || again.Digest() != got.Digest() {
		t.Error("another subset is another request, another way is not")
	}
}

// Waves rise, are never empty, and the last is all hosts.
func TestWaves(t *testing.T) {
	for _, c := range []struct {
		waves []string
		hosts int
		want  []int
	}{
		{nil, 3, []int{3}},
		{[]string{"1", "10%", "100%"}, 500, []int{1, 50, 500}},
		{[]string{"1", "10%"}, 5, []int{1, 5}},
		{[]string{"10%", "20%"}, 1, []int{1}},
		{[]string{"3", "7"}, 5, []int{3, 5}},
		{[]string{"2", "10%"}, 5, nil},
	} {
		o := BatchOptions{Rolling: c.waves}
		got, err := o.Waves(c.hosts)
		if !slices.Equal(got, c.want) || (c.want == nil) != errors.Is(err, ErrInvalid) {
			t.Errorf("%v of %d hosts are %v, %v", c.waves, c.hosts, got, err)
		}
	}
}

// A batch that is made again has fewer hosts than its waves were for: those that do not rise any more are left out.
func TestWavesOfABatchThatIsMadeAgain(t *testing.T) {
	o := BatchOptions{Rolling: []string{"2", "50%", "3"}, Retry: []string{"failed"}}
	for hosts, want := range map[int][]int{1: {1}, 2: {2}, 3: {2, 3}, 5: {2, 3, 5}, 20: {2, 10, 20}} {
		got, err := o.Waves(hosts)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("of %d hosts they are %v, %v, want %v", hosts, got, err, want)
		}
	}
}

// What is made again is said by states and reasons; what was cancelled with its batch only if it did not run.
func TestRetries(t *testing.T) {
	o := BatchOptions{Retry: []string{"failed", "expired(offline)", "cancelled(batch)"}}
	for _, c := range []struct {
		state  State
		reason string
		ran    Ran
		want   bool
	}{
		{StateFailed, "", DidRun, true},
		{StateExpired, ReasonOffline, DidNotRun, true},
		{StateExpired, "start_before", DidNotRun, false},
		{StateCancelled, ReasonBatch, DidNotRun, true},
		{StateCancelled, ReasonBatch, MayHaveRun, false},
		{StateCancelled, "", DidRun, false},
		{StateLost, "", MayHaveRun, false},
		{StateSucceeded, "", DidRun, false},
	} {
		if got := o.Retries(c.state, c.reason, c.ran); got != c.want {
			t.Errorf("%s(%s) that ran %s: %v", c.state, c.reason, c.ran, got)
		}
	}
}

// Hosts that ended alike are folded, most first.
func TestFold(t *testing.T) {
	one, _ := NewValue(1)
	failed := &RemoteError{Type: "x", Message: "m"}
	results := []HostResult{
		{Host: "c", Result: Result{State: StateFailed, Err: failed}},
		{Host: "b", Result: Result{State: StateSucceeded, Value: one, EndTime: time.Now()}},
		{Host: "a", Result: Result{State: StateSucceeded, Value: one}},
		{Host: "d", Result: Result{State: StateFailed, Err: &RemoteError{Type: "x", Message: "n"}}},
	}
	trouble := errors.New("trouble")
	folded, err := Fold(func(yield func(HostResult, error) bool) {
		for _, r := range results {
			if !yield(r, nil) {
				return
			}
		}
		yield(HostResult{}, trouble)
	})
	if !errors.Is(err, trouble) || len(folded) != 3 || !slices.Equal(folded[0].Hosts, []string{"a", "b"}) || !folded[0].Result.EndTime.IsZero() || folded[1].Hosts[0] != "c" {
		t.Errorf("folded it is %+v, %v", folded, err)
	}
}
