package dispatcher

import (
	"errors"
	"fmt"
	"testing"

	"github.com/harpcaller/harp"
)

// TestRequestsAreBounded checks that the requests of batches that were used last are read once, and that
// what is kept of them is bounded, in number and in bytes.
func TestRequestsAreBounded(t *testing.T) {
	var r requests
	reads := 0
	get := func(name string, size int) {
		t.Helper()
		sub, err := r.get(name, func() (harp.Submission, error) {
			reads++
			return harp.Submission{Request: make([]byte, size)}, nil
		})
		if err != nil || len(sub.Request) != size {
			t.Fatalf("%d bytes, %v", len(sub.Request), err)
		}
		bytes := 0
		for n := range r.kept {
			bytes += requestSize(r.kept[n].sub)
		}
		if len(r.kept) > maxKeptRequests || r.bytes != bytes || bytes > maxKeptRequestBytes {
			t.Fatalf("%d requests of %d bytes are kept, %d say they", len(r.kept), bytes, r.bytes)
		}
	}
	for n := range 3 * maxKeptRequests {
		get(fmt.Sprint(n), 10)
		get("often", 10)
	}
	if want := 3*maxKeptRequests + 1; reads != want {
		t.Errorf("%d reads, want %d", reads, want)
	}
	for n := range 20 {
		get(fmt.Sprint("long", n), 1<<20)
	}
	get("too long", maxKeptRequestBytes+1)
	broken := errors.New("broken")
	if _, err := r.get("bad", func() (harp.Submission, error) { return harp.Submission{}, broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	get("bad", 10)
}
