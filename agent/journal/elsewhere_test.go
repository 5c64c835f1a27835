package journal

import (
	"errors"
	"testing"
	"time"
)

// What is kept elsewhere counts as if it were here, of the job and of the agent, until the
// attempt has ended.
func TestWhatIsKeptElsewhereCounts(t *testing.T) {
	j, err := Open(NewMemory().Mount(), Options{MaxJob: 10_000, MaxAgent: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	k, other := Key{"a", 1}, Key{"b", 1}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.AcceptStart(k, Accept{Elsewhere: 9000}, time.Now()))
	must(j.AcceptStart(other, Accept{}, time.Now()))
	if _, err := j.Append(k, 0, make([]byte, 2000)); !errors.Is(err, ErrFull) {
		t.Errorf("2000 bytes beside 9000 elsewhere: %v", err)
	}
	must(j.AcceptStart(Key{"x", 1}, Accept{Elsewhere: 9000}, time.Now()))
	if err := j.AcceptStart(Key{"y", 1}, Accept{Elsewhere: 9000}, time.Now()); !errors.Is(err, ErrFull) {
		t.Errorf("9000 bytes elsewhere beside 18,000: %v", err)
	}
	must(j.Forget(Key{"x", 1}))
	must(j.KeepElsewhere(k, 5000))
	if _, err := j.Append(k, 0, make([]byte, 2000)); err != nil {
		t.Errorf("2000 bytes beside 5000 elsewhere: %v", err)
	}
	_, _, err = j.End(k, End{Body: []byte("end"), Records: 1})
	must(err)
	must(j.AcceptStart(Key{"c", 1}, Accept{Elsewhere: 9900}, time.Now()))
	must(j.AcceptStart(Key{"d", 1}, Accept{Elsewhere: 9900}, time.Now()))
	if err := j.KeepElsewhere(Key{"e", 1}, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("of an attempt that is not here: %v", err)
	}
	must(j.Forget(Key{"c", 1}, Key{"d", 1}, k, other))
	must(j.Sync())
	if j.used != 0 {
		t.Errorf("%d bytes are counted of nothing", j.used)
	}
}
