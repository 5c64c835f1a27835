//go:build linux

package hostile

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// liesOfCallers are told with a caller's certificate.
var liesOfCallers = toDispatcher(caller, []lie{
	// Sessions.
	{name: "sessions that say nothing", tell: tellNoHello},
	{name: "bytes that are not yamux", tell: tellNoMux},
	{name: "messages of yamux that there are not", tell: tellOtherMux},
	{name: "pings without end", tell: tellPings},
	{name: "streams without end", tell: tellStreams},
	{name: "a window that is overrun", tell: tellOverrun},
	{name: "windows without end", tell: tellWindows},
	{name: "half a message of yamux on many sessions", tell: tellHalfMessages},
	{name: "bodies ahead on many sessions", tell: tellAhead},
	{name: "another frame before HELLO", tell: tellOtherFirst},
	{name: "HELLO again and again", tell: tellHelloAgain},
	{name: "a HELLO of another version", tell: tellOtherVersion},
	{name: "a HELLO that is huge", tell: tellHugeHello},
	{name: "requests before HELLO", tell: tellRequestsFirst},
	{name: "frames of types that there are not", tell: tellOtherTypes},
	{name: "frames with flags that there are not", tell: tellOtherFlags},
	{name: "a frame of 4 GiB", tell: tellHugeFrame},
	{name: "half a SUBMIT on many streams", tell: tellHalfBodies},
	{name: "half a SUBMIT with its frame", tell: tellHalfFrames},
	{name: "a body on a stream that there is not", tell: tellNoStream},
	{name: "exchanges without end", tell: tellExchanges},
	{name: "answers that nobody waits for", tell: tellGivenUp},
	{name: "a storm of RESET", tell: tellResets, long: "its session is ended before all is told"},
	{name: "exchanges that go backwards", tell: tellBackwards},
	{name: "frames after End", tell: tellAfterEnd},
	{name: "heartbeats without end", tell: tellHeartbeats},
	{name: "bodies that are bombs", tell: tellBombs},
	{name: "sessions without end", tell: tellSessions},

	// Requests.
	{name: "answers that nobody reads", tell: tellUnread},
	{name: "backups that nobody reads", tell: tellUnreadBackups},
	{name: "pages that are too long", tell: tellLongPages},
	{name: "cursors of others", tell: tellCursors},
	{name: "waiters for results", tell: tellWaiters(typeResult)},
	{name: "waiters for records", tell: tellWaiters(typePull)},
	{name: "waiters for events", tell: tellWaiters(typeEvents)},
	{name: "waiters for the results of many jobs", tell: tellWaitersForMany},
	{name: "waiters of many callers", tell: tellWaitersOfMany},
	{name: "waiters that come and go", tell: tellGoingWaiters},
	{name: "jobs that there are not", tell: tellNoJobs},
	{name: "ids that are none", tell: tellOtherIDs},
	{name: "another request under the same id", tell: tellSameID},
	{name: "keys in other cases, and twice", tell: tellOtherKeys},
	{name: "both ends of every range", tell: tellRanges},
	{name: "names that a terminal would obey", tell: tellNames},
	{name: "more labels and needs than there may be", tell: tellManyLabels},
	{name: "names of queues that hold a key twice", tell: tellDoubleQueues},
	{name: "arguments that are deep and wide", tell: tellWideArgs},
	{name: "a signature that fills the frame", tell: tellSignature},
	{name: "a reason of 64 KiB to give a job up", tell: tellLongWhy},
	{name: "bytes stored without end", tell: tellStored},
	{name: "jobs waiting without end", tell: tellWaiting},
	{name: "queues without end", tell: tellQueues},
	{name: "the same idempotency key at once", tell: tellSameKey},
})

func toDispatcher(as role, all []lie) []lie {
	for i := range all {
		all[i].as, all[i].to = as, dispatcher
	}
	return all
}

// untilClosed waits until the other side ends the session, which it must.
func (p *peer) untilClosed(t *teller) error {
	<-p.over
	if t.ctx.Err() != nil {
		return fmt.Errorf("the session was not closed")
	}
	return nil
}

// greeted opens sessions of callers, and does something with each.
func (t *teller) greeted(n int, do func(p *peer) error) error {
	return t.each(n, func(int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		return do(p)
	})
}

// closing does something after which each session must be closed by the other side.
func (t *teller) closing(n int, do func(p *peer)) error {
	return t.greeted(n, func(p *peer) error {
		do(p)
		return p.untilClosed(t)
	})
}

// lineOfLies is the queue of all calls that wait. It is cancelled when a lie is over.
const lineOfLies = "lies"

// waitingCall is a call that waits for an hour.
func (t *teller) waitingCall(id string, args any, more ...any) []byte {
	more = append(more, "notbefore", time.Now().Add(time.Hour).UnixNano(), "queue", user(object{"name", lineOfLies}))
	return request(id, t.called, "work", args, more...)
}

