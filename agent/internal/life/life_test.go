package life

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp/internal/wire"
)

// begun is an attempt that runs and is not journalled.
func begun() *Attempt {
	a := New(Here, false, 0)
	a.Next(Event{Kind: Start, At: 1})
	return &a
}

// attach makes a peer the one that is told, from the first record on.
func attach(a *Attempt) *Peer {
	p := new(Peer)
	a.Next(Event{Kind: Attach, Peer: p})
	return p
}

// An attempt begins once, or is refused once.
func TestBegin(t *testing.T) {
	for name, test := range map[string]struct {
		kinds []Kind
		runs  int
		want  Phase
	}{
		"started":                  {[]Kind{Start}, 1, Running},
		"started twice":            {[]Kind{Start, Start}, 1, Running},
		"refused":                  {[]Kind{Refuse}, 0, Refused},
		"started when refused":     {[]Kind{Refuse, Start}, 0, Refused},
		"refused when it runs":     {[]Kind{Start, Refuse}, 1, Running},
		"started when it is over":  {[]Kind{Start, Return, Start}, 1, Gone},
		"recalled and then begins": {[]Kind{Start, Return, Refuse, Start}, 1, Gone},
	} {
		t.Run(name, func(t *testing.T) {
			a, runs := New(Here, false, 0), 0
			for _, kind := range test.kinds {
				if a.Next(Event{Kind: kind}).Run {
					runs++
				}
			}
			if runs != test.runs || a.phase != test.want {
				t.Errorf("it is run %d times, and in phase %d", runs, a.phase)
			}
		})
	}
}

// A command's record has the number that its supervisor gave it. It is put once; one that nobody
// asks for, or that is not wanted, is passed over.
func TestNumbers(t *testing.T) {
	a := begun()
	at := func(n, size int64, r wire.Record) Put {
		return a.Next(Event{Kind: OfferAt, Next: n, Size: size, Record: r}).Put
	}
	one := wire.Record{Value: []byte{0xc0}}
	for _, n := range []int64{0, 1, 0, 1} {
		if put := at(n, 1, one); put != Kept {
			t.Fatalf("record %d becomes %d", n, put)
		}
	}
	if put := at(3, 1, one); put != Gap || a.Records() != 2 {
		t.Errorf("one that is ahead of others becomes %d; the next is %d", put, a.Records())
	}
	if a.Next(Event{Kind: SkipTo, Next: 5}); a.Records() != 5 {
		t.Errorf("what was skipped is awaited: the next is %d", a.Records())
	}
	a.Next(Event{Kind: Deafen, Size: 2})
	if put := at(5, 5, wire.Record{Truncated: 7}); put != Kept || a.missed != 14 || a.Records() != 5 {
		t.Errorf("one that is not wanted becomes %d; %d bytes are missed, the next is %d", put, a.missed, a.Records())
	}
	a.Next(Event{Kind: DropTail, Next: 5, Size: 1})
	if a.Next(Event{Kind: DropTail, Next: 4, Size: 1}); a.missed != 15 {
		t.Errorf("%d bytes are missed", a.missed)
	}
	a.Next(Event{Kind: Abandon})
	if put := at(9, 1, one); put != Kept || a.Records() != 10 {
		t.Errorf("one that nobody asks for becomes %d; the next is %d", put, a.Records())
	}
	a.Next(Event{Kind: Return, End: new(wire.End)})
	if put := at(10, 1, one); put != Over {
		t.Errorf("one behind the end becomes %d", put)
	}
}

// What is kept elsewhere is what a command's supervisor need not keep.
func TestKeptElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		home       Home
		journalled bool
		events     []Event
		want       int64
	}{
		"in memory":               {Here, false, nil, 2},
		"in memory, of one agent": {Supervised, false, nil, 0},
		"in the journal's":        {Supervised, true, nil, 0},
		"on the disk":             {Supervised, true, []Event{{Kind: Taken}, {Kind: Synced, To: Progress{Next: 1}}}, 1},
		"nowhere":                 {Supervised, true, []Event{{Kind: Taken}, {Kind: Unsynced, Err: errBroken}}, 0},
		"acknowledged":            {Supervised, true, []Event{{Kind: Ack, Next: 2}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(test.home, test.journalled, 0)
			p := attach(&a)
			for n := range int64(2) {
				a.Next(Event{Kind: OfferAt, Next: n})
			}
			for _, e := range test.events {
				e.Peer = p
				a.Next(e)
			}
			if got := a.KeptElsewhere(); got != test.want {
				t.Errorf("record %d, want %d", got, test.want)
			}
		})
	}
}

