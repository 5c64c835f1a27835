package life

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/harpcaller/harp/internal/wire"
)

var (
	errGap    = errors.New("records are missing")
	errBroken = errors.New("broken")
	errFull   = errors.New("full")
)

// listener is one peer, and what it was told.
type listener struct {
	Peer
	next  int64 // the record that is to come
	sure  int64 // records from here on are not missing
	ended bool
}

// world is an attempt with all that happens to it.
type world struct {
	t    *testing.T
	rand *rand.Rand
	log  []string

	Attempt
	book     *book
	clock    int64
	command  bool // its supervisor numbers its records
	offered  [][]byte
	numbered []wire.Record // as the attempt has them
	bytes    int64         // that were offered and are told, or told as dropped
	window   int64         // the largest
	acked    int64         // records before it were acknowledged once
	peers    []*listener
	asleep   *Peer  // there was nothing to send to it, and nobody has woken it since
	waiting  *Event // a record is offered for which there was no room, and nobody has said since that there may be
	ran      int
	stops    int
	why      *wire.Stopping
	returned bool
	left     bool
	lost     bool // the journal has lost it, or nobody wanted some of it
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, rand: r, book: &book{records: map[int64]wire.Record{}}, window: wire.MinWindow}
	home := Home(r.IntN(3))
	w.command = home == Supervised || r.IntN(3) == 0
	w.Attempt = New(home, r.IntN(4) > 0, 0)
	return w
}

func (w *world) failf(format string, a ...any) {
	w.t.Helper()
	for _, l := range w.log[max(len(w.log)-60, 0):] {
		w.t.Log(l)
	}
	w.t.Fatalf(format, a...)
}

// do lets an event happen and does what it asks for, as an agent does.
func (w *world) do(e Event) Effect {
	w.t.Helper()
	w.clock++
	e.At = w.clock
	var put Put
	releasable := w.isReleasable() // as one is that was recalled
	for {
		w.log = append(w.log, fmt.Sprintf("%d: next %d size %d %v %+v", e.Kind, e.Next, e.Size, e.Err, e.To))
		before := w.spool
		f := w.Next(e)
		w.check(e, f, before)
		if f.Wake || e.Kind == Attach {
			w.asleep = nil
		}
		if f.Room {
			w.waiting = nil
		}
		if f.Put != 0 {
			put = f.Put
		}
		if f.Write.Kind == 0 {
			if w.isReleasable() && !releasable && !w.left {
				w.failf("the journal has all of it, nobody is told of it, and it stays")
			}
			if w.asleep == w.peer && w.wouldSend() {
				w.failf("there is something to send, and nobody says so")
			}
			if w.waiting != nil && w.wouldTake() {
				w.failf("there is room for a record, and nobody says so")
			}
			f.Put = put
			return f
		}
		if w.book.dropped {
			w.failf("%d is handed to a journal that was told to forget", f.Write.Kind)
		}
		e = w.book.write(f.Write)
	}
}

// wouldSend reports whether there is something to send to a peer, and changes nothing.
func (w *world) wouldSend() bool {
	if w.peer == nil {
		return false
	}
	a, p := w.Attempt, *w.peer
	a.peer, p.flight.costs, a.outbox.kept = &p, slices.Clone(p.flight.costs), slices.Clone(a.outbox.kept)
	for e := (Event{Kind: Send}); ; e = w.fetch(e.Fetch) {
		e.Peer, e.At = &p, w.clock
		f := a.Next(e)
		if (f.Fetch == Fetch{}) {
			return f.Message != (Message{}) || f.Err != nil
		}
		e.Fetch = f.Fetch
	}
}

// wouldTake reports whether there is room for the record that waits, without a look at the journal, and changes nothing.
func (w *world) wouldTake() bool {
	a := w.Attempt
	a.outbox.kept = slices.Clone(a.outbox.kept)
	put := a.Next(*w.waiting).Put
	return put != 0 && put != Later
}

