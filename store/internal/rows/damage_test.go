package rows

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// damage changes a bit of the first value that is stored under a prefix.
func (e *trial) damage(s *Store, prefix []byte) {
	e.poke(prefix, func(_, value []byte) []byte {
		value[len(value)-1] ^= 1
		return value
	})
	s.unlearn()
}

// works checks that a store goes on.
func works(t *testing.T, s *Store) {
	t.Helper()
	c := call("elsewhere")
	c.Job.ID = harp.NewID() // others of its time may be forgotten
	submitted(t, s, c)
}

// TestDamagedEntriesOfPrune checks that what cannot be read of tombstones, idempotency keys
// and the feed keeps nothing else from being deleted, and the store works on.
func TestDamagedEntriesOfPrune(t *testing.T) {
	for name, prefix := range map[string][]byte{
		"tombstones":      indexKey(byPruned),
		"idempotency key": {prefixOnce},
		"first event":     keyFirstEvent,
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			var jobs []*store.Job
			for range 2 {
				c := call("h")
				c.Key, c.KeyUntil = c.Job.ID, noon.Add(time.Minute)
				jobs = append(jobs, submitted(t, s, c)...)
			}
			applied(t, s, about(jobs[0], store.End))
			later := noon.Add(time.Hour)
			first := store.Retention{EndedBefore: later, EventsBefore: later}
			if name == "idempotency key" {
				e.damage(s, prefix)
				first.EventsBefore = time.Time{}
			}
			prune(t, s, first, later)
			applied(t, s, about(jobs[1], store.End))
			if name != "idempotency key" {
				e.damage(s, prefix)
			}
			later = later.Add(store.TombstoneTime + time.Hour)
			prune(t, s, store.Retention{EndedBefore: later, EventsBefore: later}, later)
			if _, err := s.Job(t.Context(), jobs[1].ID); !errors.Is(err, harp.ErrPruned) {
				t.Errorf("a job after it: %v, want ErrPruned", err)
			}
			if n := e.count(prefixOnce); n > 0 {
				t.Errorf("%d idempotency keys are left", n)
			}
			works(t, s)
		})
	}
}

// TestDamagedKey checks that a submission under an idempotency key that cannot be read is
// refused, and no other.
func TestDamagedKey(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	keyed := call("h")
	keyed.Key, keyed.KeyUntil = "key", noon.Add(time.Hour)
	submitted(t, s, keyed)
	e.damage(s, []byte{prefixOnce})
	keyed.Job.ID = harp.NewID()
	out, err := s.Submit(t.Context(), []store.Submission{call("h"), keyed}, noon)
	if err != nil || out[0].Err != nil || !errors.Is(out[1].Err, ErrDamaged) {
		t.Fatalf("submitting: %v, %+v", err, out)
	}
	works(t, s)
}

// TestDamagedJobHidesNoOther checks that a job whose row, or place in an index, cannot be read
// is left out of those that a host has, and of those that are listed.
func TestDamagedJobHidesNoOther(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	jobs := onHost(t, s, 3, nil)
	i, _ := parseID(jobs[0].ID)
	e.damage(s, i.key(prefixLife))
	got, err := s.Active(t.Context(), "h")
	if err != nil || len(got) != 2 || got[0].ID != jobs[1].ID {
		t.Errorf("%d are active, %v", len(got), err)
	}
	listed := func(f store.Filter, want ...*store.Job) {
		t.Helper()
		page, err := s.List(t.Context(), f, "")
		if err != nil || len(page.Jobs) != len(want) {
			t.Fatalf("%d are listed, %v, want %d", len(page.Jobs), err, len(want))
		}
		for n := range want {
			if page.Jobs[n].ID != want[n].ID {
				t.Errorf("%d is number %d, want %d", n, page.Jobs[n].No, want[n].No)
			}
		}
	}
	listed(store.Filter{}, jobs[2], jobs[1])
	listed(store.Filter{Host: "h", Procedure: "p"}, jobs[2], jobs[1])
	at := placeOf(nanos(jobs[1].SubmitTime), jobs[1].No)
	e.damage(s, slices.Concat(indexKey(byHost, "h"), at[:]))
	listed(store.Filter{Host: "h", Procedure: "p"}, jobs[2])
	listed(store.Filter{Procedure: "p"}, jobs[2], jobs[1])
}

