package journal

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestLimits: a job and the agent hold so much; an END without its value fits.
func TestLimits(t *testing.T) {
	inBubble(t, Options{MaxJob: 10_000, MaxAgent: 30_000}, func(t *testing.T, _ *gate, j *Journal) {
		record := make([]byte, 4000)
		var full *FullError
		for i := 0; ; i++ {
			if err := j.AcceptStart(key(i), Accept{}, now()); err != nil {
				if !errors.As(err, &full) || full.Job != "" || i < 2 {
					t.Fatal(err)
				}
				break
			}
			_, err := j.Append(key(i), 0, record, record)
			if i < 2 {
				must(t, err)
				if _, err := j.Append(key(i), 2, record); !errors.As(err, &full) || full.Job != key(i).Job {
					t.Fatalf("a job with too much: %v", err)
				}
			}
		}
		for _, h := range j.Held() {
			end := End{Body: make([]byte, 8000), Records: h.Records}
			if _, _, err := j.End(h.Key, end); !errors.Is(err, ErrFull) {
				t.Fatalf("an end that is too large: %v", err)
			}
			end.Bare = make([]byte, MaxBare)
			c, dropped, err := j.End(h.Key, end)
			if err := wait(c, err); err != nil || !dropped {
				t.Fatalf("an end without its value: %v, %v", dropped, err)
			}
		}
		for _, h := range j.Held() {
			if h.State != Ended || !h.Dropped {
				t.Errorf("%+v", h)
			}
		}
		must(t, j.Forget(key(0)))
		must(t, j.AcceptStart(key(1000), Accept{}, now()))
		if j.used > j.opts.MaxAgent {
			t.Errorf("%d bytes are held", j.used)
		}
	})
}

// TestMaxAttempts: as many attempts are held, ended or not, and another one when one is forgotten.
func TestMaxAttempts(t *testing.T) {
	inBubble(t, Options{MaxAttempts: 3}, func(t *testing.T, _ *gate, j *Journal) {
		for i := range 3 {
			must(t, j.AcceptStart(key(i), Accept{}, now()))
		}
		c, _, err := j.End(key(0), End{})
		must(t, wait(c, err))
		full := new(FullError)
		if err := j.AcceptStart(key(3), Accept{}, now()); !errors.As(err, &full) || !full.Attempts || full.Limit != 3 || !errors.Is(err, ErrFull) {
			t.Errorf("a fourth: %v", err)
		}
		if err := j.AcceptStart(key(0), Accept{}, now()); !errors.Is(err, ErrKnown) {
			t.Errorf("one that is there: %v", err)
		}
		must(t, j.Forget(key(0)))
		must(t, j.AcceptStart(key(3), Accept{}, now()))
	})
}

// TestExactLimits: what is as large as it may be is taken, and a byte more is not.
func TestExactLimits(t *testing.T) {
	inBubble(t, Options{MaxJob: 10_000, MaxAgent: 20_000}, func(t *testing.T, g *gate, j *Journal) {
		long := Key{string(make([]byte, 128)), 1}
		must(t, j.AcceptStart(long, Accept{}, now()))
		must(t, wait(j.Stopping(long, Stop{Cause: string(make([]byte, 64))})))
		c, dropped, err := j.End(long, End{Bare: make([]byte, MaxBare), Body: make([]byte, 20_000)})
		if err := wait(c, err); err != nil || !dropped {
			t.Errorf("the longest bare end: %v, %v", dropped, err)
		}
		must(t, j.Forget(long))

		for i, body := range []int{10_000 - (Reserve - MaxBare), 10_000 - (Reserve - MaxBare) + 1} {
			must(t, j.AcceptStart(key(i), Accept{}, now()))
			if _, dropped, err := j.End(key(i), End{Body: make([]byte, body), Bare: []byte{}}); err != nil || dropped != (i == 1) {
				t.Errorf("an end of %d bytes: %v, %v", body, dropped, err)
			}
			must(t, j.Forget(key(i)))
		}

		must(t, j.AcceptStart(key(2), Accept{}, now()))
		record := 10_000 - extentCost - recordCost
		if _, err := j.Append(key(2), 0, make([]byte, record+1)); !errors.Is(err, ErrFull) {
			t.Errorf("a record of a byte too much: %v", err)
		}
		must(t, wait(j.Append(key(2), 0, make([]byte, record))))
		left := int(20_000 - j.used - (Reserve + stateCost))
		if err := j.AcceptStart(key(3), Accept{Info: make([]byte, left+1)}, now()); !errors.Is(err, ErrFull) {
			t.Errorf("an attempt of a byte too much: %v", err)
		}
		must(t, j.AcceptStart(key(3), Accept{Info: make([]byte, left)}, now()))
		if j.used != 20_000 {
			t.Errorf("%d bytes are held", j.used)
		}
	})
	inBubble(t, Options{SyncBytes: 1000}, func(t *testing.T, g *gate, j *Journal) {
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		g.count()
		for n, want := range []int{0, 1} {
			_, err := j.Append(key(1), int64(n), make([]byte, 500-recordCost))
			must(t, err)
			synctest.Wait()
			if n := g.count(); n != want {
				t.Errorf("%d syncs, expected %d", n, want)
			}
		}
		for most, want := range map[int]int{0: 1, 500 - recordCost: 1, 2*(500-recordCost) - 1: 1, 2 * (500 - recordCost): 2} {
			if _, list, err := j.Records(key(1), 0, most); err != nil || len(list) != want {
				t.Errorf("of records of at most %d bytes: %d, %v", most, len(list), err)
			}
		}
	})
}

// TestBounds: what makes no sense is refused.
func TestBounds(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, _ *gate, j *Journal) {
		long := string(make([]byte, 129))
		must(t, j.AcceptStart(key(1), Accept{}, now()))
		for what, err := range map[string]error{
			"no job":    j.Accept(Key{"", 1}, Accept{}),
			"long job":  j.Accept(Key{long, 1}, Accept{}),
			"attempt 0": j.Forget(Key{"a", 0}),
			"no record": wait(j.Append(key(1), 0)),
			"cause":     wait(j.Stopping(key(1), Stop{Cause: long})),
			"ack":       j.Ack(key(1), 1),
			"bare": func() error {
				c, _, err := j.End(key(1), End{Bare: make([]byte, MaxBare+1)})
				return wait(c, err)
			}(),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