// fetch reads in the journal.
func (w *world) fetch(of Fetch) Event {
	e := Event{Kind: Read, Fetch: of}
	if of.End {
		e.Kind, e.End = ReadEnd, w.book.end
	} else {
		e.Next, e.Records = w.book.read(of)
	}
	return e
}

// check looks at what an event asks for.
func (w *world) check(e Event, f Effect, before spool) {
	w.t.Helper()
	w.acked = max(w.acked, w.outbox.acked, w.outbox.gone)
	if f.Run {
		w.ran++
	}
	if f.Ack > 0 && f.Ack <= w.book.next() { // else it takes no acknowledgement of them
		w.book.acked = max(w.book.acked, f.Ack)
	}
	if f.Stop != nil {
		w.stops++
		waits := before.on && w.audience != nobody
		switch e.Kind {
		case Synced, NotTaken, Unsynced, Reopened, StopLate, Abandon:
			waits = false
		default:
		}
		if waits || f.Stop != w.why {
			w.failf("event %d stops the procedure by %+v, of %+v", e.Kind, f.Stop, w.why)
		}
	}
	if e.Kind == Synced && e.To.Stop && !w.stopped {
		w.failf("a stop that is journalled does not reach the procedure")
	}
	if f.Drop {
		w.book.dropped = true
	}
	if f.Leave {
		w.left = true
		if !w.book.dropped && (w.peer != nil || w.audience == awaited) {
			w.failf("it is left to the journal, and a peer is told of it")
		}
		if !w.book.dropped && w.phase != Refused {
			w.checkKept()
		}
	}
	if most := max(int(w.window), awayBytes) + wire.MinWindow; w.outbox.bytes > most && w.audience != nobody {
		w.failf("%d bytes are in memory, at most %d may be", w.outbox.bytes, most)
	}
}

// checkKept looks whether the journal has on disk what an attempt leaves behind.
func (w *world) checkKept() {
	w.t.Helper()
	if w.phase == Ended && !w.book.disk.End {
		w.failf("it is left to a journal that has no end of it on disk")
	}
	for n := w.acked; n < w.outbox.next() && !w.lost; n++ {
		if _, is := w.book.records[n]; !is && !lacks(w.book, n) {
			w.failf("it is left to a journal that has not record %d of %d", n, w.outbox.next())
		}
	}
}

// offer offers a record, which says which it is.
func (w *world) offer() {
	value := make([]byte, 8+w.rand.IntN(1+w.rand.IntN(20_000)))
	binary.BigEndian.PutUint64(value, uint64(len(w.offered)))
	e := Event{Kind: Offer, Record: wire.Record{Value: value}, Up: w.rand.IntN(2) == 0, Busy: w.rand.IntN(20) == 0}
	n := w.Records()
	if w.command {
		e.Kind, e.Next, e.Size = OfferAt, n, int64(len(value))
	}
	was, deaf := w.audience, w.deaf
	w.waiting = nil
	f := w.do(e)
	if f.Put == Later && !e.Busy {
		w.waiting = &e
	}
	switch f.Put {
	case Kept, Dropped:
		w.offered = append(w.offered, value)
		w.bytes += int64(len(value))
		if was == nobody {
			w.lost = true
		}
	case Over:
		if !w.returned {
			w.failf("a record is refused before the function has returned")
		}
	case Later:
	default:
		w.failf("a record becomes %d", f.Put)
	}
	switch is := w.Records() > n; {
	case is && (f.Put != Kept || w.returned):
		w.failf("a record that becomes %d has a number", f.Put)
	case is && was != nobody:
		w.note(n)
	case f.Put == Kept && was != nobody && !deaf:
		w.failf("a record that is kept has no number")
	}
}

// note keeps the record that was numbered last.
func (w *world) note(n int64) {
	for int64(len(w.numbered)) < n { // as good as acknowledged
		w.numbered = append(w.numbered, wire.Record{})
	}
	held := w.outbox.held()
	w.numbered = append(w.numbered, held[len(held)-1])
}

