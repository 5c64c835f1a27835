package rows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// feed is where the feed of events stands. Events are numbered from 1.
type feed struct {
	number uint64 // the last number given; the committer's, under the store's mutex

	mu        sync.Mutex
	first     uint64        // guarded by mu: the first number that is kept, or soon
	committed uint64        // guarded by mu: the last number on disk
	changed   chan struct{} // guarded by mu: closed when there is one more

	cache eventCache
}

// announce says that what was numbered so far is on disk.
func (f *feed) announce(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last == f.committed {
		return
	}
	f.committed = last
	close(f.changed)
	f.changed = make(chan struct{})
}

// prune says what the first event is that is kept, before that is on disk: whoever then
// reads from a number that is kept finds all that came after it.
func (f *feed) prune(first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first = first
}

// bounds are the first number that is kept, or would be, and the last on disk.
func (f *feed) bounds() (first, committed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first, f.committed
}

// eventRow is an event as it is stored, an array of its fields. More may be added
// at the end.
type eventRow struct {
	_msgpack struct{} `msgpack:",as_array,grows"` //nolint:unused // tells msgpack how

	At        int64
	Type      harp.EventType
	Job       []byte // its id; nil: none
	Host      string
	Procedure string
	Queue     []byte
	State     harp.State
	Reason    string
	Attempt   int
	By        *harp.Principal
	Labels    map[string]string
	Batch     []byte // nil: none
	Counts    map[harp.State]int
	Schedule  string
	Held      *heldRow // nil: it is about no window, no notification, and no pause that ends by itself
}

// heldRow is what an event says of a window or a notification, or of the pause of a host or a queue.
type heldRow struct {
	_msgpack struct{} `msgpack:",as_array,grows"` //nolint:unused // tells msgpack how

	Window       string
	Until        int64
	Notification string
}

// newHeldRow is what there is to say of a window, a notification or a pause; nil: nothing.
func newHeldRow(window, notification string, until time.Time) *heldRow {
	if window == "" && notification == "" && until.IsZero() {
		return nil
	}
	return &heldRow{Window: window, Until: nanos(until), Notification: notification}
}

// event is the inverse of what wrote the row. It shares no memory with the row.
func (r *eventRow) event(cursor string) harp.Event {
	e := harp.Event{
		Cursor: cursor, Time: fromNanos(r.At), Type: r.Type, Host: r.Host, Procedure: r.Procedure,
		Queue: slices.Clone(r.Queue), State: r.State, Reason: r.Reason, Attempt: r.Attempt, Labels: maps.Clone(r.Labels), Schedule: r.Schedule,
	}
	if len(r.Job) == len(id{}) {
		e.Job = id(r.Job).String()
	}
	if r.By != nil {
		e.By = *r.By
	}
	if len(r.Batch) == len(id{}) {
		e.Batch = id(r.Batch).String()
	}
	if len(r.Counts) > 0 {
		e.Counts = maps.Clone(r.Counts)
	}
	if r.Held != nil {
		e.Window, e.Until, e.Notification = r.Held.Window, fromNanos(r.Held.Until), r.Held.Notification
	}
	return e
}

// emit tells an event, which is written with all of its group: no operation reads it.
func (t *tx) emit(row eventRow) {
	t.event = row
	t.encoded = appendRow(t.encoded[:0], &t.event)
	if len(t.encoded) > eventMost { // no job's labels and no operator's reason are that long
		t.event.Labels, t.event.Reason = nil, ""
		t.encoded = appendRow(t.encoded[:0], &t.event)
	}
	t.wrote = true
	t.feed.number++
	t.size += t.feedRows.addEvent(t.feed.number, t.encoded)
}

// emitJob writes an event about a job as it is now.
func (t *tx) emitJob(what harp.EventType, i id, j *store.Job, at int64, by *harp.Principal) {
	t.of = i
	row := eventRow{
		At: at, Type: what, Job: t.of[:], Host: j.Host, Procedure: j.Procedure, Queue: j.Queue,
		State: j.State, Reason: j.Reason, Attempt: j.Attempt, By: by, Labels: j.Labels, Schedule: j.Schedule,
	}
	if j.Batch != "" {
		batch, _ := parseID(j.Batch)
		row.Batch = batch[:]
	}
	t.emit(row)
}

// emitSubmitted tells of a new job, and of its start if that is part of it.
func (t *tx) emitSubmitted(i id, j *store.Job, now int64) {
	t.emitJob(harp.EventJobSubmitted, i, j, now, &j.Principal)
	if j.State != harp.StateQueued {
		t.emitJob(stateEvents[j.State], i, j, now, nil)
	}
}

// emitChange tells of what an event made of a job.
func (t *tx) emitChange(i id, before, after *store.Job) {
	moved := before.State != after.State
	by := canceller(before, after)
	if by != nil && (!moved || !wasCancelled(after.State)) {
		t.emitJob(harp.EventJobCancelRequested, i, after, nanos(after.Cancel.Time), by)
		by = nil
	}
	if moved {
		if by == nil && t.operator != (harp.Principal{}) {
			by = &t.operator
		}
		t.emitJob(stateEvents[after.State], i, after, nanos(after.Since), by)
	}
	if before.Late == nil && after.Late != nil {
		t.emitJob(harp.EventJobLate, i, after, nanos(after.Late.At), nil)
	}
}

