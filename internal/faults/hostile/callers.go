//go:build linux

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
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

func tellNoHello(t *teller) error {
	err := t.each(t.many(100, 1000), func(i int) error {
		if i%2 == 0 { // not even a stream
			_, err := t.identified(t.as, "liar")
			return err
		}
		_, err := t.session("liar", nil)
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellNoMux(t *teller) error {
	texts := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bytes.Repeat([]byte{0xff}, 64<<10), bytes.Repeat([]byte{1}, 100),
		{0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
	}
	return t.each(t.many(20, 200), func(i int) error {
		conn, err := t.identified(t.as, "liar")
		if err != nil {
			return err
		}
		_, _ = conn.Write(texts[i%len(texts)]) // it may be closed already
		if i%len(texts) == 3 {
			return nil // it may wait for so many bytes
		}
		return isClosed(conn)
	})
}

func tellOtherMux(t *teller) error {
	for _, message := range [][]byte{
		{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		header(9, 0, 1, 0), header(kindData, 0, 99, 5), header(kindData, flagSYN, 1, 0),
		header(kindWindow, flagSYN, 2, 0), header(kindWindow, 0xffff, 7, 1<<31), header(kindGoAway, 0, 0, 99), header(kindData, flagRST, 1, 0),
		header(kindData, flagFIN, 1, 0), header(kindData, flagSYN|flagACK|flagFIN|flagRST, 3, 0), header(kindData, 0, 0, 1<<31),
	} {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		_ = p.write(message)
		_ = p.write(make([]byte, 1000))
		p.close()
	}
	return nil
}

func tellPings(t *teller) error {
	return t.closing(t.many(5, 50), func(p *peer) {
		for range 1000 {
			if p.write(bytes.Repeat(header(kindPing, flagSYN, 0, 7), 100)) != nil {
				return
			}
		}
	})
}

func tellStreams(t *teller) error {
	return t.closing(t.many(5, 50), func(p *peer) {
		for range 1000 {
			if _, err := p.openStream(); err != nil {
				return
			}
		}
	})
}

func tellOverrun(t *teller) error {
	body := make([]byte, pieceSize)
	return t.each(t.many(3, 30), func(i int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		s := p.main
		if i%2 == 0 { // one that is not accepted
			if s, err = p.openStream(); err != nil {
				return err
			}
		}
		for range 64 << 20 / pieceSize {
			if s.writePiece(body) != nil {
				break
			}
		}
		return p.untilClosed(t)
	})
}

func tellWindows(t *teller) error {
	return t.greeted(t.many(3, 30), func(p *peer) error {
		for range 1000 {
			if p.write(bytes.Repeat(header(kindWindow, 0, 1, math.MaxUint32), 100)) != nil {
				break
			}
		}
		p.close()
		return nil
	})
}

func tellOtherFirst(t *teller) error {
	for _, kind := range []byte{0, typeCall, typeWelcome, typeFacts, typeReady, typeReply, typeHeartbeat, 100, 255} {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		_ = p.say(0, kind, 0, hello())
		if kind == typeHeartbeat {
			p.close()
			continue
		}
		if err := p.untilClosed(t); err != nil {
			return fmt.Errorf("frame %d: %w", kind, err)
		}
	}
	return nil
}

func tellHelloAgain(t *teller) error {
	again := bytes.Repeat(frameBytes(0, typeHello, 0, encode(hello("software", strings.Repeat("x", 1000)))), 1000)
	err := t.greeted(t.many(3, 30), func(p *peer) error {
		t.flood(p, again, t.many(20, 100))
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// flood sends bytes again and again, as far as the other side takes them.
func (t *teller) flood(p *peer, b []byte, times int) {
	t.work.Go(func() {
		for range times {
			if p.sayBytes(b) != nil {
				return
			}
		}
	})
}

func tellOtherVersion(t *teller) error {
	for _, v := range []any{0, 1, 3, -1, math.MaxInt64, math.MinInt64, "2", nil, 2.5, true} {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		_ = p.say(0, typeHello, 0, object{"v", v})
		if f, err := p.expect(typeUnwelcome); err != nil {
			return fmt.Errorf("version %v: frame %d, %w", v, f.kind, err)
		}
		if err := p.untilClosed(t); err != nil {
			return fmt.Errorf("version %v: %w", v, err)
		}
	}
	return nil
}

func tellHugeHello(t *teller) error {
	text := strings.Repeat("x", 60<<10)
	var features list
	for i := range 4000 {
		features = append(features, fmt.Sprint("feature", i))
	}
	return t.each(t.many(20, 1000), func(i int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		field := []string{"software", "instance", "token", "boot"}[i%4]
		_ = p.say(0, typeHello, 0, hello(field, text))
		_ = p.say(0, typeHello, 0, hello("features", features, "software", "\x1b[2J\u202e\u200b\u2028"))
		return nil
	})
}

// requestsBefore are requests without HELLO, none of which is answered.
func tellRequestsFirst(t *teller) error {
	n := t.many(4, 8)
	err := t.each(n, func(int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		var b []byte
		for i := range 8000 {
			b = append(b, frameBytes(uint32(i+1), typeJobs, endFlag, encode(object{"limit", 1}))...)
		}
		t.work.Go(func() { _ = p.sayBytes(b) })
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellOtherTypes(t *teller) error {
	return t.greeted(t.many(2, 20), func(p *peer) error {
		for _, kind := range []byte{0, typeCall, typeResume, typeAccepted, typeEnd, 31, 41, 63, typeReply, typeFailed, typeChunk, 105, 112, 125} {
			if err := p.refusedWith("refused", kind, object{"id", newID()}); err != nil {
				return err
			}
		}
		_ = p.sayBytes(frameBytes(p.nextExchange(), 200, endFlag, nil))
		return p.untilClosed(t)
	})
}

func tellOtherFlags(t *teller) error {
	for _, flags := range []byte{4, 8, 0x80, 0xff} {
		err := t.closing(1, func(p *peer) { _ = p.sayBytes(frameBytes(1, typePing, flags, nil)) })
		if err != nil {
			return fmt.Errorf("flags %#x: %w", flags, err)
		}
	}
	return nil
}

func tellHugeFrame(t *teller) error {
	return t.closing(t.many(8, 100), func(p *peer) {
		_ = p.sayBytes(frameHeader(p.nextExchange(), typeSubmit, endFlag, math.MaxUint32))
	})
}

// submitSize is nearly the longest SUBMIT there may be.
const submitSize = 2 << 20

func tellHalfBodies(t *teller) error {
	half := make([]byte, submitSize-1)
	err := t.greeted(t.many(2, 16), func(p *peer) error {
		for range 64 {
			s, err := p.openStream()
			if err != nil {
				return err
			}
			named := frameHeader(p.nextExchange(), typeSubmit, endFlag|longFlag, submitSize)
			if err := p.sayBytes(binary.BigEndian.AppendUint32(named, s.id)); err != nil {
				return err
			}
			t.work.Go(func() { _, _ = s.Write(half) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellHalfFrames(t *teller) error {
	half := make([]byte, submitSize-1)
	err := t.greeted(t.many(16, 500), func(p *peer) error {
		t.work.Go(func() {
			if p.sayBytes(frameHeader(p.nextExchange(), typeSubmit, endFlag, submitSize)) == nil {
				_ = p.sayBytes(half)
			}
		})
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellNoStream(t *teller) error {
	ids := []uint32{0, 1, 2, 999, math.MaxUint32}
	err := t.each(t.many(1, 20)*len(ids), func(i int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		named := frameHeader(p.nextExchange(), typeSubmit, endFlag|longFlag, submitSize)
		return p.sayBytes(binary.BigEndian.AppendUint32(named, ids[i%len(ids)]))
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellExchanges begins more than there may be at a time, which are never answered.
func tellExchanges(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	return t.closing(t.many(1, 8), func(p *peer) {
		question := encode(object{"id", job, "wait", true})
		for p.sayBytes(frameBytes(p.nextExchange(), typeResult, endFlag, question)) == nil {
			continue
		}
	})
}

// waitingJob submits one that waits for long.
func (t *teller) waitingJob() (string, error) {
	p, err := t.callerSession()
	if err != nil {
		return "", err
	}
	defer p.close()
	id := newID()
	f, err := p.ask(typeSubmit, submission(t.waitingCall(id, object{})))
	if err == nil && f.kind != typeReply {
		err = fmt.Errorf("a call is refused: %s", codeOf(f))
	}
	return id, err
}

// lineOfLies is the queue of all calls that wait. It is cancelled when a lie is over.
const lineOfLies = "lies"

// waitingCall is a call that waits for an hour.
func (t *teller) waitingCall(id string, args any, more ...any) []byte {
	more = append(more, "notbefore", time.Now().Add(time.Hour).UnixNano(), "queue", user(object{"name", lineOfLies}))
	return request(id, t.called, "work", args, more...)
}

func tellResets(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	return t.greeted(t.many(2, 16), func(p *peer) error {
		defer p.close()
		for range t.many(20, 500) {
			var b []byte
			for range 500 {
				x := p.nextExchange()
				b = append(b, frameBytes(x, typeResult, endFlag, question)...)
				b = append(b, frameBytes(x, typeReset, 0, nil)...)
			}
			if err := p.sayBytes(b); err != nil {
				return err
			}
		}
		return nil
	})
}

func tellBackwards(t *teller) error {
	return t.greeted(t.many(4, 40), func(p *peer) error {
		for _, x := range []uint32{5, 4, 3, 5, 1 << 30, 1 << 31, 1<<31 + 5, 3 << 30, math.MaxUint32, 1, 0} {
			_ = p.sayBytes(frameBytes(x, typePing, endFlag, nil))
		}
		p.close()
		return nil
	})
}

func tellAfterEnd(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	return t.closing(t.many(4, 40), func(p *peer) {
		for range 3 {
			_ = p.sayBytes(frameBytes(1, typeResult, endFlag, question))
		}
	})
}

func tellHeartbeats(t *teller) error {
	beats := bytes.Repeat(frameBytes(0, typeHeartbeat, 0, nil), 10000)
	return t.greeted(t.many(2, 8), func(p *peer) error {
		defer p.close()
		for range t.many(20, 500) {
			if err := p.sayBytes(beats); err != nil {
				return err
			}
		}
		return nil
	})
}

// bombs are messages that claim to be long, or are deep, or are none.
var bombs = [][]byte{
	{0xdd, 0x7f, 0xff, 0xff, 0xff},
	{0xdf, 0x7f, 0xff, 0xff, 0xff},
	{0xdb, 0x7f, 0xff, 0xff, 0xff},
	{0xc6, 0x7f, 0xff, 0xff, 0xff},
	{0xc9, 0x7f, 0xff, 0xff, 0xff, 0x01},
	{0xdc, 0xff, 0xff},
	bytes.Repeat([]byte{0x91}, 60000), bytes.Repeat([]byte{0x81, 0xa1, 0x61}, 20000),
	{0xc0, 0xc0},
	{0xc1},
	{0xa1, 0xff},
	{0xd6, 0xff, 0, 0, 0, 0},
	{0x92, 0xc0},
	{0x81, 0xc0},
	{0xc7, 0, 0x53},
	encode(object{"id", append(list(nil), make(list, 5000)...)}),
}

func tellBombs(t *teller) error {
	kinds := []byte{typePing, typeSubmit, typeStatus, typePull, typeJobs, typeEvents, typeChange, typePrune}
	return t.each(len(bombs)*t.many(1, len(kinds)), func(i int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		_ = p.sayBytes(frameBytes(p.nextExchange(), kinds[i/len(bombs)], endFlag, bombs[i%len(bombs)]))
		return p.untilClosed(t)
	})
}

func tellSessions(t *teller) error {
	var open atomic.Int64
	err := t.each(t.many(100, 3000), func(int) error {
		if _, err := t.callerSession(); err == nil {
			open.Add(1)
		}
		return nil
	})
	if err != nil || open.Load() == 0 {
		return fmt.Errorf("%d sessions: %w", open.Load(), err)
	}
	return t.hold()
}

// tellUnread asks for long answers and reads none.
func tellUnread(t *teller) error {
	if err := t.fillStore(t.many(16, 64), 512<<10); err != nil {
		return err
	}
	err := t.each(t.many(4, 16), func(int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		p.stopListening()
		var b []byte
		for range t.many(500, 4000) {
			b = append(b, frameBytes(p.nextExchange(), typeJobs, endFlag, encode(object{"limit", 1}))...)
			b = append(b, frameBytes(p.nextExchange(), typeHosts, endFlag, encode(object{}))...)
		}
		t.work.Go(func() { _ = p.sayBytes(b) })
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// fillStore stores so many jobs with long arguments, which are cancelled at once.
func (t *teller) fillStore(n, size int) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	defer p.close()
	fill := strings.Repeat("x", size)
	for range n {
		id := newID()
		f, err := p.ask(typeSubmit, submission(t.waitingCall(id, object{"fill", fill})))
		if err != nil {
			return err
		}
		if f.kind != typeReply {
			return nil // there is a quota
		}
		if _, err := p.ask(typeCancelJob, object{"id", id}); err != nil {
			return err
		}
	}
	return nil
}

func tellUnreadBackups(t *teller) error {
	err := t.greeted(t.many(4, 16), func(p *peer) error {
		p.stopListening()
		for range t.many(4, 64) {
			if err := p.say(p.nextExchange(), typeBackup, endFlag, object{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellLongPages(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, kind := range []byte{typeJobs, typeHosts, typeQueues} {
		for _, limit := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1 << 32} {
			if _, err := p.ask(kind, object{"limit", limit}); err != nil {
				return fmt.Errorf("frame %d, limit %d: %w", kind, limit, err)
			}
		}
	}
	return nil
}

func tellCursors(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for _, cursor := range []string{"x", strings.Repeat("A", 50000), "\x00", "AAAA", "-1", "../../x", "%00"} {
		if err := p.refusedWith("invalid", typeJobs, object{"cursor", cursor}); err != nil {
			return err
		}
		for _, kind := range []byte{typeHosts, typeQueues} { // a name may be one
			if _, err := p.ask(kind, object{"cursor", cursor}); err != nil {
				return err
			}
		}
	}
	for _, after := range []string{"x", strings.Repeat("9", 50000), "-1", "\x00"} {
		if err := p.refusedWith("invalid", typeEvents, object{"after", after}); err != nil {
			return err
		}
	}
	return nil
}

// tellWaiters asks what is never answered, as often as can be.
func tellWaiters(kind byte) func(*teller) error {
	return func(t *teller) error {
		job, err := t.waitingJob()
		if err != nil {
			return err
		}
		question := object{"id", job, "wait", true}
		if kind == typeEvents {
			question = object{"wait", true, "types", list{"nothing"}}
		}
		body := encode(question)
		err = t.greeted(t.many(2, 6), func(p *peer) error {
			var b []byte
			for range t.many(1000, 4000) {
				b = append(b, frameBytes(p.nextExchange(), kind, endFlag, body)...)
			}
			t.flood(p, b, 1)
			return nil
		})
		if err != nil {
			return err
		}
		return t.hold()
	}
}

// tellWaitersOfMany lets several callers begin all exchanges that they can.
func tellWaitersOfMany(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	err = t.each(4, func(i int) error {
		p, err := t.sessionAs(caller, fmt.Sprint("liar", i), nil)
		if err != nil {
			return err
		}
		if err := p.say(0, typeHello, 0, hello()); err != nil {
			return err
		}
		if _, err := p.expect(typeWelcome); err != nil {
			return err
		}
		for range 4096 {
			if p.sayBytes(frameBytes(p.nextExchange(), typeResult, endFlag, question)) != nil {
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellGoingWaiters waits in sessions that are gone at once.
func tellGoingWaiters(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	return t.greeted(t.many(30, 500), func(p *peer) error {
		defer p.close()
		var b []byte
		for range 100 {
			b = append(b, frameBytes(p.nextExchange(), typeResult, endFlag, question)...)
			b = append(b, frameBytes(p.nextExchange(), typePull, endFlag, question)...)
		}
		return p.sayBytes(b)
	})
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
		p, err := t.callerSession()
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