// ret lets the function return, or the attempt be gone.
func (w *world) ret() {
	if w.returned {
		return
	}
	w.returned = true
	e, n := Event{Kind: Return, End: &wire.End{Value: []byte{0xc0}}}, w.Records()
	if w.rand.IntN(5) == 0 {
		e.End = nil
	}
	missed := w.missed > 0 && w.audience != nobody
	w.do(e)
	if missed != (w.Records() > n) {
		w.failf("%d records are added at the end", w.Records()-n)
	}
	if missed {
		w.note(n)
	}
}

// sync lets the disk take a step.
func (w *world) sync() {
	b := w.book
	if b.failed {
		b.failed, b.pending = false, nil
		w.do(Event{Kind: Unsynced, Err: errBroken})
		return
	}
	if len(b.pending) == 0 {
		return
	}
	switch w.rand.IntN(10) {
	case 0: // it is heard of at once
		b.fall(0)
		b.pending = nil
		w.do(Event{Kind: Unsynced, Err: errBroken})
	case 1: // or later
		b.fall(0)
		b.failed = true
	default:
		b.disk = b.pending[0]
		b.pending = b.pending[1:]
		w.do(Event{Kind: Synced, To: b.disk})
	}
}

// reopen puts another journal in the place of the one that is open.
func (w *world) reopen(lost bool) {
	b := w.book
	if !w.IsJournalled() || b.dropped {
		return
	}
	more := len(b.pending)
	if b.failed {
		more = 0
	}
	b.fall(w.rand.IntN(more + 1))
	b.pending, b.failed, b.err = nil, false, nil
	w.lost = w.lost || lost
	e := Event{Kind: Reopened, To: b.disk, Lost: lost}
	if b.renewed = &e; w.rand.IntN(2) == 0 {
		return // it is found when something is handed over
	}
	b.renewed = nil
	w.do(e)
	w.do(Event{Kind: Hand})
}

// retry hands over again what was not taken.
func (w *world) retry() {
	if errors.Is(w.Failed(), errGap) {
		w.reopen(false)
	}
	w.do(Event{Kind: Hand})
}

func (w *world) attach() {
	from := w.rand.Int64N(w.Records() + 1)
	if w.rand.IntN(2) == 0 {
		from = FromAcked
	}
	p := &listener{sure: w.acked}
	e := Event{Kind: Attach, Peer: &p.Peer, Next: from, Size: w.rand.Int64N(4) * wire.MinWindow}
	w.window = max(w.window, e.Size)
	if p.next = from; from == FromAcked {
		p.next = w.outbox.acked
	}
	if f := w.do(e); f.Away {
		w.failf("record %d of %d is not there", from, w.Records())
	}
	w.peers = append(w.peers, p)
}

// any is one of the peers, seldom not the last.
func (w *world) any() *listener {
	if len(w.peers) == 0 {
		w.attach()
	}
	i := len(w.peers) - 1
	if w.rand.IntN(10) == 0 {
		i = w.rand.IntN(len(w.peers))
	}
	return w.peers[i]
}

// send tells a peer what there is, and reports whether that was something.
func (w *world) send(p *listener) bool {
	w.t.Helper()
	e := Event{Kind: Send}
	for {
		e.Peer = &p.Peer
		f := w.do(e)
		if (f.Fetch == Fetch{}) {
			if p != w.peers[len(w.peers)-1] && f.Message != (Message{}) {
				w.failf("one is told that another has followed")
			}
			something := w.told(p, f.Message) || f.Wake
			if !something && f.Err == nil && w.peer == &p.Peer { // else it is tried again
				w.asleep = w.peer
			}
			return something
		}
		if w.rand.IntN(10) == 0 { // something is heard while the journal is read
			w.ack(p)
		}
		e = w.fetch(f.Fetch)
	}
}