// emitSurvivors tells of processes that keep a job from ending, if others do than before.
func (t *tx) emitSurvivors(i id, before, after *store.Job, at time.Time) {
	if len(after.Left) == 0 || slices.Equal(before.Left, after.Left) {
		return
	}
	told := *after
	told.Reason = strings.Trim(fmt.Sprint(after.Left), "[]")
	t.emitJob(harp.EventJobSurvivors, i, &told, nanos(at), nil)
}

// canceller is who has asked for a cancel by this change; nil if nobody did.
func canceller(before, after *store.Job) *harp.Principal {
	if before.Cancel != nil || after.Cancel == nil {
		return nil
	}
	return &after.Cancel.By
}

func wasCancelled(s harp.State) bool {
	return s == harp.StateCancelling || s == harp.StateCancelled
}

// stateEvents are the events that tell of a job's state.
var stateEvents = func() map[harp.State]harp.EventType {
	events := map[harp.State]harp.EventType{}
	for _, s := range allStates {
		events[s] = harp.EventType("job." + string(s))
	}
	return events
}()

// emitHost tells of a host's coming or going.
func (t *tx) emitHost(what harp.EventType, host string, at int64) {
	t.emit(eventRow{At: at, Type: what, Host: host})
}

// emitQueue tells of a queue.
func (t *tx) emitQueue(what harp.EventType, name string, at int64, by harp.Principal) {
	t.emit(eventRow{At: at, Type: what, Queue: []byte(name), By: &by})
}

// loadFeed reads where the feed stands.
func (s *Store) loadFeed(snap Snapshot) error {
	first, err := firstEvent(snap)
	if errors.Is(err, ErrDamaged) {
		s.log.Error("the number of the first event cannot be read and is looked for", "err", err)
		first, err = firstStored(snap)
	}
	if err != nil {
		return err
	}
	last := first - 1
	for item, err := range snap.Scan([]byte{prefixEvent}, nil, true) {
		if err != nil {
			return err
		}
		last = lastIn(item.Key)
		break
	}
	s.feed.number, s.feed.first, s.feed.committed = last, first, last
	return nil
}

// firstStored is the number of the first event that there is; 1 if there is none.
func firstStored(snap Snapshot) (uint64, error) {
	for item, err := range snap.Scan([]byte{prefixEvent}, nil, false) {
		if err != nil {
			return 0, err
		}
		events, err := eventsIn(snap, item)
		switch {
		case errors.Is(err, ErrDamaged) || err == nil && len(events) == 0:
			return lastIn(item.Key), nil // it is told that this one is missing
		case err != nil:
			return 0, err
		}
		return events[0].no, nil
	}
	return 1, nil
}

// firstEvent is the number of the first event that is kept, or would be.
func firstEvent(from getter) (uint64, error) {
	first, err := readNumber(from, keyFirstEvent)
	return max(first, 1), err
}

// AppendEvents implements store.Feed.
func (s *Store) AppendEvents(ctx context.Context, events ...harp.Event) error {
	rows, size := noteRows(events)
	if size > maxOp {
		return tooMuch("events", size, maxOp)
	}
	return s.do(ctx, SpaceLow, func(t *tx) error {
		s.emitRows(t, rows)
		return nil
	})
}

// noteRows are the rows of events, and about how many bytes these take.
func noteRows(events []harp.Event) (rows []eventRow, size int) {
	rows = make([]eventRow, len(events))
	for n := range events {
		rows[n] = noteRow(&events[n])
		size += len(encode(rows[n])) + 2*WriteCost
	}
	return rows, size
}

// emitRows tells events, those without a time as of the latest one known.
func (s *Store) emitRows(t *tx, rows []eventRow) {
	for _, row := range rows {
		if row.At == 0 {
			row.At = s.sched.Latest
		}
		t.emit(row)
	}
}

func noteRow(e *harp.Event) eventRow {
	row := eventRow{
		At: nanos(e.Time), Type: e.Type, Host: e.Host, Procedure: e.Procedure, Queue: e.Queue,
		State: e.State, Reason: e.Reason, Attempt: e.Attempt, Labels: e.Labels, Schedule: e.Schedule, Held: newHeldRow(e.Window, e.Notification, e.Until),
	}
	if i, ok := parseID(e.Job); ok {
		row.Job = i[:]
	}
	if i, ok := parseID(e.Batch); ok {
		row.Batch = i[:]
	}
	if e.By != (harp.Principal{}) {
		row.By = &e.By
	}
	return row
}

// Changed implements store.Feed.
func (s *Store) Changed() <-chan struct{} {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return s.feed.changed
}