// TestEventsMissing checks that of events that cannot be read those who follow the feed are
// told how many there were, and then all that came after them.
func TestEventsMissing(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	told := func(f harp.EventFilter, maxBytes int, want ...string) (cursor string) {
		t.Helper()
		var got []string
		for {
			page, err := s.Events(t.Context(), f, maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range page.Events {
				got = append(got, event.Host+event.Reason)
				if (event.Reason != "") != (event.Type == harp.EventsMissing) || event.Time.IsZero() != (event.Type == harp.EventsMissing) {
					t.Errorf("it is told %+v", event)
				}
				f.After = event.Cursor // as one goes on whose answer had no room for more
			}
			if len(page.Events) == 0 {
				if !slices.Equal(got, want) {
					t.Errorf("by %d bytes %q are told, want %q", maxBytes, got, want)
				}
				return page.Cursor
			}
		}
	}
	note(t, s, "a", 2, noon)
	seen := told(harp.EventFilter{After: harp.EventsFromStart}, 1<<20, "a0", "a1")
	note(t, s, "b", 3, noon)
	e.damage(s, eventKey(5))
	told(harp.EventFilter{After: harp.EventsFromStart}, 1<<20, "a0", "a1", "3")
	last := told(harp.EventFilter{After: seen}, 1<<20, "3")
	note(t, s, "c", 2, noon)
	told(harp.EventFilter{After: last}, 1<<20, "c0", "c1")
	told(harp.EventFilter{After: seen, Host: "c1"}, 1<<20, "3", "c1")
	told(harp.EventFilter{After: seen, Job: "none"}, 1<<20)
	for _, maxBytes := range []int{1, 1 << 20} {
		told(harp.EventFilter{After: seen}, maxBytes, "3", "c0", "c1")
		told(harp.EventFilter{After: harp.EventsFromStart}, maxBytes, "a0", "a1", "3", "c0", "c1")
	}
	e.damage(s, eventKey(2))
	s = opened(t, e, Options{})
	told(harp.EventFilter{After: harp.EventsFromStart}, 1<<20, "2", "3", "c0", "c1")
	if err := e.Commit([]Write{{eventKey(5), nil}}); err != nil { // it is not even there
		t.Fatal(err)
	}
	told(harp.EventFilter{After: harp.EventsFromStart}, 1<<20, "2", "3", "c0", "c1")
	prune(t, s, store.Retention{EventsBefore: noon.Add(time.Minute)}, noon)
	note(t, s, "d", 1, noon)
	told(harp.EventFilter{After: harp.EventsFromStart}, 1<<20, "d0")
}

// TestDamagedHost checks that a host whose row cannot be read is left out of the others.
func TestDamagedHost(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.OpenSession(t.Context(), store.Session{Host: name, At: noon}); err != nil {
			t.Fatal(err)
		}
	}
	e.damage(s, hostKey("b"))
	var got []string
	for cursor := ""; ; {
		page, next, err := s.ListHosts(t.Context(), cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page {
			got = append(got, h.Name)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v are listed", got)
	}
	works(t, s)
}

// TestLostHostComesBack checks that a host whose row is lost can connect: its epoch is higher than any that its
// agent has heard, and its journal is taken for another, as it is not known which it was.
func TestLostHostComesBack(t *testing.T) {
	eachDamage(t, "host", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		session := store.Session{Host: "h", Journal: "j", At: noon}
		var last uint64
		for range 3 {
			epoch, err := s.OpenSession(t.Context(), session)
			if err != nil || epoch != last+1 {
				t.Fatal(epoch, err)
			}
			last = epoch
		}
		started(t, s)
		if err := s.PutHost(t.Context(), store.Host{Name: "h", Journal: "j", Facts: make(harp.Value, 3*pieceSize)}); err != nil {
			t.Fatal(err)
		}
		damage(e, s, hostKey("h"))
		session.Journal = "" // as it is not known
		for range 2 {
			epoch, err := s.OpenSession(t.Context(), session)
			if err != nil || epoch <= last {
				t.Errorf("a session has epoch %d, %v, behind %d", epoch, err, last)
			}
			last = epoch
			h, err := s.Host(t.Context(), "h")
			if err != nil || h.Journal == "" || h.Journal == "j" || h.Epoch != last {
				t.Errorf("it is stored with journal %q and epoch %d, %v", h.Journal, h.Epoch, err)
			}
			session.Journal = h.Journal
		}
		damage(e, s, hostKey("h"))
		session.Journal = "k" // is known
		if _, err := s.OpenSession(t.Context(), session); err != nil {
			t.Error(err)
		}
		if h, err := s.Host(t.Context(), "h"); err != nil || h.Journal != "k" {
			t.Errorf("it is stored with journal %q, %v, want k", h.Journal, err)
		}
		if epoch, err := s.OpenSession(t.Context(), store.Session{Host: "new", At: noon}); err != nil || epoch != 1 {
			t.Errorf("a new host has epoch %d, %v", epoch, err)
		}
	})
}

// TestDamagedJobKeepsNoSlot checks that a job that waits and cannot be read does not keep a
// slot that came free from the next of its queue, and on its host.
func TestDamagedJobKeepsNoSlot(t *testing.T) {
	for name, try := range map[string]struct {
		most int
		call func(n int) store.Submission
	}{
		"queue": {1 << 20, func(int) store.Submission { return inQueue(call("h"), 0, 1) }},
		"host":  {1, func(n int) store.Submission { return inQueue(call("h"), n, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			s.SetGate("h", store.Gate{Open: true, Most: try.most})
			jobs := submitted(t, s, try.call(0), try.call(1), try.call(2))
			i, _ := parseID(jobs[1].ID)
			e.damage(s, i.key(prefixLife))
			if c := applied(t, s, about(jobs[0], store.End))[0]; len(c.Claimed) != 1 || c.Claimed[0].ID != jobs[2].ID {
				t.Errorf("by the slot %d were claimed, want the one behind what is damaged", len(c.Claimed))
			}
		})
	}
}

// TestMissingRows checks that a result or a request that is not there any more is not given as
// none, or as that of no job, and that a job that is not there hides no other from a listing.
func TestMissingRows(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	c := call("h")
	c.Request.Request = make([]byte, shortMost+1)
	j := submitted(t, s, c)[0]
	end := about(j, store.End)
	end.Event.Value = make(harp.Value, shortMost+1)
	applied(t, s, end)
	other := submitted(t, s, call("h"))[0]
	i, _ := parseID(j.ID)
	lose := func(prefix byte) {
		e.poke(i.key(prefix), func(_, _ []byte) []byte { return nil })
		s.unlearn()
	}
	lose(prefixValue)
	if v, err := s.Value(t.Context(), j.ID); !errors.Is(err, ErrDamaged) {
		t.Errorf("the value is %v, %v, want ErrDamaged", v, err)
	}
	lose(prefixRequest)
	if r, err := s.Request(t.Context(), j.ID); !errors.Is(err, ErrDamaged) {
		t.Errorf("the request is %v, %v, want ErrDamaged", r, err)
	}
	lose(prefixCall)
	if page, err := s.List(t.Context(), store.Filter{}, ""); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != other.ID {
		t.Errorf("%d are listed, %v, want the other", len(page.Jobs), err)
	}
}

// TestMissingJobIsNotNew asks again for a job that has run, one of whose two rows is not there any
// more: it is no new one, which would run a second time, nor one that nobody knows, of which its
// agent would be told to forget what it has.
func TestMissingJobIsNotNew(t *testing.T) {
	for name, prefix := range map[string]byte{"what never changes": prefixCall, "its life": prefixLife} {
		for state, ends := range map[string]bool{"ended": true, "running": false} {
			t.Run(name+" "+state, func(t *testing.T) {
				e := newTrial()
				s, err := Open(e, Options{})
				if err != nil {
					t.Fatal(err)
				}
				openGate(s, "h")
				c := call("h")
				j := submitted(t, s, c)[0]
				if ends {
					applied(t, s, about(j, store.End))
				}
				i, _ := parseID(j.ID)
				e.poke(i.key(prefix), func(_, _ []byte) []byte { return nil })
				s.unlearn()
				out, err := s.Submit(t.Context(), []store.Submission{c}, noon)
				if err != nil || out[0].New || !errors.Is(out[0].Err, ErrDamaged) {
					t.Errorf("asked for again it is new %v, %v, %v, want ErrDamaged", out[0].New, out[0].Err, err)
				}
				if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, ErrDamaged) {
					t.Errorf("reading it: %v, want ErrDamaged", err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDamagedIsReplaced checks that what cannot be read is replaced, with all its pieces: what
// an attempt had returned, by what the next one does, or by nothing, and a document.
func TestDamagedIsReplaced(t *testing.T) {
	for name, size := range map[string]int{"long": 3 * pieceSize, "short": 1, "none": 0} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			c := call("h")
			c.Job.Retry = largestCall().Job.Retry
			end := about(submitted(t, s, c)[0], store.End)
			end.Event.Failure, end.Event.Value = harp.Failure{Code: "remote"}, make(harp.Value, 5*pieceSize)
			j := applied(t, s, end)[0].Claimed[0]
			damageFirst := func(prefix byte) {
				e.poke([]byte{prefix}, func(_, value []byte) []byte { return append(value[:0], "damage"...) })
			}
			damageFirst(prefixValue)
			end = about(j, store.End)
			end.Event.Value = make(harp.Value, size)
			applied(t, s, end)
			if v, err := s.Value(t.Context(), j.ID); err != nil || len(v) != size {
				t.Errorf("the value has %d bytes, %v, want %d", len(v), err, size)
			}
			if n, want := e.count(prefixPiece), max(0, size-1)/pieceSize; n != want {
				t.Errorf("%d pieces are left, want %d", n, want)
			}

			for _, content := range [][]byte{make([]byte, 2*pieceSize), make([]byte, size)} {
				if err := s.PutDocument(t.Context(), "kind", "name", content); err != nil {
					t.Fatal(err)
				}
				if len(content) == 2*pieceSize {
					damageFirst(prefixDocument)
				}
			}
			if got, err := s.Document(t.Context(), "kind", "name"); err != nil || len(got) != size {
				t.Errorf("the document has %d bytes, %v, want %d", len(got), err, size)
			}
		})
	}
}

// TestDamagedOutcome checks that a job of which it cannot be read what an attempt had said of
// its failure goes on: the store opens, the next attempt ends, or the job does as that had, with
// what it had returned.
func TestDamagedOutcome(t *testing.T) {
	for name, try := range map[string]struct {
		damage func(value []byte) []byte
		then   func(t *testing.T, s *Store) *store.Job
		want   harp.State
		code   string
	}{
		"bit": {
			damage: func(value []byte) []byte { value[len(value)-1] ^= 1; return value },
			then: func(t *testing.T, s *Store) *store.Job {
				j := advanceAll(t, s, noon.Add(time.Hour)).Claimed[0]
				return applied(t, s, about(j, store.End))[0].Job
			},
			want: harp.StateSucceeded,
		},
		"gone": {
			damage: func([]byte) []byte { return nil },
			then: func(t *testing.T, s *Store) *store.Job {
				s.SetGate("h", store.Gate{Reason: harp.ReasonOffline})
				return advanceAll(t, s, noon.Add(48*time.Hour)).Ended[0]
			},
			want: harp.StateFailed, code: "remote",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			c := call("h")
			c.Job.Retry, c.Job.Expires = largestCall().Job.Retry, noon.Add(24*time.Hour)
			end := about(submitted(t, s, c)[0], store.End)
			end.Event.Failure, end.Event.Jitter = harp.Failure{Code: "remote", Data: make([]byte, 3*pieceSize)}, 1
			end.Event.Value = make(harp.Value, 5*pieceSize)
			applied(t, s, end)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			e.poke([]byte{prefixOutcome}, func(_, value []byte) []byte { return try.damage(value) })
			s = opened(t, e, Options{})
			openGate(s, "h")
			if j := try.then(t, s); j.State != try.want || j.Failure.Code != try.code || j.Started != harp.DidRun {
				t.Errorf("it is %s, started %q, %q, want %s, %q", j.State, j.Started, j.Failure.Code, try.want, try.code)
			} else if v, err := s.Value(t.Context(), j.ID); err != nil || j.HasValue != (len(v) > 0) || j.HasValue != (try.code != "") {
				t.Errorf("it returned %d bytes, %v, and says %t", len(v), err, j.HasValue)
			}
		})
	}
}

// eachDamage runs a test with a row that has a bit changed, and with one that is not there any more.
func eachDamage(t *testing.T, what string, test func(t *testing.T, damage func(e *trial, s *Store, key []byte))) {
	for name, damage := range map[string]func(e *trial, s *Store, key []byte){
		"":     (*trial).damage,
		"gone": func(e *trial, s *Store, key []byte) { e.lose(key); s.unlearn() },
	} {
		t.Run(what+" "+name, func(t *testing.T) { test(t, damage) })
	}
}