// What an attempt says in reconciliation, and whether there is more to tell than that it has
// started.
func TestHeld(t *testing.T) {
	stop := Event{Kind: Stop, Stopping: &wire.Stopping{Cause: wire.CauseCancel}}
	for name, test := range map[string]struct {
		events     []Event
		want       string
		news, ends bool
	}{
		"it runs":             {nil, wire.HeldAlive, false, false},
		"it has a record":     {[]Event{{Kind: Offer}}, wire.HeldAlive, true, false},
		"it stops":            {[]Event{stop}, wire.HeldStopping, true, false},
		"it has ended":        {[]Event{{Kind: Return, End: new(wire.End)}}, wire.HeldEnded, true, true},
		"it stopped":          {[]Event{stop, {Kind: Return, End: new(wire.End)}}, wire.HeldEnded, true, true},
		"it is gone":          {[]Event{{Kind: Return}}, wire.HeldGone, true, true},
		"it has more to tell": {[]Event{{Kind: Offer}, {Kind: Return}}, wire.HeldGone, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := begun()
			p := attach(a)
			for _, e := range test.events {
				a.Next(e)
			}
			if h := a.Held(); h.State != test.want || h.Records != a.Records() {
				t.Errorf("it says %+v", h)
			}
			if news, ends := a.News(p); news != test.news || ends != test.ends {
				t.Errorf("there is something to tell: %t, the end: %t", news, ends)
			}
		})
	}
}

// What cannot be read in the journal is tried again, or told as dropped where it is damaged; an
// end that is damaged is told as gone.
func TestReadInTheJournal(t *testing.T) {
	a := Recall(Past{Phase: Ended, Records: 1})
	p := attach(&a)
	of := a.Next(Event{Kind: Send, Peer: p}).Fetch
	if of.From != 0 || of.Until != 1 || of.Most == 0 {
		t.Fatalf("%+v is read", of)
	}
	unreadable := errors.New("input/output error")
	if f := a.Next(Event{Kind: Read, Peer: p, Fetch: of, Err: unreadable}); !errors.Is(f.Err, unreadable) || f.Message != (Message{}) {
		t.Errorf("%+v is told, %v", f.Message, f.Err)
	}
	if f := a.Next(Event{Kind: Read, Peer: new(Peer), Fetch: of, Err: unreadable}); f.Err != nil {
		t.Errorf("one that is told no more hears %v", f.Err)
	}
	f := a.Next(Event{Kind: Read, Peer: p, Fetch: of, Err: unreadable, Damaged: true})
	if r := f.Message.Records; r == nil || r.Records[0].Truncated == 0 || f.Lack.Why != Damaged {
		t.Errorf("%+v is told", f)
	}
	if f := a.Next(Event{Kind: Send, Peer: p}); !f.Fetch.End {
		t.Errorf("%+v follows", f)
	}
	if f := a.Next(Event{Kind: ReadEnd, Peer: p, Err: unreadable}); !errors.Is(f.Err, unreadable) {
		t.Errorf("%+v is told, %v", f.Message, f.Err)
	}
	if f := a.Next(Event{Kind: ReadEnd, Peer: p, Err: unreadable, Damaged: true}); f.Message.End == nil || !f.Message.End.Gone || f.Lack.Why != EndLost {
		t.Errorf("%+v is told", f)
	}
}