// Events implements store.Feed.
func (s *Store) Events(_ context.Context, f harp.EventFilter, maxBytes int) (harp.EventPage, error) {
	wanted, err := newSelection(&f)
	if err != nil {
		return harp.EventPage{}, err
	}
	if err := s.usable(); err != nil {
		return harp.EventPage{}, err
	}
	after, err := s.openEventCursor(f.After)
	if err != nil {
		return harp.EventPage{}, err
	}
	if latest, ok := s.cachedAfter(after); ok {
		return s.eventPage(latest, wanted, after, maxBytes)
	}
	var page harp.EventPage
	err = s.view(func(snap Snapshot) error {
		if after, err = s.openEventCursor(f.After); err != nil { // of what the view has
			return err
		}
		page, err = s.eventPage(decoded(eventsAfter(snap, after)), wanted, after, maxBytes)
		return err
	})
	return page, err
}

// eventPage makes a page of events, which come after a number. It tells of those that are
// missing among them, whatever is wanted.
func (s *Store) eventPage(events iter.Seq2[cachedEvent, error], wanted *selection, after uint64, maxBytes int) (harp.EventPage, error) {
	var page harp.EventPage
	last, examined, size := after, 0, 0
	for e, err := range events {
		if examined++; examined > store.MaxExamined {
			break
		}
		through := e.no - 1 // of those that are missing, if any are
		switch {
		case errors.Is(err, ErrDamaged):
			s.log.Error("events cannot be read", "err", err)
			through = e.no
		case err != nil:
			return harp.EventPage{}, err
		}
		if through > last && !wanted.nothing {
			page.Events = append(page.Events, harp.Event{
				Cursor: s.eventCursor(through), Type: harp.EventsMissing, Reason: strconv.FormatUint(through-last, 10),
			})
		}
		if last = through; err != nil {
			continue
		}
		if wanted.matches(&e.row) {
			if size += e.size; size > maxBytes && len(page.Events) > 0 {
				break
			}
			page.Events = append(page.Events, e.row.event(s.eventCursor(e.no)))
		}
		last = e.no
	}
	page.Cursor = s.eventCursor(last)
	return page, nil
}

// A cursor of the feed is the number of the last event seen and whose number that
// is: a restored store counts on from where its backup was, and what the cursors of
// its origin have seen since is nothing that it has.

func (s *Store) eventCursor(no uint64) string {
	return makeCursor(prefixEvent, append(binary.BigEndian.AppendUint64(nil, no), s.id[:eventOrigin]...))
}

const eventOrigin = 8 // bytes of the store's id in a cursor

// EventNumber implements store.Feed.
func (s *Store) EventNumber(cursor string) uint64 {
	says, err := openCursor(prefixEvent, cursor)
	if err != nil || len(says) != 8+eventOrigin {
		return 0
	}
	return binary.BigEndian.Uint64(says)
}

// openEventCursor returns the number after which a page begins. Errors:
// harp.ErrInvalid, harp.ErrPruned.
func (s *Store) openEventCursor(cursor string) (uint64, error) {
	first, committed := s.feed.bounds()
	switch cursor {
	case harp.EventsFromStart:
		return first - 1, nil
	case harp.EventsFromNow:
		return max(committed, first-1), nil
	}
	says, err := openCursor(prefixEvent, cursor)
	if err != nil || len(says) != 8+eventOrigin {
		return 0, &harp.FieldError{Field: "after", Message: "is not a cursor of this feed"}
	}
	no := binary.BigEndian.Uint64(says)
	if no+1 < first || string(says[8:]) != s.id[:eventOrigin] {
		return 0, failures.New("pruned", "what came after the cursor is no longer kept").Err()
	}
	return no, nil
}

// selection is a filter of events that is good.
type selection struct {
	types    []string
	prefixes []string
	job      []byte
	host     string
	batch    []byte
	since    int64 // 0: from the first on
	nothing  bool
}

// newSelection checks a filter. Errors: harp.ErrInvalid (types).
func newSelection(f *harp.EventFilter) (*selection, error) {
	w := &selection{host: f.Host}
	if !f.Since.IsZero() {
		w.since = nanos(f.Since)
	}
	for _, kind := range f.Types {
		name, isPrefix := strings.CutSuffix(kind, "*")
		switch {
		case kind == "" || strings.Contains(name, "*"):
			return nil, &harp.FieldError{Field: "types", Message: "must each be a type, or the beginning of one followed by *"}
		case isPrefix:
			w.prefixes = append(w.prefixes, name)
		default:
			w.types = append(w.types, name)
		}
	}
	if f.Job != "" {
		i, ok := parseID(f.Job)
		w.job, w.nothing = i[:], !ok
	}
	if f.Batch != "" {
		i, ok := parseID(f.Batch)
		w.batch, w.nothing = i[:], w.nothing || !ok
	}
	return w, nil
}

// matches reports whether the filter selects an event.
func (w *selection) matches(r *eventRow) bool {
	switch {
	case w.nothing,
		r.At < w.since,
		w.host != "" && r.Host != w.host,
		w.job != nil && string(r.Job) != string(w.job),
		w.batch != nil && string(r.Batch) != string(w.batch):
		return false
	case len(w.types) == 0 && len(w.prefixes) == 0:
		return true
	}
	return slices.Contains(w.types, string(r.Type)) ||
		slices.ContainsFunc(w.prefixes, func(p string) bool { return strings.HasPrefix(string(r.Type), p) })
}
