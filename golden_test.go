package harp

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRequestGolden checks the bytes of a request: they are signed, sent and stored as they
// are. A golden file changes only when requestVersion does.
func TestRequestGolden(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(0, n).UTC() }
	for name, r := range map[string]Request{
		"request": {
			ID: "0198f0a2-7c11-7000-8000-000000000001", Host: "web01", Procedure: "service.restart",
			Args: Value{0x80}, Queue: Value{0x80}, Info: Value{0xc0}, Labels: map[string]string{"b": "2", "a": "1"},
			Concurrency: 2, Priority: -5, SilenceTimeout: 1, MaxExecTime: 2, StartAfter: at(3), StartBefore: at(4), OfflineWait: 5,
			WhenOffline: FailFast, TraceParent: "00-1-2-01", Needs: []string{"x"},
			Retry:   RetryPolicy{On: []State{StateLost, StateFailed}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute},
			RetryOf: "0198f0a2-7c11-7000-8000-000000000000", DryRun: true, IdempotencyKey: "restart-42", IdempotencyTTL: 10 * time.Minute,
		},
		"request_batch": {
			ID: "0198f0a2-7c11-7000-8000-000000000001", Target: "web*", Procedure: "p", Needs: []string{NeedBatch}, WhenOffline: SkipHost, Queue: Value{0x80},
			RetryOf: "0198f0a2-7c11-7000-8000-000000000000",
			Batch: BatchOptions{
				Parallel: 1, Rolling: []string{"1", "10%"}, WavePause: 2, Approve: true, ApproveFirst: true, Subset: "50%", Shuffle: true, Rate: 3, RatePer: time.Second, StopAfter: "5%",
				OnStop: CancelBatch, MaxHosts: 4, Confirmed: "d", Probe: true, WhenUnfit: SkipHost, WhenHeld: SkipHost, QueuePerHost: true, Drift: "base", Retry: []string{"failed"},
			},
		},
		"request_plain": {ID: "0198f0a2-7c11-7000-8000-000000000001", Host: "web01", Procedure: "p"},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.Dump(r.Encode()); got != string(want) {
			t.Errorf("bytes have changed:\n%s\nwant\n%s", got, want)
		}
	}
}
