//go:build linux

package hostile

import (
	"fmt"
	"math"
	"strings"
)

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

// tellWaitersForMany lets several callers wait for as many jobs in each request as there may be, as often as can be.
func tellWaitersForMany(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	defer p.close()
	var ids list
	for range t.many(100, 1000) {
		id := newID()
		f, err := p.ask(typeSubmit, submission(t.waitingCall(id, object{})))
		if err != nil {
			return err
		}
		if f.kind != typeReply {
			break // there is a quota
		}
		ids = append(ids, id)
	}
	question := encode(object{"ids", ids})
	for i := range 3 {
		q, err := t.callerNamed(fmt.Sprint("liar", i))
		if err != nil {
			return err
		}
		t.work.Go(func() {
			for range 4000 {
				if q.sayBytes(frameBytes(q.nextExchange(), typeResults, endFlag, question)) != nil {
					return
				}
			}
		})
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