// told looks at what a peer is told.
func (w *world) told(p *listener, m Message) bool {
	w.t.Helper()
	if p.ended && m != (Message{}) {
		w.failf("%+v is told behind the end", m)
	}
	if s := m.Stopping; s != nil {
		if s.Cause != "" && !w.stopped {
			w.failf("STOPPING is told before the procedure was stopped")
		}
	}
	if r := m.Records; r != nil {
		if r.First != p.Peer.next-int64(len(r.Records)) || len(r.Records) == 0 {
			w.failf("records %d to %d are told to one that is told %d next", r.First, r.First+int64(len(r.Records)), p.Peer.next)
		}
		if r.First < p.next || r.First > max(p.next, w.outbox.acked) {
			w.failf("record %d is told instead of %d", r.First, p.next)
		}
		for i, one := range r.Records {
			w.same(p, r.First+int64(i), one)
		}
		p.next = r.First + int64(len(r.Records))
	}
	if m.End != nil {
		if !w.returned || m.End.Records != w.Records() || p.next < m.End.Records && w.outbox.acked < m.End.Records {
			w.failf("END of %d records, of which %d are told and there are %d", m.End.Records, p.next, w.Records())
		}
		p.ended = true
	}
	return m != (Message{})
}

// same compares a record that is told with the one that was numbered.
func (w *world) same(p *listener, n int64, got wire.Record) {
	w.t.Helper()
	if w.lost || n < p.sure || lacks(w.book, n) {
		return
	}
	if want := w.numbered[n]; !slices.Equal(got.Value, want.Value) || got.Truncated != want.Truncated {
		w.failf("record %d is told with %d bytes and %d dropped, not %d and %d", n, len(got.Value), got.Truncated, len(want.Value), want.Truncated)
	}
}

// ack acknowledges some of what a peer was told.
func (w *world) ack(p *listener) {
	w.t.Helper()
	told := p.next
	for _, before := range w.peers { // by which it may know more
		told = min(max(told, before.next), w.Records())
	}
	e := Event{Kind: Ack, Peer: &p.Peer, Next: w.rand.Int64N(told + 1), Size: w.rand.Int64N(3) * wire.MinWindow}
	w.window = max(w.window, e.Size)
	if f := w.do(e); f.Wrong {
		w.failf("record %d of %d that were told cannot be acknowledged", e.Next, told)
	}
}

// step lets something happen.
func (w *world) step() {
	w.t.Helper()
	switch w.rand.IntN(40) {
	case 0:
		if w.rand.IntN(8) == 0 {
			w.ret()
		}
	case 1:
		if w.rand.IntN(4) == 0 {
			why := &wire.Stopping{Cause: wire.CauseCancel, Since: w.clock}
			if w.why == nil && !w.returned {
				w.why = why
			}
			w.do(Event{Kind: Stop, Stopping: why})
		}
	case 2:
		w.do(Event{Kind: StopLate})
	case 3:
		w.do(Event{Kind: Survivors, Left: make([]int64, w.rand.IntN(3))})
	case 4, 5:
		w.attach()
	case 6:
		w.do(Event{Kind: Detach, Peer: &w.any().Peer})
	case 7:
		w.book.full = !w.book.full
	case 8:
		if w.book.err = nil; w.rand.IntN(3) == 0 {
			w.book.err = errBroken
		}
	case 9:
		w.reopen(w.rand.IntN(50) == 0)
	case 10, 11:
		w.retry()
	case 12, 13, 14, 15, 16, 17:
		w.sync()
	case 18, 19, 20, 21:
		w.ack(w.any())
	case 22:
		if w.rand.IntN(30) == 0 {
			w.lost = true
			w.do(Event{Kind: Abandon})
		}
	case 23:
		w.do(Event{Kind: Start})
	case 24:
		if f := w.do(Event{Kind: Ack, Peer: &w.any().Peer, Next: w.Records() + 1}); !f.Wrong {
			w.failf("a record that is not there can be acknowledged")
		}
	case 25:
		if p := w.any(); !p.ended {
			if f := w.do(Event{Kind: Ack, Peer: &p.Peer, Over: true}); !f.Wrong {
				w.failf("an end that was not told can be acknowledged")
			}
		}
	case 26, 27, 28, 29, 30:
		w.send(w.any())
	case 31:
		if w.home == Supervised && !w.returned && w.rand.IntN(20) == 0 {
			w.lost = true
			w.do(Event{Kind: SkipTo, Next: w.Records() + w.rand.Int64N(3)})
		}
	default:
		w.offer()
	}
}

