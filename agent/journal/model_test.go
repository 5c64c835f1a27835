package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// row is what is known of an attempt, as the model has it.
type row struct {
	State   State
	Fence   int64
	Info    string
	Cause   string
	Next    int64
	Acked   int64
	End     string
	Records map[int64]string // not acknowledged
}

func (r row) clone() row {
	r.Records = maps.Clone(r.Records)
	return r
}

// model is the obvious journal.
type model map[Key]row

func (m model) clone() model {
	c := model{}
	for k, r := range m {
		c[k] = r.clone()
	}
	return c
}

// look reads all of a journal.
func look(j *Journal, tombs []Key) (model, error) {
	m := model{}
	for _, h := range j.Held() {
		r := row{State: h.State, Fence: h.Fence, Info: string(h.Info), Next: h.Records, Acked: h.Acked, Records: map[int64]string{}}
		if h.Stop != nil {
			r.Cause = h.Stop.Cause
		}
		if h.State == Ended {
			body, err := j.Ended(h.Key)
			if err != nil {
				return nil, err
			}
			r.End = string(body)
		}
		for from := h.Acked; ; {
			first, list, err := j.Records(h.Key, from, 50)
			if err != nil {
				return nil, err
			}
			if len(list) == 0 {
				break
			}
			for i, b := range list {
				r.Records[first+int64(i)] = string(b)
			}
			from = first + int64(len(list))
		}
		m[h.Key] = r
	}
	for _, k := range tombs {
		if j.State(k) == Forgotten {
			m[k] = row{State: Forgotten}
		}
	}
	return m, nil
}

// op is one call, and what it does to the model; that says no where the journal must.
type op struct {
	name  string
	call  func(j *Journal) error
	model func(m model) bool
	later bool // it does not wait
}

func opAccept(k Key, fence int64, start bool) op {
	return op{
		name: fmt.Sprintf("accept %v start=%v", k, start),
		call: func(j *Journal) error {
			a := Accept{Fence: fence, Info: []byte(k.Job)}
			if start {
				return j.AcceptStart(k, a, time.Unix(1, 0))
			}
			return j.Accept(k, a)
		},
		model: func(m model) bool {
			if _, is := m[k]; is {
				return false
			}
			r := row{State: Accepted, Fence: fence, Info: k.Job, Records: map[int64]string{}}
			if start {
				r.State = Started
			}
			m[k] = r
			return true
		},
	}
}

func opStart(k Key) op {
	return op{
		name: fmt.Sprintf("start %v", k),
		call: func(j *Journal) error { return j.Start(k, time.Unix(1, 0)) },
		model: func(m model) bool {
			r, is := m[k]
			if !is || r.State != Accepted {
				return false
			}
			r.State = Started
			m[k] = r
			return true
		},
	}
}

func opWithdraw(k Key) op {
	return op{
		name: fmt.Sprintf("withdraw %v", k),
		call: func(j *Journal) error { return j.Withdraw(k) },
		model: func(m model) bool {
			if m[k].State != Accepted {
				return false
			}
			delete(m, k)
			return true
		},
	}
}

func opRetract(k Key) op {
	return op{
		name: fmt.Sprintf("retract %v", k),
		call: func(j *Journal) error { return j.Retract(k) },
		model: func(m model) bool {
			if r := m[k]; r.State != Started || r.Next > 0 {
				return false
			}
			delete(m, k)
			return true
		},
	}
}

func opStop(k Key, cause string) op {
	return op{
		name: fmt.Sprintf("stop %v", k),
		call: func(j *Journal) error {
			return wait(j.Stopping(k, Stop{Cause: cause, Since: time.Unix(2, 0), Limit: time.Second}))
		},
		model: func(m model) bool {
			r := m[k]
			switch r.State {
			case Started:
				r.State, r.Cause = Stopping, cause
				m[k] = r
				return true
			case Stopping:
				return true
			default:
				return false
			}
		},
	}
}

func opEnd(k Key, body string) op {
	return op{
		name: fmt.Sprintf("end %v", k),
		call: func(j *Journal) error {
			var next int64
			for _, h := range j.Held() {
				if h.Key == k {
					next = h.Records
				}
			}
			c, _, err := j.End(k, End{Body: []byte(body), Records: next})
			return wait(c, err)
		},
		model: func(m model) bool {
			r := m[k]
			if r.State != Started && r.State != Stopping {
				return false
			}
			r.State, r.End = Ended, body
			m[k] = r
			return true
		},
	}
}

func opAppend(k Key, skip int64, records ...string) op {
	return op{
		name:  fmt.Sprintf("append %v +%d %d", k, skip, len(records)),
		later: true,
		call: func(j *Journal) error {
			var next int64
			for _, h := range j.Held() {
				if h.Key == k {
					next = h.Records
				}
			}
			var list [][]byte
			for _, r := range records {
				list = append(list, []byte(r))
			}
			_, err := j.Append(k, next+skip, list...)
			return err
		},
		model: func(m model) bool {
			r := m[k]
			if r.State != Started && r.State != Stopping {
				return false
			}
			r = r.clone()
			r.Next += skip
			for _, v := range records {
				r.Records[r.Next] = v
				r.Next++
			}
			m[k] = r
			return true
		},
	}
}

