//go:build linux

package hostile

import (
	"math"
	"time"
)

// directSession is a session of a caller who does without a dispatcher.
func (t *teller) directSession() (*peer, error) {
	p, err := t.session("liar", nil)
	if err != nil {
		return nil, err
	}
	if err := p.say(0, typeHello, 0, hello()); err != nil {
		return nil, err
	}
	_, err = p.expect(typeWelcome)
	return p, err
}

func tellNoDirectHello(t *teller) error {
	err := t.each(t.many(100, 1000), func(int) error {
		_, err := t.session("liar", nil)
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellDirectSessions(t *teller) error {
	open := 0
	for range t.many(100, 2000) {
		if _, err := t.directSession(); err == nil {
			open++
		}
	}
	if open == 0 {
		return errGone
	}
	return t.hold()
}

func directCall(t *teller, args any) object {
	return object{"req", request(newID(), t.host, "work", args), "attempt", 1, "timeout", 0, "maxexec", 0, "window", 1 << 20}
}

func tellDirectGoing(t *teller) error {
	return t.each(t.many(30, 500), func(int) error {
		p, err := t.directSession()
		if err != nil {
			return err
		}
		defer p.close()
		for range 10 {
			_ = p.say(p.nextExchange(), typeCall, 0, directCall(t, object{"sleep", int64(time.Hour), "records", 5}))
		}
		return nil
	})
}

func tellDeafCaller(t *teller) error {
	err := t.each(t.many(2, 8), func(int) error {
		p, err := t.directSession()
		if err != nil {
			return err
		}
		p.stopListening()
		for range t.many(20, 60) {
			_ = p.say(p.nextExchange(), typeCall, 0, directCall(t, object{"records", 1000, "size", 60000, "returns", 900 << 10}))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellDirectResume(t *teller) error {
	p, err := t.directSession()
	if err != nil {
		return err
	}
	_ = p.say(p.nextExchange(), typeResume, 0, object{"job", newID(), "attempt", 1})
	return t.expectGone(p)
}

func tellDirectAcks(t *teller) error {
	for _, v := range []int64{math.MinInt64, -1, math.MaxInt64} {
		p, err := t.directSession()
		if err != nil {
			return err
		}
		x := p.nextExchange()
		_ = p.say(x, typeCall, 0, directCall(t, object{"records", 10, "pace", int64(time.Millisecond)}))
		_ = p.say(x, typeAck, 0, object{"next", 5, "window", 1 << 20})
		_ = p.say(x, typeAck, 0, object{"next", v, "window", v})
		p.close()
	}
	return nil
}

func tellDirectFrames(t *teller) error {
	for _, kind := range []byte{typeHello, typeWelcome, typeForget, typeBeat, typeReady, 100} {
		p, err := t.directSession()
		if err != nil {
			return err
		}
		if err := t.brokenBy(p, kind); err != nil {
			return err
		}
	}
	return nil
}