// Records that the journal had no room for are told as dropped, with all their bytes; of those
// that were not written in time nothing is said.
func TestRecordsThatAreNotInTheJournal(t *testing.T) {
	for name, test := range map[string]struct {
		past    Past
		dropped int64
		records int64
		why     LackKind
	}{
		"no room":        {Past{Phase: Ended, Records: 3, Lacks: &Lacks{First: 0, Next: 3, Bytes: 10}}, 10, 3, NoRoom},
		"not written":    {Past{Phase: Ended, Records: 3}, 0, 0, Unwritten},
		"more may come":  {Past{Phase: Running, Records: 3}, 3, 3, Missing},
		"of this agent":  {Past{Phase: Ended, Records: 3, Home: Here}, 0, 3, 0},
		"acknowledged":   {Past{Phase: Ended, Records: 3, Acked: 3}, 3, 3, 0},
		"some of it was": {Past{Phase: Ended, Records: 3, Acked: 1, Lacks: &Lacks{First: 1, Next: 3, Bytes: 10}}, 11, 3, NoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			a := Recall(test.past)
			p := attach(&a)
			var dropped int64
			var why LackKind
			for range 3 {
				f := a.Next(Event{Kind: Send, Peer: p})
				if f.Fetch.Most > 0 {
					f = a.Next(Event{Kind: Read, Peer: p, Fetch: f.Fetch})
				}
				if why = max(why, f.Lack.Why); f.Message.Records != nil {
					for _, r := range f.Message.Records.Records {
						dropped += r.Truncated
					}
				}
			}
			if dropped != test.dropped || a.Records() != test.records || why != test.why {
				t.Errorf("%d bytes are told as dropped, of %d records, for %d", dropped, a.Records(), why)
			}
		})
	}
}

// Records wait for room in memory: for that of the window while a peer is there, or behind what is
// not in memory any more; for the disk while none is.
func TestMemoryIsBounded(t *testing.T) {
	const size = 10_000
	offer := Event{Kind: Offer, Up: true, Record: wire.Record{Value: make([]byte, size)}}
	for name, test := range map[string]struct {
		past  Past
		peer  bool
		least int
		most  int
	}{
		"a peer is there":               {Past{Phase: Running}, true, wire.MinWindow - size, wire.MinWindow + size},
		"none is":                       {Past{Phase: Running}, false, awayBytes - size - RecordCost, awayBytes},
		"none is, and there is no disk": {Past{Phase: Running, Alone: true}, false, wire.MinWindow - size - RecordCost, wire.MinWindow},
		"a peer is behind":              {Past{Phase: Running, Records: 1}, true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := Recall(test.past)
			if test.peer {
				attach(&a)
			}
			for n := 0; ; n++ {
				f := a.Next(offer)
				if f.Write.Kind != 0 {
					f = a.Next(Event{Kind: Taken})
				}
				if f.Put == Later {
					break
				}
				if n > 1000 {
					t.Fatalf("%d bytes are in memory", a.HeldBytes())
				}
			}
			if n := a.HeldBytes(); n < test.least || n > test.most {
				t.Errorf("%d bytes are in memory, not %d to %d", n, test.least, test.most)
			}
		})
	}
}

// A journal that has less than was on the disk has lost the attempt: nothing more is handed to it, and
// a limit or cancel holds at once.
func TestJournalThatWasRolledBack(t *testing.T) {
	a := New(Elsewhere, true, 0)
	a.Next(Event{Kind: Offer})
	a.Next(Event{Kind: Taken})
	a.Next(Event{Kind: Synced, To: Progress{Next: 1}})
	if f := a.Next(Event{Kind: Stop, Stopping: new(wire.Stopping)}); f.Write.Kind != WriteStop || f.Stop != nil {
		t.Fatalf("a stop asks for %+v", f)
	}
	if f := a.Next(Event{Kind: Reopened}); f.Stop == nil || f.Lack.Why != JournalLost || a.IsJournalled() {
		t.Errorf("then %+v is asked for", f)
	}
	if f := a.Next(Event{Kind: Return, End: new(wire.End)}); f.Write.Kind != 0 {
		t.Errorf("%+v is handed to it", f.Write)
	}
}

// An attempt that is gone stays until the journal has why it was to stop: nobody else knows.
func TestGoneStaysUntilItsStopIsJournalled(t *testing.T) {
	a := Recall(Past{Phase: Running})
	a.Next(Event{Kind: Stop, Stopping: &wire.Stopping{Cause: wire.CauseCancel}})
	a.Next(Event{Kind: Taken})
	a.Next(Event{Kind: Return})
	if f := a.Next(Event{Kind: Reopened}); f.Leave {
		t.Error("it leaves when the journal has lost that")
	}
	f := a.Next(Event{Kind: Hand})
	if f.Write.Kind != WriteStop {
		t.Fatalf("%d is handed over", f.Write.Kind)
	}
	a.Next(Event{Kind: Taken})
	if f := a.Next(Event{Kind: Synced, To: f.Write.To}); !f.Leave {
		t.Error("it does not leave when the journal has all")
	}
}