// recall is what an agent does when somebody asks for an attempt that it has left to its journal.
// It reports whether there is one.
func (w *world) recall() bool {
	b := w.book
	if !w.left || b.dropped {
		return !w.left
	}
	past := Past{Phase: Gone, Records: b.disk.Next, Acked: b.acked}
	if b.disk.Stop {
		past.Stopping = w.why
	}
	if b.disk.End {
		past.Phase, past.Records, past.Lacks, past.Bare = Ended, b.end.Records, b.lacks, b.end.Dropped
	}
	w.Attempt, w.peers, w.left = Recall(past), nil, false
	return true
}

// settle lets everything come to its end: the journal works again, and a peer takes all there is.
func (w *world) settle() {
	w.t.Helper()
	b := w.book
	b.err, b.full = nil, false
	w.reopen(false)
	if e := b.renewed; e != nil { // of which the attempt hears as its commits have come to nothing
		b.renewed = nil
		w.do(*e)
	}
	w.retry()
	for b.failed || len(b.pending) > 0 || w.Failed() != nil {
		if b.failed {
			w.sync()
		}
		if len(b.pending) > 0 {
			b.disk = b.pending[0]
			b.pending = b.pending[1:]
			w.do(Event{Kind: Synced, To: b.disk})
		}
		w.retry()
	}
	if w.stopping != nil && !w.stopped && !w.returned {
		w.failf("everything is journalled, and a stop has not reached the procedure")
	}
	w.ret()
	p := &listener{sure: w.acked, next: w.outbox.acked}
	w.do(Event{Kind: Attach, Peer: &p.Peer, Next: FromAcked, Size: wire.Window})
	w.peers = append(w.peers, p)
	for n := 0; !p.ended; n++ {
		if !w.send(p) && !w.lost || n > 10_000 {
			w.failf("after %d of %d records nothing is told, nor the end", p.next, w.Records())
		}
		if w.lost && n > 1000 {
			return // records that are nowhere any more are looked for
		}
		w.do(Event{Kind: Ack, Peer: &p.Peer, Next: p.next})
	}
	w.left = false
	if w.do(Event{Kind: Ack, Peer: &p.Peer, Next: p.next, Over: true}); !w.left || !b.dropped {
		w.failf("its end is taken, and it stays")
	}
}

// total is how many bytes the records have, and say were dropped.
func (w *world) total() (n int64) {
	for _, r := range w.numbered {
		n += int64(len(r.Value)) + r.Truncated
	}
	return n
}

// Whatever happens to an attempt, and to its journal: records come in their order, as they were
// offered, and once to each peer that asks; END comes once, behind them; what there was no room for
// is told to the byte; the procedure is run once, and stopped once, and not before that is
// journalled unless it cannot be; memory is bounded; and an attempt leaves only what the journal has
// on disk, or nobody will ask for.
func TestLife(t *testing.T) {
	for seed := range uint64(1000) {
		w := newWorld(t, seed)
		w.do(Event{Kind: Start})
		for range 50 + w.rand.IntN(300) {
			if w.step(); !w.recall() {
				break
			}
		}
		if !w.left {
			w.settle()
		}
		if w.ran != 1 || w.stops > 1 {
			w.failf("seed %d: it is run %d times, and stopped %d times", seed, w.ran, w.stops)
		}
		if got := w.total(); got != w.bytes && !w.lost {
			w.failf("seed %d: of %d bytes %d are told, or told as dropped", seed, w.bytes, got)
		}
		if t.Failed() {
			return
		}
	}
}
