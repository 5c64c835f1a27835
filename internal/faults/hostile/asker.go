//go:build linux

package hostile

import (
	"fmt"
	"math"
	"time"
)

// callerNamed is a session of a caller with another name.
func (t *teller) callerNamed(name string) (*peer, error) {
	p, err := t.sessionAs(caller, name, nil)
	if err != nil {
		return nil, err
	}
	if err := p.say(0, typeHello, 0, hello()); err != nil {
		return nil, err
	}
	_, err = p.expect(typeWelcome)
	return p, err
}

// asker asks in a session, and in another one when that was ended: what is malformed ends it.
type asker struct {
	t *teller
	p *peer
}

// ask returns no frame when the session was ended instead of an answer.
func (a *asker) ask(kind byte, message any) (f frame, err error) {
	if a.p == nil {
		if a.p, err = a.t.callerSession(); err != nil {
			return f, err
		}
	}
	f, err = a.p.ask(kind, message)
	if err == nil {
		return f, nil
	}
	select {
	case <-a.p.over:
		a.p = nil
		return frame{}, nil
	case <-a.t.ctx.Done():
	case <-time.After(time.Second): // it cannot be written to, and is not read to its end
	}
	return f, err
}

// refused fails unless a request is refused as invalid, or for its form.
func (a *asker) refused(kind byte, message any) error {
	f, err := a.ask(kind, message)
	if code := codeOf(f); err == nil && f.kind != 0 && code != "invalid" {
		err = fmt.Errorf("request %d is answered by frame %d, %q: %.200q", kind, f.kind, code, f.body)
	}
	return err
}

// asking does something in sessions that are opened anew when they were ended.
func (t *teller) asking(n int, do func(a *asker) error) error {
	return t.each(n, func(int) error { return do(&asker{t: t}) })
}

// taken fails unless a request is answered.
func (p *peer) taken(kind byte, message any) error {
	f, err := p.ask(kind, message)
	if err == nil && f.kind != typeReply {
		err = fmt.Errorf("request %d is refused: %.300q", kind, f.body)
	}
	return err
}

// isAnswered sends requests at once, and waits until the last of them is answered.
func (p *peer) isAnswered(kind byte, messages ...object) error {
	var b []byte
	for _, m := range messages {
		b = append(b, frameBytes(p.nextExchange(), kind, endFlag, encode(m))...)
	}
	return p.areAnswered(b)
}

// areAnswered is isAnswered of frames.
func (p *peer) areAnswered(frames []byte) error {
	if err := p.sayBytes(frames); err != nil {
		return err
	}
	_, err := p.ask(typePing, object{})
	return err
}

// askAfter asks after a document, with numbers out of range.
func (a *asker) askAfter(name string, v any) error {
	for kind, m := range map[byte]object{
		typeWindowSpans: {"name", name, "from", v, "to", int64(math.MaxInt64)}, typeNextTimes: {"name", name, "from", v, "n", 1000},
		typeBackfill: {"id", newID(), "name", name, "from", v, "to", time.Now().UnixNano()}, typeLedger: {"schedule", name, "from", v, "to", v, "limit", v},
		typeChangeSchedule: {"id", newID(), "name", name, "kind", "pause", "until", v, "at", v}, typeJudgeStart: {"host", "called", "proc", "work", "at", v},
		typePauseHosts: {"id", newID(), "target", "nobody", "until", v}, typeEvents: {"since", v, "after", "x"},
	} {
		if _, err := a.ask(kind, m); err != nil {
			return fmt.Errorf("request %d: %w", kind, err)
		}
	}
	_, err := a.ask(typeChangeSchedule, object{"id", newID(), "name", name, "kind", "skip", "at", v})
	return err
}