func opAck(k Key, next int64) op {
	return op{
		name:  fmt.Sprintf("ack %v %d", k, next),
		later: true,
		call:  func(j *Journal) error { return j.Ack(k, next) },
		model: func(m model) bool {
			r, is := m[k]
			if !is || r.State == Forgotten || next > r.Next {
				return false
			}
			r = r.clone()
			r.Acked = max(r.Acked, next)
			maps.DeleteFunc(r.Records, func(n int64, _ string) bool { return n < r.Acked })
			m[k] = r
			return true
		},
	}
}

func opForget(k Key) op {
	return op{
		name:  fmt.Sprintf("forget %v", k),
		later: true,
		call:  func(j *Journal) error { return j.Forget(k) },
		model: func(m model) bool {
			m[k] = row{State: Forgotten}
			return true
		},
	}
}

// reduced is the Info of what was reduced.
const reduced = "reduced"

// torn is what was reduced, and lost its END as the machine went down.
func (r row) torn() row {
	r.State, r.End = Started, ""
	return r
}

func opReduce(k Key, body string) op {
	return op{
		name:  fmt.Sprintf("reduce %v", k),
		later: true,
		call:  func(j *Journal) error { return j.Reduce(k, []byte(reduced), []byte(body)) },
		model: func(m model) bool {
			r := m[k]
			if r.State != Started && r.State != Stopping && r.State != Ended || len(body) > MaxBare {
				return false
			}
			m[k] = row{State: Ended, Fence: r.Fence, Info: reduced, End: body, Records: map[int64]string{}}
			return true
		},
	}
}

func opSync() op {
	return op{name: "sync", call: (*Journal).Sync, model: func(model) bool { return true }}
}

// history is what a journal may hold after a crash: of each attempt what it was at
// the last moment that was synced, or at any since.
type history struct {
	now   model
	since []model // the first is synced
}

func newHistory() *history { return &history{now: model{}, since: []model{{}}} }

func (h *history) step(synced bool) {
	if synced {
		h.since = nil
	}
	h.since = append(h.since, h.now.clone())
}

// undo goes back to what was synced, but for what is forgotten, and acknowledged, which is not synced yet.
func (h *history) undo() {
	lost := append(h.since[1:], h.now)
	h.now = h.since[0].clone()
	h.step(true)
	for k, r := range h.now {
		for _, m := range lost {
			r.Acked = max(r.Acked, min(m[k].Acked, r.Next))
		}
		maps.DeleteFunc(r.Records, func(n int64, _ string) bool { return n < r.Acked })
		h.now[k] = r
	}
	for _, m := range lost {
		for k, r := range m {
			if r.State == Forgotten {
				h.now[k] = r
			}
		}
	}
	h.step(false)
}

// allows checks what is there after a crash, and goes on from it.
func (h *history) allows(got model) error {
	for _, k := range universe {
		ok := false
		for _, m := range h.since {
			ok = ok || reflect.DeepEqual(m[k], got[k]) || m[k].Info == reduced && reflect.DeepEqual(m[k].torn(), got[k])
		}
		if !ok {
			return fmt.Errorf("%v is %+v; it may be:%s", k, got[k], lines(h.since, k))
		}
	}
	h.now = got
	h.step(true)
	return nil
}

func lines(list []model, k Key) string {
	var b bytes.Buffer
	for _, m := range list {
		fmt.Fprintf(&b, "\n  %+v", m[k])
	}
	return b.String()
}

var universe = []Key{{"a", 1}, {"a", 2}, {"b", 1}, {"c", 1}, {"d", 1}}

// small makes segments roll and be removed all the time.
var small = Options{SegmentSize: 300, SyncWithin: time.Hour}

func rejected(err error) bool {
	return errors.Is(err, ErrKnown) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrState) || errors.Is(err, ErrInvalid)
}

// dice decides: a number below n.
type dice func(n int) int

func (d dice) text(most int) string {
	return string(bytes.Repeat([]byte{byte(d(256))}, d(most+1)))
}

func (d dice) op() op {
	k := universe[d(len(universe))]
	switch d(16) {
	case 0, 1:
		return opAccept(k, int64(d(1000)), true)
	case 2:
		return opAccept(k, 7, false)
	case 3:
		return opStart(k)
	case 4:
		if d(3) == 0 {
			return opRetract(k)
		}
		return opWithdraw(k)
	case 5:
		return opStop(k, []string{"cancel", "timeout"}[d(2)])
	case 6:
		return opEnd(k, d.text(1500))
	case 7:
		switch d(6) {
		case 0:
			return opForget(k)
		case 1:
			return opReduce(k, d.text(1000))
		}
		return opAck(k, int64(d(20)))
	case 8:
		return opAck(k, int64(d(40)))
	case 9, 10, 11:
		return opSync()
	}
	var records []string
	for range 1 + d(4) {
		records = append(records, d.text(100))
	}
	return opAppend(k, int64(d(4)/3), records...)
}