func tellNoJobs(t *teller) error {
	return t.greeted(t.many(1, 8), func(p *peer) error {
		for range t.many(20, 500) {
			for _, kind := range []byte{typeStatus, typeResult, typePull, typeCancelJob, typeRequest} {
				if err := p.refusedWith("not_found", kind, object{"id", newID(), "wait", true}); err != nil {
					return err
				}
			}
			if err := p.refusedWith("not_found", typeForceLost, object{"id", newID(), "why", "a lie"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// noIDs are none of version 7.
var noIDs = []string{
	"", "x", "../../etc/passwd", strings.Repeat("0", 36), strings.Repeat("f", 60000), "\x00", "00000000-0000-0000-0000-000000000000",
	"0198F0A2-7C11-7000-8000-000000000001", "0198f0a2-7c11-4000-8000-000000000001",
	"0198f0a2-7c11-7000-8000-00000000000\u200b", "{0198f0a2-7c11-7000-8000-000000000001}",
}

func tellOtherIDs(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, id := range noIDs {
		for _, kind := range []byte{typeStatus, typeResult, typePull, typeCancelJob, typeRequest} {
			if err := p.refusedWith("invalid", kind, object{"id", id}); err != nil {
				return err
			}
		}
		for _, message := range []object{submission(request(id, t.called, "work", object{})), submission(request(newID(), t.called, "work", object{}, "retryof", id+"x"))} {
			if err := p.refusedWith("invalid", typeSubmit, message); err != nil {
				return err
			}
		}
	}
	return nil
}

func tellSameID(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	return t.greeted(t.many(2, 16), func(p *peer) error {
		return p.refusedWith("conflict", typeSubmit, submission(request(job, t.called, "again", object{})))
	})
}

func tellOtherKeys(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	req := request(newID(), t.called, "work", object{})
	for _, message := range []object{
		{"REQ", req},
		{"Req", req},
		{"req ", req},
		{},
		{"req", nil},
		{"req", 1},
		{"req", list{}},
		{"req", "x"},
		{"req", encode(object{"V", 1, "ID", newID(), "HOST", t.called, "PROC", "work"})},
		{"req", encode(object{"v", 1, "id", newID(), "Host", t.called, "proc", "work"})},
		{"req", encode(object{"v", 2, "id", newID(), "host", t.called, "proc", "work"})},
		{"req", encode(object{"v", 1, "id", newID(), "host", t.called, "proc", "work", "args", object{}})},
	} {
		if err := p.refusedWith("invalid", typeSubmit, message); err != nil {
			return fmt.Errorf("%v: %w", message, err)
		}
	}
	for _, args := range []object{{"a", 1, "a", 2}, {1, 2}, {nil, 1}, {list{}, 1}} {
		if err := p.refusedWith("invalid", typeSubmit, submission(request(newID(), t.called, "work", args))); err != nil {
			return fmt.Errorf("arguments %v: %w", args, err)
		}
	}
	return nil
}

// tellRanges asks for what is out of range, and for what is its very end.
func tellRanges(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, field := range []string{"timeout", "maxexec", "offwait", "conc", "prio", "idemttl", "notbefore", "expires"} {
		for _, v := range []any{int64(math.MinInt64), -1, int64(math.MaxInt64), 1e300, "1", true} {
			id := newID()
			f, err := p.ask(typeSubmit, submission(t.waitingCall(id, object{}, field, v)))
			if err != nil {
				return fmt.Errorf("%s %v: %w", field, v, err)
			}
			if f.kind == typeReply {
				if _, err := p.ask(typeCancelJob, object{"id", id}); err != nil {
					return err
				}
			}
		}
	}
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	for _, v := range []any{int64(math.MinInt64), -1, int64(math.MaxInt64), encoded{0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		for kind, message := range map[byte]object{
			typePull: {"id", job, "from", v}, typeJobs: {"limit", v, "since", v, "until", v}, typeEvents: {"after", v},
			typeChange: {"id", newID(), "name", user(object{"q", "lie"}), "conc", v}, typePrune: {"before", int64(math.MinInt64)},
		} {
			if _, err := p.ask(kind, message); err != nil {
				return fmt.Errorf("%v: %w", message, err)
			}
		}
		if _, err := p.ask(typePull, object{"id", job, "tail", true, "recent", v}); err != nil {
			return err
		}
	}
	return nil
}

// obeyed are texts that a terminal or a log would take for more than that.
var obeyed = []string{"a\nb", "a\x1b[2Jb", "a\x00b", "a\u202eb", "a\u200bb", "a\u2028b", "a\u009bb"}

func tellNames(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, text := range append(obeyed, strings.Repeat("x", 300), "", "../x", "a/b") {
		for _, m := range []object{
			submission(request(newID(), text, "work", object{})), submission(request(newID(), t.called, text, object{})),
		} {
			f, err := p.ask(typeSubmit, m)
			if err != nil {
				return err
			}
			if f.kind != typeFailed {
				return fmt.Errorf("a call of host or procedure %q is taken", text)
			}
		}
		if _, err := p.ask(typeHosts, object{"name", text}); err != nil {
			return err
		}
		if _, err := p.ask(typeHostProcs, object{"name", text}); err != nil {
			return err
		}
	}
	return nil
}

func tellManyLabels(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	var labels object
	var needs list
	for i := range 1000 {
		labels, needs = append(labels, fmt.Sprint("label", i), "x"), append(needs, fmt.Sprint("feature", i))
	}
	long := strings.Repeat("x", 60000)
	for _, more := range [][]any{
		{"labels", labels},
		{"labels", object{long, "x"}},
		{"labels", object{"x", long}},
		{"needs", needs},
		{"needs", list{long}},
		{"trace", long},
		{"idem", long},
		{"info", user(strings.Repeat("x", 65<<10))},
		{"queue", user(object{"q", long})},
		{"retry", object{"on", list{"lost"}, "n", math.MaxInt64}},
		{"retry", object{"on", needs}},
		{"whenoff", long},
	} {
		if err := p.refusedWith("invalid", typeSubmit, submission(request(newID(), t.called, "work", object{}, more...))); err != nil {
			return fmt.Errorf("%.50v: %w", more, err)
		}
	}
	return nil
}

func tellDoubleQueues(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, name := range []any{object{"a", 1, "a", 2}, object{"a", object{"b", 1, "b", 1}}, list{}, 1, "x", nil, object{1, 2}} {
		queue := user(name)
		for kind, message := range map[byte]object{
			typeCancelLine: {"id", newID(), "name", queue}, typeChange: {"id", newID(), "name", queue, "paused", true},
		} {
			if err := p.refusedWith("invalid", kind, message); err != nil {
				return err
			}
		}
	}
	return p.refusedWith("invalid", typeSubmit, submission(request(newID(), t.called, "work", object{}, "queue", user(object{"a", 1, "a", 2}))))
}

func tellWideArgs(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		deep := any(object{})
		for range 31 {
			deep = object{"a", deep}
		}
		var wide object
		for i := range 100000 {
			wide = append(wide, fmt.Sprint("k", i), i)
		}
		for _, args := range []any{deep, wide, object{"a", make(list, 250000)}, object{"a", list{deep, deep}}, make(list, 300000)} {
			f, err := p.ask(typeSubmit, submission(request(newID(), t.called, "work", args)))
			if err != nil {
				return err
			}
			if f.kind != typeFailed {
				return fmt.Errorf("%.50v is taken", args)
			}
		}
		return nil
	})
}

// tellSignature fills SUBMIT to the brim: of CALL, which says more, nothing may be too long.
// What is taken has to come to an end.
func tellSignature(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, size := range []int{1 << 10, 1 << 20, 2<<20 + 60<<10, 2<<20 + 126<<10, 2<<20 + 127<<10 + 500} {
		id := newID()
		f, err := p.ask(typeSubmit, submission(request(id, t.called, "work", object{}), "sig", make([]byte, size)))
		if err == nil && f.kind == typeReply {
			f, err = p.ask(typeResult, object{"id", id, "wait", true})
		}
		if err != nil {
			return fmt.Errorf("a signature of %d bytes: %w", size, err)
		}
	}
	return nil
}

func tellLongWhy(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	return p.refusedWith("invalid", typeForceLost, object{"id", job, "why", strings.Repeat("x", 60000)})
}

func tellStored(t *teller) error {
	fill := strings.Repeat("x", 1000<<10)
	return t.greeted(t.many(2, 16), func(p *peer) error {
		for range t.many(16, 100) {
			f, err := p.ask(typeSubmit, submission(t.waitingCall(newID(), object{"fill", fill})))
			if err != nil || f.kind != typeReply {
				return err
			}
		}
		return nil
	})
}

func tellWaiting(t *teller) error {
	return t.greeted(t.many(2, 16), func(p *peer) error {
		var b []byte
		for range t.many(500, 4000) {
			b = append(b, frameBytes(p.nextExchange(), typeSubmit, endFlag, encode(submission(t.waitingCall(newID(), object{}))))...)
		}
		if err := p.sayBytes(b); err != nil {
			return err
		}
		_, err := p.ask(typePing, object{})
		return err
	})
}

func tellQueues(t *teller) error {
	return t.greeted(t.many(1, 8), func(p *peer) error {
		for i := range t.many(200, 3000) {
			queue := user(object{"q", newName("lie"), "n", i})
			if _, err := p.ask(typeChange, object{"id", newID(), "name", queue, "paused", true}); err != nil {
				return err
			}
		}
		return nil
	})
}

func tellSameKey(t *teller) error {
	key := newID()
	var jobs [8]string
	err := t.each(len(jobs), func(i int) error {
		p, err := t.callerNamed("twin") // the other may have had stored what it may
		if err != nil {
			return err
		}
		f, err := p.ask(typeSubmit, submission(t.waitingCall(newID(), object{}, "idem", key, "idemttl", int64(time.Hour))))
		jobs[i], _ = fields(f.body)["id"].(string)
		return err
	})
	for _, job := range jobs {
		if job != jobs[0] || job == "" {
			return fmt.Errorf("one key has jobs %v, %w", jobs, err)
		}
	}
	return err
}