// What a journal has lost that had it on disk, and memory has not any more, is told as dropped, and an end as
// gone: it is nowhere, and what is behind it must be told.
func TestTellsWhatTheJournalHasLost(t *testing.T) {
	unknown := errors.New("no such attempt")
	a := New(Here, true, 0)
	a.Next(Event{Kind: Start, At: 1})
	attach(&a)
	large := wire.Record{Value: make([]byte, wire.MinWindow/2)}
	for range 2 {
		f := a.Next(Event{Kind: Offer, Up: true, Record: large})
		for f.Write.Kind != 0 {
			f = a.Next(Event{Kind: Taken})
		}
		a.Next(Event{Kind: Detach, Peer: a.peer})
	}
	a.Next(Event{Kind: Synced, To: Progress{Next: 2}})
	if a.Next(Event{Kind: Offer, Up: true, Record: large}); a.outbox.first == 0 {
		t.Fatalf("all records are in memory, of %d", a.Records())
	}
	a.Next(Event{Kind: Reopened, Lost: true})
	p := attach(&a)
	told := int64(0)
	for range 10 {
		f := a.Next(Event{Kind: Send, Peer: p, At: 2})
		if f.Fetch != (Fetch{}) {
			f = a.Next(Event{Kind: Read, Peer: p, At: 2, Fetch: f.Fetch, Err: unknown})
		}
		if f.Err != nil {
			t.Fatalf("after %d records it is to be tried again: %v", told, f.Err)
		}
		if m := f.Message.Records; m != nil {
			told += int64(len(m.Records))
			a.Next(Event{Kind: Ack, Peer: p, Next: told})
		}
	}
	if told != a.Records() {
		t.Errorf("%d records of %d are told", told, a.Records())
	}
	a.Next(Event{Kind: Return, End: new(wire.End)})
	a.end = nil // as if the journal had had it
	if f := a.Next(Event{Kind: Send, Peer: p}); !f.Fetch.End {
		t.Errorf("its end asks for %+v", f)
	}
	if f := a.Next(Event{Kind: ReadEnd, Peer: p, Err: unknown}); f.Message.End == nil || !f.Message.End.Gone || f.Lack.Why != EndLost {
		t.Errorf("its end is told as %+v", f)
	}
}

// An end for which its peer makes no room is left to the journal as soon as that has it on its disk, and
// read there when there is room.
func TestAnEndThatWaitsForRoom(t *testing.T) {
	for name, waitsFirst := range map[string]bool{"before it is synced": true, "behind": false} {
		t.Run(name, func(t *testing.T) {
			a := New(Here, true, 0)
			a.Next(Event{Kind: Start, At: 1})
			p := attach(&a)
			f := a.Next(Event{Kind: Return, End: &wire.End{Value: make([]byte, 1000)}})
			to := f.Write.To
			a.Next(Event{Kind: Taken})
			if n := a.NextBytes(p, 5); n != 1000 || a.HeldBytes() != 1000 || a.UnsyncedBytes() != 1000 {
				t.Errorf("%d bytes are next, %d are held, %d not synced", n, a.HeldBytes(), a.UnsyncedBytes())
			}
			events := []Event{{Kind: Wait, Peer: p}, {Kind: Synced, To: to}}
			if !waitsFirst {
				events[0], events[1] = events[1], events[0]
			}
			a.Next(events[0])
			if a.HeldBytes() != 1000 {
				t.Error("it is not held any more")
			}
			a.Next(events[1])
			if n := a.NextBytes(p, 5); n != 1000 || a.HeldBytes() != 0 {
				t.Errorf("%d bytes are next, %d are held", n, a.HeldBytes())
			}
			if f := a.Next(Event{Kind: Send, Peer: p}); !f.Fetch.End {
				t.Errorf("it is not read: %+v", f)
			}
			if f := a.Next(Event{Kind: ReadEnd, Peer: p, End: &wire.End{}}); f.Message.End == nil {
				t.Errorf("it is not sent: %+v", f)
			}
		})
	}
}