// world is a journal beside its model.
type world struct {
	dice  dice
	mem   *Memory
	fails *Failing // nil: no call fails
	j     *Journal
	h     *history
	high  int64 // the highest position seen
	gone  uint64
	sound bool // the next time it is opened no call fails
}

// run makes calls and crashes. The error is where the journal is not the model.
func (w *world) run(steps int) error {
	w.mem, w.h = NewMemory(), newHistory()
	if err := w.open(); err != nil {
		return err
	}
	defer func() { _ = w.j.Close() }()
	for i := range steps {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if p := positionOf(w.j); p < w.high {
			return fmt.Errorf("step %d: position %d after %d", i, p, w.high)
		}
		w.high = positionOf(w.j)
	}
	w.gone = oldest(w.j)
	return nil
}

// open opens the journal, often with a call that will fail.
func (w *world) open() error {
	w.fails = nil
	defer func() { w.sound = false }()
	if !w.sound && w.dice(3) == 0 {
		w.fails = FailAt(w.mem, 1+w.dice(100), errors.New("boom"))
		w.fails.Anyway, w.fails.Forever = w.dice(2) == 0, w.dice(3) == 0
		if j, err := Open(w.fails, small); err == nil {
			w.j = j
			return nil
		}
		w.fails = nil
	}
	j, err := Open(w.mem, small)
	if err == nil {
		w.j = j
	}
	return err
}

// reopen opens the journal anew and checks what is in it.
func (w *world) reopen() error {
	if err := w.open(); err != nil {
		return err
	}
	got, err := look(w.j, universe)
	if err != nil && w.fails != nil {
		_ = w.j.Close()
		w.sound = true
		if err = w.open(); err == nil {
			got, err = look(w.j, universe)
		}
	}
	if err != nil {
		return err
	}
	return w.h.allows(got)
}

func (w *world) step() error {
	switch w.dice(40) {
	case 0:
		w.mem.Crash()
		_ = w.j.Close()
		return w.reopen()
	case 1:
		w.mem.Tear(rand.New(rand.NewPCG(uint64(w.dice(1<<30)), 1)))
		_ = w.j.Close()
		return w.reopen()
	case 2:
		return w.closeAndReopen()
	}
	return w.call(w.dice.op())
}

// closeAndReopen closes the journal in order: what it holds counts the same afterwards.
func (w *world) closeAndReopen() error {
	err := w.j.Close()
	switch {
	case err == nil:
		w.h.step(true)
	case w.fails == nil:
		return err
	}
	before := w.j
	if openErr := w.reopen(); openErr != nil || err != nil {
		return openErr
	}
	return sameCosts(before, w.j)
}

// sameCosts compares what two journals count as held, by hand and by job.
func sameCosts(a, b *Journal) error {
	if a.used != b.used || a.needed != b.needed || !maps.Equal(a.jobs, b.jobs) {
		return fmt.Errorf("%d bytes are held, %d needed, %v of jobs; before it was closed %d, %d and %v",
			b.used, b.needed, b.jobs, a.used, a.needed, a.jobs)
	}
	return nil
}

func (w *world) call(o op) error {
	before := w.h.now.clone()
	ok := o.model(w.h.now)
	err := o.call(w.j)
	switch {
	case err == nil && ok:
		w.h.step(!o.later)
	case rejected(err) && !ok:
	case errors.Is(err, ErrBroken) && w.fails != nil:
		w.h.since = append(w.h.since, w.h.now.clone())
		w.h.now = before
		_ = w.j.Close()
		return w.reopen()
	case err != nil && w.fails != nil: // what was not synced is undone, but for what lasts
		w.h.undo()
	default:
		return fmt.Errorf("%s: %w, the model says %v", o.name, err, ok)
	}
	got, err := look(w.j, universe)
	if err != nil && w.fails != nil {
		return nil
	}
	if err != nil || !reflect.DeepEqual(got, w.h.now) {
		return fmt.Errorf("%s: %w: the journal says\n%+v\nthe model\n%+v", o.name, err, got, w.h.now)
	}
	return nil
}

// TestModel: the journal is the model, whatever is called, over crashes at any
// moment, errors of any call, and reopening.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{dice: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "dice") }}
		if err := w.run(rapid.IntRange(1, 60).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestModelLong: the same, long enough that segments are removed many times.
func TestModelLong(t *testing.T) {
	var removed uint64
	for seed := range uint64(60) {
		w := world{dice: rand.New(rand.NewPCG(seed, 0)).IntN}
		if err := w.run(500); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		removed += w.gone - 1
	}
	if removed < 100 {
		t.Errorf("%d segments were removed: too few to show anything", removed)
	}
}
